//! The files of an ONNX model: one or two graphs, external data files, and the folder that describes the model.

use super::tensor::{OnnxTensor, TensorData};
use crate::import::map::map;
use siskin_format::file::Bytes;
use siskin_format::{Error, Result};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// The part of the model that a graph computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphRole {
    /// The whole model.
    Whole,
    /// The encoder.
    Encoder,
    /// The decoder.
    Decoder,
}

impl GraphRole {
    /// Returns the name of the graph's module in the whole model.
    pub(super) fn module(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Encoder => Some("encoder"),
            Self::Decoder => Some("decoder"),
        }
    }
}

const WHOLE: &str = "model.onnx";
const ENCODER: &str = "encoder_model.onnx";
/// The decoder files that exporters write, the simplest first: the others only add a KV cache.
const DECODERS: &[&str] = &["decoder_model.onnx", "decoder_model_merged.onnx"];
/// The subfolder of graphs next to the original weights.
const WITHIN: &str = "onnx";
/// Extensions of files that can change the model.
const EXTENSIONS: &[&str] =
    &["onnx", "onnx_data", "data", "bin", "weight", "weights", "json", "jinja", "model", "txt"];

/// The locations of a model's files.
#[derive(Clone, Debug)]
pub struct OnnxFolder {
    /// The folder with `config.json`, `tokenizer.json` and the like.
    pub home: PathBuf,
    /// The graphs.
    pub graphs: Vec<(GraphRole, PathBuf)>,
}

impl OnnxFolder {
    /// Finds the model at `path`, a file or a folder, or returns `None`. A folder that holds the weights that the
    /// graphs were exported from is not an ONNX folder.
    pub fn find(path: &Path) -> Option<Self> {
        if path.is_file() {
            return Self::of_file(path);
        }
        if ["model.safetensors", "model.safetensors.index.json"].iter().any(|name| path.join(name).is_file())
        {
            return None;
        }
        let graphs = [path.to_owned(), path.join(WITHIN)].iter().find_map(|folder| graphs(folder))?;
        Some(Self { home: home(path), graphs })
    }

    fn of_file(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let folder = path.parent()?;
        if !ends_with(path, &["onnx"]) {
            return None;
        }
        let part = name == ENCODER || DECODERS.contains(&name);
        let pair = if part { graphs(folder).filter(|graphs| graphs.len() == 2) } else { None };
        let graphs = pair.unwrap_or_else(|| vec![(GraphRole::Whole, path.to_owned())]);
        Some(Self { home: home(folder), graphs })
    }

    /// Returns every file that is part of the model's identity.
    pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
        let Some(found) = Self::find(path) else { return Ok(Vec::new()) };
        let mut folders = vec![found.home.clone()];
        folders.extend(found.graphs.iter().filter_map(|(_, graph)| Some(graph.parent()?.to_owned())));
        folders.sort_unstable();
        folders.dedup();
        let mut files = Vec::new();
        for folder in folders {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            let io = |error: std::io::Error| Error::io(folder.display().to_string(), &error);
            for entry in std::fs::read_dir(folder).map_err(io)? {
                let file = entry.map_err(io)?.path();
                if (ends_with(&file, EXTENSIONS) || is_tensor(&file)) && file.is_file() {
                    files.push(file);
                }
            }
        }
        files.sort_unstable();
        Ok(files)
    }
}

/// Returns true if the file may hold one tensor's external data: exporters name such files like the tensor, often
/// without an extension.
fn is_tensor(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    !name.starts_with('.') && (path.extension().is_none() || name.starts_with("onnx__"))
}

/// Returns the folder that describes the model whose graphs are in `folder`.
fn home(folder: &Path) -> PathBuf {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == WITHIN));
    match above {
        Some(above) if !folder.join("config.json").is_file() && above.join("config.json").is_file() => {
            above.to_owned()
        }
        _ => folder.to_owned(),
    }
}

