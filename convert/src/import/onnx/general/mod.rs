//! ONNX models that run as is, through tract: text in and rows out if the names of inputs and outputs are those of a
//! language model, otherwise tensors by name.

mod graph;
mod proto;
mod text;

use super::embedding_settings::add_embedding_settings;
use super::{ExternalData, FORMAT, GraphRole, OnnxFolder, OnnxModel};
use crate::cache;
use crate::import::hugging_face;
use graph::GeneralGraph;
pub(super) use graph::TRACT;
use serde_json::{Map, Value};
use siskin_backend::external_model::{
    ExternalModel, ExternalModelInterface, GENERAL, NamedTensor, OutputMatrix, PortInfo,
};
use siskin_format::file::{Bytes, File, FileWriter, Metadata, SectionKind};
use siskin_format::{Error, Result};
use siskin_graph::arch::ConfigReader;
use std::path::Path;

/// A model that runs through tract.
pub struct General {
    encoder: Option<GeneralGraph>,
    /// The decoder, or the whole model.
    main: GeneralGraph,
    outline: ExternalModelInterface,
    note: String,
    /// The location for errors; empty for a model in memory.
    location: String,
}

impl General {
    /// Opens the model at `path`. `reason` is why it is not recognized as a known family.
    pub(crate) fn open(path: &Path, reason: &str) -> Result<(Self, File)> {
        let within = |error: Error| error.within(&path.display().to_string());
        let folder = OnnxFolder::find(path).ok_or_else(|| {
            Error::new(
                siskin_format::ErrorKind::Missing,
                path.display().to_string(),
                "no ONNX graph in this folder",
            )
        })?;
        let mut parts = Vec::new();
        let mut config = hugging_face::plain_config(&folder.home).map_err(within)?.unwrap_or_default();
        hugging_face::add_settings(&folder.home, &mut config).map_err(within)?;
        let identity = cache::identity(path, &FORMAT, None)?;
        for (side, file) in &folder.graphs {
            let mut store = ExternalData::open(file)?;
            let bytes = store.bytes.clone();
            let model = OnnxModel::parse(&bytes).map_err(within)?;
            add_embedding_settings(&model, &mut config).map_err(within)?;
            parts.push((*side, GeneralGraph::new(&model, &mut store).map_err(within)?));
        }
        let mut general = Self::new(parts, &config, reason).map_err(within)?;
        general.location = path.display().to_string();
        Ok((general, stand_in(&folder.home, config, identity).map_err(within)?))
    }

    /// Builds a model from these graphs.
    pub(super) fn of_parts(
        models: &[OnnxModel<'_>],
        stores: &mut [(GraphRole, ExternalData)],
        config: &Map<String, Value>,
    ) -> Result<Self> {
        let parts = models
            .iter()
            .zip(stores)
            .map(|(model, (side, store))| Ok((*side, GeneralGraph::new(model, store)?)));
        Self::new(parts.collect::<Result<_>>()?, config, "")
    }

    /// Builds a model from one graph in memory. External data files are looked up in `folder`.
    pub fn of_bytes(bytes: Vec<u8>, folder: &Path) -> Result<Self> {
        let bytes = Bytes::new(bytes);
        let model = OnnxModel::parse(&bytes)?;
        let runner = GeneralGraph::new(&model, &mut ExternalData::of_bytes(bytes.clone(), folder))?;
        Self::new(vec![(GraphRole::Whole, runner)], &Map::new(), "it has no configuration")
    }

    fn new(parts: Vec<(GraphRole, GeneralGraph)>, config: &Map<String, Value>, reason: &str) -> Result<Self> {
        let (mut encoder, mut main) = (None, None);
        for (side, runner) in parts {
            match side {
                GraphRole::Encoder => encoder = Some(runner),
                GraphRole::Whole | GraphRole::Decoder => main = Some(runner),
            }
        }
        let main = main.ok_or_else(|| Error::unsupported("graph", "no graph has outputs"))?;
        let note = format!(
            "runs as a general graph through tract: not packed, slower, and with more memory ({reason})"
        );
        let mut general =
            Self { encoder, main, outline: ExternalModelInterface::default(), note, location: String::new() };
        general.outline = text::outline(&general, &ConfigReader::new(config.clone()))?;
        Ok(general)
    }

    /// Adds the model's location to an error.
    fn placed<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| if self.location.is_empty() { error } else { error.within(&self.location) })
    }

    /// Encodes a text, padded to `length` tokens that the attention mask hides, and returns the rows of its own tokens.
    /// Returns `None` if the graph has no attention mask, which padding requires.
    pub(super) fn read_padded(
        &self,
        ids: &[u32],
        token_types: &[u32],
        head: bool,
        length: usize,
    ) -> Result<Option<OutputMatrix>> {
        let reader = self.encoder.as_ref().unwrap_or(&self.main);
        match reader.takes("attention_mask") && !reader.takes("decoder_input_ids") {
            true => text::read(self, ids, token_types, head, length).map(Some),
            false => Ok(None),
        }
    }
}

/// Creates a packed file without tensors that carries the model's metadata.
fn stand_in(home: &Path, config: Map<String, Value>, identity: Value) -> Result<File> {
    let name = config.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.map(str::to_owned);
    let mut writer = FileWriter::new(std::io::Cursor::new(Vec::new()))?;
    if let Some(tokenizer) = hugging_face::tokenizer(home, &[])? {
        writer.section(SectionKind::Tokenizer, &tokenizer)?;
    }
    if let Some(template) = hugging_face::read_template(home)? {
        writer.section(SectionKind::Template, template.as_bytes())?;
    }
    let provenance = Map::from_iter([("files".to_owned(), identity)]);
    let architecture = GENERAL.to_owned();
    let metadata = Metadata { architecture, config, name, provenance, ..Metadata::default() };
    File::from_bytes(writer.finish(&metadata)?.into_inner())
}

impl ExternalModel for General {
    fn interface(&self) -> ExternalModelInterface {
        self.outline.clone()
    }

    fn note(&self) -> String {
        self.note.clone()
    }

    fn encode(&self, ids: &[u32], token_types: &[u32], head: bool) -> Result<OutputMatrix> {
        self.placed(text::read(self, ids, token_types, head, ids.len()))
    }

    fn decode(&self, ids: &[u32], memory: Option<&OutputMatrix>) -> Result<OutputMatrix> {
        self.placed(text::write(self, ids, memory))
    }

    fn inputs(&self) -> Vec<PortInfo> {
        self.main.inputs.clone()
    }

    fn outputs(&self) -> Vec<PortInfo> {
        self.main.outputs.clone()
    }

    fn run(&self, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
        self.placed(self.main.run(inputs))
    }
}
