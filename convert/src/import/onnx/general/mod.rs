//! ONNX models that run as they are, through tract: text in, rows out, where inputs and outputs say that they are of
//! a language model; tensors by name otherwise.

mod graph;
mod proto;
mod text;

use super::{Folder, Model, Side, Store};
use crate::import::hugging_face;
use graph::Runner;
use serde_json::{Map, Value};
use siskin::arch::Config;
use siskin::engine::{Engine, GENERAL, NamedTensor, Outline, Port, Rows};
use siskin::file::{Bytes, File, Metadata, SectionKind, Writer};
use siskin::{Error, Result};
use std::path::Path;

/// A model that runs through tract.
pub struct General {
    encoder: Option<Runner>,
    /// What writes, or does everything.
    main: Runner,
    outline: Outline,
    note: String,
}

impl General {
    /// The model at `path`, which is not recognised for this reason.
    pub(crate) fn open(path: &Path, reason: &str) -> Result<(Self, File)> {
        let within = |error: Error| error.within(&path.display().to_string());
        let folder = Folder::find(path).ok_or_else(|| {
            Error::new(siskin::ErrorKind::Missing, path.display().to_string(), "has no graph")
        })?;
        let mut parts = Vec::new();
        let identity = folder_identity(&folder.home)?;
        for (side, file) in &folder.graphs {
            let mut store = Store::open(file)?;
            let bytes = store.bytes.clone();
            let model = Model::parse(&bytes).map_err(within)?;
            parts.push((*side, Runner::new(&model, &mut store).map_err(within)?));
        }
        let config = hugging_face::plain_config(&folder.home).map_err(within)?.unwrap_or_default();
        let general = Self::new(parts, &config, reason).map_err(within)?;
        Ok((general, stand_in(&folder.home, config, identity).map_err(within)?))
    }

    /// A model of these graphs.
    pub(super) fn of_parts(
        models: &[Model<'_>],
        stores: &mut [(Side, Store)],
        config: &Map<String, Value>,
    ) -> Result<Self> {
        let parts =
            models.iter().zip(stores).map(|(model, (side, store))| Ok((*side, Runner::new(model, store)?)));
        Self::new(parts.collect::<Result<_>>()?, config, "")
    }

    /// The model of one graph in memory; files beside it are looked for in `folder`.
    pub fn of_bytes(bytes: Vec<u8>, folder: &Path) -> Result<Self> {
        let bytes = Bytes::new(bytes);
        let model = Model::parse(&bytes)?;
        let runner = Runner::new(&model, &mut Store::of_bytes(bytes.clone(), folder))?;
        Self::new(vec![(Side::Whole, runner)], &Map::new(), "nothing describes it")
    }

    fn new(parts: Vec<(Side, Runner)>, config: &Map<String, Value>, reason: &str) -> Result<Self> {
        let (mut encoder, mut main) = (None, None);
        for (side, runner) in parts {
            match side {
                Side::Encoder => encoder = Some(runner),
                Side::Whole | Side::Decoder => main = Some(runner),
            }
        }
        let main = main.ok_or_else(|| Error::unsupported("graph", "there is none that gives outputs"))?;
        let note = format!(
            "runs as a general graph through tract: not packed, slower, and with more memory ({reason})"
        );
        let mut general = Self { encoder, main, outline: Outline::default(), note };
        general.outline = text::outline(&general, &Config::new(config.clone()))?;
        Ok(general)
    }
}

/// What tells the graphs and the files beside them from others: their names, sizes and times.
fn folder_identity(home: &Path) -> Result<Vec<Value>> {
    let io = |error: std::io::Error| Error::io(home.display().to_string(), &error);
    let mut folders = vec![home.to_owned(), home.join("onnx")];
    folders.retain(|folder| folder.is_dir());
    let mut files = Vec::new();
    for entry in folders.iter().flat_map(std::fs::read_dir).flatten() {
        let entry = entry.map_err(io)?;
        let facts = entry.metadata().map_err(io)?;
        if facts.is_file() {
            let time = facts.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            let time = time.map_or(0, |time| time.as_nanos());
            files.push(format!("{} {} {time}", entry.path().display(), facts.len()));
        }
    }
    files.sort();
    Ok(files.into_iter().map(Value::from).collect())
}

/// A file without tensors, with what describes the model.
fn stand_in(home: &Path, mut config: Map<String, Value>, identity: Vec<Value>) -> Result<File> {
    hugging_face::add_settings(home, &mut config)?;
    let name = config.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.map(str::to_owned);
    let mut writer = Writer::new(std::io::Cursor::new(Vec::new()))?;
    if let Some(tokenizer) = hugging_face::tokenizer(home)? {
        writer.section(SectionKind::Tokenizer, &tokenizer)?;
    }
    if let Some(template) = hugging_face::read_template(home)? {
        writer.section(SectionKind::Template, template.as_bytes())?;
    }
    let provenance = Map::from_iter([("files".to_owned(), Value::Array(identity))]);
    let architecture = GENERAL.to_owned();
    let metadata = Metadata { architecture, config, name, provenance, ..Metadata::default() };
    File::from_bytes(writer.finish(&metadata)?.into_inner())
}

impl Engine for General {
    fn outline(&self) -> Outline {
        self.outline.clone()
    }

    fn note(&self) -> String {
        self.note.clone()
    }

    fn read(&self, ids: &[u32], segments: &[u32], head: bool) -> Result<Rows> {
        text::read(self, ids, segments, head)
    }

    fn write(&self, ids: &[u32], memory: Option<&Rows>) -> Result<Rows> {
        text::write(self, ids, memory)
    }

    fn inputs(&self) -> Vec<Port> {
        self.main.inputs.clone()
    }

    fn outputs(&self) -> Vec<Port> {
        self.main.outputs.clone()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        self.main.run(inputs)
    }
}
