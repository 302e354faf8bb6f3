//! An ONNX model as a source, if it is recognized as an export of a known family.

use super::embedding_settings::add_embedding_settings;
use super::{ExternalData, GraphRole, OnnxFolder, OnnxModel, OnnxTensor, TensorOrder, recover, weights};
use crate::import::hugging_face::{self, HuggingFace};
use crate::import::{ModelSource, SourceFormat, names, safetensors};
use serde_json::{Map, Value};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::{FamilyDescriptor, TensorTransform};
use std::collections::{HashMap, HashSet};
use std::path::Path;

pub(in crate::import) static FORMAT: SourceFormat = SourceFormat {
    name: "ONNX model",
    detect: |path| OnnxFolder::find(path).is_some(),
    files: OnnxFolder::files,
    open: |path| match open(path)? {
        Opened::Recognized(source) => Ok(source),
        Opened::General(reason) => {
            let message = format!(
                "not recognized as a model of a known family ({reason}), so it cannot be packed; run the \
                 file directly, without conversion"
            );
            Err(Error::unsupported(path.display().to_string(), message))
        }
    },
};

/// Returns true if the path is an ONNX model.
#[cfg(feature = "tract")]
pub(crate) fn is_there(path: &Path) -> bool {
    crate::import::format_of(path).is_ok_and(|format| std::ptr::eq(format, &FORMAT))
}

/// Returns the source. If the model is not recognized, returns an error and sets `general` to the reason.
#[cfg(feature = "tract")]
pub(crate) fn source_or(path: &Path, general: &mut Option<String>) -> Result<Box<dyn ModelSource>> {
    match open(path)? {
        Opened::Recognized(source) => Ok(source),
        Opened::General(reason) => {
            *general = Some(reason);
            Err(Error::unsupported(path.display().to_string(), "not recognized"))
        }
    }
}

/// The result of opening an ONNX model.
enum Opened {
    /// An export of a known family, with its tensors under our names.
    Recognized(Box<dyn ModelSource>),
    /// An unrecognized model, and the reason.
    General(String),
}

/// Opens the model at `path` and tries to recognize it.
fn open(path: &Path) -> Result<Opened> {
    let within = |error: Error| error.within(&path.display().to_string());
    let folder = OnnxFolder::find(path).ok_or_else(|| {
        Error::new(ErrorKind::Missing, path.display().to_string(), "no ONNX graph in this folder")
    })?;
    let mut stores = Vec::new();
    for (side, file) in &folder.graphs {
        stores.push((*side, ExternalData::open(file)?));
    }
    let files: Vec<_> = stores.iter().map(|(_, store)| store.bytes.clone()).collect();
    let mut models = Vec::new();
    for (bytes, (_, file)) in files.iter().zip(&folder.graphs) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        models.push(OnnxModel::parse(bytes).map_err(|error| within(error.within(&name)))?);
    }
    let mut described = match hugging_face::describe(&folder.home) {
        Ok(described) => described,
        Err(error) => return Ok(Opened::General(error.to_string())),
    };
    models.iter().try_for_each(|model| add_embedding_settings(model, &mut described.1)).map_err(within)?;
    let source = match recognize(&folder, &models, &mut stores, described) {
        Ok(source) => source,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Err(within(error)),
        Err(error) => return Ok(Opened::General(error.to_string())),
    };
    prove(&models, &mut stores, source).map_err(within)
}