/// Returns the graphs in a folder.
fn graphs(folder: &Path) -> Option<Vec<(GraphRole, PathBuf)>> {
    let there = |name: &str| Some(folder.join(name)).filter(|file| file.is_file());
    if let Some(whole) = there(WHOLE) {
        return Some(vec![(GraphRole::Whole, whole)]);
    }
    let decoder = DECODERS.iter().find_map(|name| there(name));
    match (there(ENCODER), decoder) {
        (Some(encoder), Some(decoder)) => {
            return Some(vec![(GraphRole::Encoder, encoder), (GraphRole::Decoder, decoder)]);
        }
        (None, Some(decoder)) => return Some(vec![(GraphRole::Whole, decoder)]),
        _ => {}
    }
    let entries = std::fs::read_dir(folder).ok()?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = files.filter(|file| ends_with(file, &["onnx"]) && file.is_file());
    match (files.next(), files.next()) {
        (Some(only), None) => Some(vec![(GraphRole::Whole, only)]),
        _ => None,
    }
}

/// Returns true if the file has one of these extensions, ignoring case.
fn ends_with(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| endings.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// A graph's file and its external data files. Each is mapped once.
pub struct ExternalData {
    /// The file.
    pub bytes: Bytes,
    folder: PathBuf,
    beside: HashMap<String, Bytes>,
}

impl ExternalData {
    /// Maps the graph at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { bytes: map(path)?, folder, beside: HashMap::new() })
    }

    /// Wraps a graph in memory. External data files must be in `folder`.
    pub fn of_bytes(bytes: Bytes, folder: &Path) -> Self {
        Self { bytes, folder: folder.to_owned(), beside: HashMap::new() }
    }

    /// Returns the data of a tensor of this graph, as a view into the file where possible.
    pub fn data(&mut self, tensor: &OnnxTensor<'_>) -> Result<Bytes> {
        match &tensor.data {
            TensorData::Here(Cow::Owned(data)) => Ok(Bytes::new(data.clone())),
            TensorData::Here(Cow::Borrowed(data)) => {
                let start = (data.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize);
                let inside = start.and_then(|start| self.bytes.slice(start..start.checked_add(data.len())?));
                // Data parsed from another copy of the file is copied.
                let same = inside.filter(|inside| inside.as_ptr() == data.as_ptr());
                Ok(same.unwrap_or_else(|| Bytes::new(data.to_vec())))
            }
            &TensorData::Beside { location, offset, length } => {
                let wanted = tensor.bytes()?;
                let place = || format!("{}: external_data", super::model::short(tensor.name));
                if length.is_some_and(|length| length != wanted) {
                    return Err(Error::corrupt(place(), "the length does not match the type and shape"));
                }
                let file = self.file(location).map_err(|error| error.within(&place()))?;
                let range = usize::try_from(offset).ok().zip(usize::try_from(wanted).ok());
                let range = range.and_then(|(start, length)| Some(start..start.checked_add(length)?));
                range.and_then(|range| file.slice(range)).ok_or_else(|| {
                    let message = format!(
                        "needs {wanted} bytes at offset {offset} of `{}`, which has {}; is it complete?",
                        super::model::short(location),
                        file.len()
                    );
                    Error::corrupt(place(), message)
                })
            }
        }
    }

    /// Maps an external data file, which must be within the graph's folder.
    fn file(&mut self, location: &str) -> Result<Bytes> {
        if let Some(known) = self.beside.get(location) {
            return Ok(known.clone());
        }
        let path = Path::new(location);
        let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
        if !path.components().all(plain) || location.contains('\\') || location.contains('\0') {
            let message = format!("`{}` is not within the model's folder", super::model::short(location));
            return Err(Error::corrupt("location", message));
        }
        let path = self.folder.join(path);
        if !path.is_file() {
            let message = format!(
                "the file `{}` is missing from the folder of the graph",
                super::model::short(location)
            );
            return Err(Error::new(siskin_format::ErrorKind::Missing, "location", message));
        }
        let file = map(&path)?;
        self.beside.insert(location.to_owned(), file.clone());
        Ok(file)
    }
}