/// Returns the source if the graph computes the same as the family's graph with these tensors.
#[cfg(feature = "tract")]
fn prove(
    models: &[OnnxModel<'_>],
    stores: &mut [(GraphRole, ExternalData)],
    source: HuggingFace,
) -> Result<Opened> {
    use super::verify::{Proof, prove};
    match prove(models, stores, &source)? {
        Proof::Same => Ok(Opened::Recognized(Box::new(source))),
        Proof::Other(reason) => Ok(Opened::General(reason)),
        Proof::Impossible(reason) => match nothing_left(models, stores, &source) {
            Ok(()) => Ok(Opened::Recognized(Box::new(source))),
            Err(error) => {
                Ok(Opened::General(format!("{error}; the graphs were not compared, because {reason}")))
            }
        },
    }
}

/// Returns the source if it contains every matrix of the graph.
#[cfg(not(feature = "tract"))]
fn prove(
    models: &[OnnxModel<'_>],
    stores: &mut [(GraphRole, ExternalData)],
    source: HuggingFace,
) -> Result<Opened> {
    match nothing_left(models, stores, &source) {
        Ok(()) => Ok(Opened::Recognized(Box::new(source))),
        Err(error) => Ok(Opened::General(error.to_string())),
    }
}

/// Converts the tensors of the graphs to those of a Hugging Face model. Returns an error if one is missing.
fn recognize(
    folder: &OnnxFolder,
    models: &[OnnxModel<'_>],
    stores: &mut [(GraphRole, ExternalData)],
    (descriptor, mut config): (&'static FamilyDescriptor, Map<String, Value>),
) -> Result<HuggingFace> {
    let (mut tensors, mut transposed) = (HashMap::new(), HashSet::new());
    for (model, (side, store)) in models.iter().zip(stores) {
        let mut found: Vec<_> = recover(&model.graph).into_iter().collect();
        found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (name, named) in found {
            let Some((name, take)) = known_name(descriptor, &name, *side) else { continue };
            let name = names::bare(&name).to_owned();
            let Some(tensor) = floats(named.tensor, store)? else { continue };
            if is_transposed(named.order, take) && tensor.shape.len() == 2 {
                transposed.insert(name.clone());
            }
            tensors.entry(name).or_insert(tensor);
        }
    }
    if !config.contains_key("tie_word_embeddings") && is_tied(descriptor, &tensors, &transposed) {
        config.insert("tie_word_embeddings".to_owned(), true.into());
    }
    let source = HuggingFace::new(&folder.home, descriptor, config, tensors, transposed)?;
    source.check_token_types()?;
    let (_, graphs) = descriptor.family.build(source.config(), &|name| source.has(name))?;
    graphs.weights().iter().try_for_each(|weight| source.tensor(&weight.name).map(drop))?;
    Ok(source)
}

/// Maximum number of nested wrapper modules that an exporter may add.
const MAX_WRAPPERS: usize = 3;

/// Returns the family's name of a tensor of one side, and its transform.
fn known_name(
    descriptor: &FamilyDescriptor,
    name: &str,
    side: GraphRole,
) -> Option<(String, TensorTransform)> {
    let wrapped = std::iter::successors(Some(name), |name| name.split_once('.').map(|(_, rest)| rest));
    let mut known = Vec::new();
    for name in wrapped.take(1 + MAX_WRAPPERS) {
        known.push(name.to_owned());
        known.extend(side.module().map(|module| format!("{module}.{}", names::bare(name))));
    }
    let endings = descriptor.onnx.endings.iter().filter(|(ending, _)| name.ends_with(ending));
    known.extend(endings.map(|(_, shared)| (*shared).to_owned()));
    known.into_iter().find_map(|name| {
        let take = names::take_of(descriptor.hugging_face.rules, &name)?;
        Some((name, take))
    })
}

/// Returns true if the tensor is transposed relative to the Hugging Face model.
fn is_transposed(stored: TensorOrder, expected: TensorTransform) -> bool {
    match stored {
        TensorOrder::AsNamed { transposed } => transposed,
        TensorOrder::InputsFirst => expected != TensorTransform::Transposed,
        TensorOrder::OutputsFirst => expected == TensorTransform::Transposed,
    }
}

/// Returns a float tensor in safetensors form, or `None` for other types.
fn floats(
    tensor: &OnnxTensor<'_>,
    store: &mut ExternalData,
) -> Result<Option<safetensors::SafetensorsTensor>> {
    let dtype = tensor.type_name();
    if !matches!(dtype, "F32" | "F16" | "BF16") {
        return Ok(None);
    }
    let data = store.data(tensor)?;
    Ok(Some(safetensors::SafetensorsTensor { dtype, shape: tensor.shape.clone(), data }))
}

/// Returns true if the LM head is a copy of the token embeddings, as exporters write it for tied embeddings.
fn is_tied(
    descriptor: &FamilyDescriptor,
    tensors: &HashMap<String, safetensors::SafetensorsTensor>,
    transposed: &HashSet<String>,
) -> bool {
    let find = |name: &str| {
        let (source, _) = names::apply(descriptor.hugging_face.rules, name)?;
        let name = names::bare(&source);
        Some((tensors.get(name)?, transposed.contains(name)))
    };
    let (Some((table, turned)), Some((scores, other))) = (find("token_embd.weight"), find("output.weight"))
    else {
        return false;
    };
    if turned || !other || table.dtype != scores.dtype {
        return !turned && !other && table.data[..] == scores.data[..];
    }
    let (&[rows, columns], &[inputs, outputs]) = (&table.shape[..], &scores.shape[..]) else { return false };
    if (rows, columns) != (outputs, inputs) || rows == 0 || columns == 0 {
        return false;
    }
    let width = table.data.len() / (rows * columns).max(1) as usize;
    let (rows, columns) = (rows as usize, columns as usize);
    let (table, scores) = (&table.data[..], &scores.data[..]);
    (0..rows).all(|row| {
        (0..columns)
            .all(|column| at(table, row * columns + column, width) == at(scores, column * rows + row, width))
    })
}

fn at(data: &[u8], index: usize, width: usize) -> Option<&[u8]> {
    data.get(index * width..(index + 1) * width)
}

/// Returns an error if a matrix or table of the graphs is not part of the model.
fn nothing_left(
    models: &[OnnxModel<'_>],
    stores: &mut [(GraphRole, ExternalData)],
    source: &HuggingFace,
) -> Result<()> {
    let (_, graphs) = source.family().build(source.config(), &|name| source.has(name))?;
    let mut used = HashSet::new();
    for weight in graphs.weights() {
        let tensor = source.tensor(&weight.name)?;
        used.insert((tensor.data.as_ptr(), tensor.data.len()));
    }
    // Exporters write a tied LM head as a copy of the token embeddings.
    if let Some(tensor) = source.stored("output.weight") {
        used.insert((tensor.data.as_ptr(), tensor.data.len()));
    }
    let weights = models.iter().zip(stores).flat_map(|(model, (_, store))| {
        // Equal pointers mean equal tensors: each file is mapped once.
        weights(&model.graph).into_iter().map(|tensor| (tensor, store.data(tensor))).collect::<Vec<_>>()
    });
    for (tensor, data) in weights {
        let data = data?;
        if !used.contains(&(data.as_ptr(), data.len())) && !tensor.name.contains("pooler") {
            let message =
                format!("of shape {:?} is not a tensor of the family {}", tensor.shape, source.family().name);
            return Err(Error::unsupported(super::model::short(tensor.name), message));
        }
    }
    Ok(())
}
