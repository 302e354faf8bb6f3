//! Which files of a repository are the model.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};

/// The order in which types of GGUF files are taken if none is asked for: small, and close to the original.
const PREFERRED_TYPES: [&str; 3] = ["q4_k_m", "q4_0", "q8_0"];
/// Files beside the weights of a folder of Transformers or sentence-transformers that change what the model does.
const FOLDER_FILES: [&str; 14] = [
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "model.safetensors.index.json",
    "modules.json",
    "preprocessor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
];
/// The same, with other endings: vocabularies, and the layers of sentence-transformers in folders of their own.
const FOLDER_ENDINGS: [&str; 5] =
    [".model", "vocab.txt", "/config.json", "/model.safetensors", "spiece.model"];
/// Files that would run code when they are read.
const PICKLES: [&str; 5] = [".bin", ".pt", ".pth", ".ckpt", ".pkl"];

/// The files of a model, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PickedFiles {
    /// A file, followed by the others that it is split into.
    File(Vec<String>),
    /// The files of a folder.
    Folder(Vec<String>),
}

impl PickedFiles {
    pub(crate) fn paths(&self) -> &[String] {
        match self {
            Self::File(paths) | Self::Folder(paths) => paths,
        }
    }
}

/// Picks the model among the paths of a repository: `wanted` is a path or a type such as `q4_k_m`.
pub(crate) fn pick(paths: &[String], wanted: Option<&str>) -> Result<PickedFiles> {
    if let Some(wanted) = wanted {
        if paths.iter().any(|path| path == wanted) {
            return Ok(PickedFiles::File(with_parts(paths, wanted)));
        }
        return of_type(paths, wanted);
    }
    let of_extension =
        |extension: &str| paths.iter().filter(|path| path.ends_with(extension)).collect::<Vec<_>>();
    match of_extension(".siskin").as_slice() {
        [] => {}
        [one] => return Ok(PickedFiles::File(vec![(*one).clone()])),
        several => {
            let w4i = several.iter().find(|path| path.to_lowercase().contains("w4i"));
            return w4i
                .map(|path| PickedFiles::File(vec![(**path).clone()]))
                .ok_or_else(|| ambiguous(several));
        }
    }
    if !of_extension(".gguf").is_empty() {
        return preferred_gguf(paths);
    }
    if paths.iter().any(|path| is_weights(path)) && paths.iter().any(|path| path == "config.json") {
        let is_part = |path: &&String| {
            is_weights(path)
                || FOLDER_FILES.contains(&path.as_str())
                || FOLDER_ENDINGS.iter().any(|ending| path.ends_with(ending))
        };
        return Ok(PickedFiles::Folder(paths.iter().filter(is_part).cloned().collect()));
    }
    match of_extension(".onnx").as_slice() {
        [] => Err(without_model(paths)),
        [one] => Ok(PickedFiles::File(vec![(*one).clone()])),
        several => match several.iter().find(|path| path.as_str() == "onnx/model.onnx") {
            Some(path) => Ok(PickedFiles::File(vec![(**path).clone()])),
            None => Err(ambiguous(several)),
        },
    }
}

fn is_weights(path: &str) -> bool {
    path.ends_with(".safetensors") && !path.contains('/')
}

/// Picks by the type in the name of a file.
fn of_type(paths: &[String], wanted: &str) -> Result<PickedFiles> {
    let is_model = |path: &&String| [".gguf", ".siskin"].iter().any(|extension| path.ends_with(extension));
    let found: Vec<&String> = paths
        .iter()
        .filter(is_model)
        .filter(|path| is_first_part(path) && !is_projector(path) && has_type(path, wanted))
        .collect();
    match found.as_slice() {
        [one] => Ok(PickedFiles::File(with_parts(paths, one))),
        [] => {
            let all: Vec<&String> = paths.iter().filter(is_model).collect();
            let list = if all.is_empty() { String::new() } else { format!("; there are {}", listed(&all)) };
            Err(Error::new(
                ErrorKind::Missing,
                wanted,
                format!("the repository has no such file or type{list}"),
            ))
        }
        several => Err(ambiguous(several)),
    }
}

fn preferred_gguf(paths: &[String]) -> Result<PickedFiles> {
    let all: Vec<&String> = paths
        .iter()
        .filter(|path| path.ends_with(".gguf") && is_first_part(path) && !is_projector(path))
        .collect();
    if let [one] = all.as_slice() {
        return Ok(PickedFiles::File(with_parts(paths, one)));
    }
    for kind in PREFERRED_TYPES {
        let of_kind: Vec<&String> = all.iter().copied().filter(|path| has_type(path, kind)).collect();
        match of_kind.as_slice() {
            [] => {}
            [one] => return Ok(PickedFiles::File(with_parts(paths, one))),
            several => return Err(ambiguous(several)),
        }
    }
    Err(ambiguous(&all))
}

/// Returns true if a file's name has a type as one of its parts.
fn has_type(path: &str, kind: &str) -> bool {
    let (path, kind) = (path.to_lowercase(), kind.to_lowercase());
    let is_boundary = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    path.match_indices(&kind).any(|(at, _)| {
        is_boundary(path[..at].chars().next_back()) && is_boundary(path[at + kind.len()..].chars().next())
    })
}

/// Returns true for the image tower that multimodal models keep in a file of its own.
fn is_projector(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.to_lowercase().contains("mmproj"))
}

/// Returns the start of the name, the part and the number of parts of a file that is split.
fn parts_of(path: &str) -> Option<(&str, u32, u32)> {
    let (start, count) = path.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (start, part) = start.rsplit_once('-')?;
    (part.len() == 5 && count.len() == 5).then_some(())?;
    Some((start, part.parse().ok()?, count.parse().ok()?))
}

fn is_first_part(path: &str) -> bool {
    parts_of(path).is_none_or(|(_, part, _)| part == 1)
}

/// Returns a file and those that it is split into, in order.
fn with_parts(paths: &[String], path: &str) -> Vec<String> {
    let Some((start, _, count)) = parts_of(path) else { return vec![path.to_owned()] };
    let mut all: Vec<&String> = paths
        .iter()
        .filter(|other| parts_of(other).is_some_and(|(name, _, parts)| name == start && parts == count))
        .collect();
    all.sort_by_key(|other| parts_of(other).map(|(_, part, _)| part));
    all.into_iter().cloned().collect()
}

fn listed(paths: &[&String]) -> String {
    let names: Vec<&str> = paths.iter().map(|path| path.as_str()).collect();
    names.join(", ")
}

fn ambiguous(paths: &[&String]) -> Error {
    let message = format!("name one of these files or its type behind a colon: {}", listed(paths));
    Error::new(ErrorKind::Missing, "repository", message)
}

fn without_model(paths: &[String]) -> Error {
    let has_pickle = paths.iter().any(|path| PICKLES.iter().any(|extension| path.ends_with(extension)));
    let message = match has_pickle {
        true => "the weights are Python pickles, which run code when they are read; ask for safetensors",
        false => "there is no .siskin, .gguf, .safetensors or .onnx file",
    };
    Error::unsupported("repository", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(paths: &[&str], wanted: Option<&str>) -> std::result::Result<Vec<String>, String> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        match pick(&paths, wanted) {
            Ok(PickedFiles::File(files) | PickedFiles::Folder(files)) => Ok(files),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn files_are_picked_in_order_of_preference() {
        let gguf = ["README.md", "a-Q8_0.gguf", "a-Q4_K_M.gguf", "a-Q4_K_S.gguf", "mmproj-a-f16.gguf"];
        let parts = ["a-q4_0-00002-of-00002.gguf", "a-q4_0-00001-of-00002.gguf", "a-q8_0.gguf"];
        let folder = [
            "README.md",
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "pytorch_model.bin",
            "1_Pooling/config.json",
            "onnx/model.onnx",
            "vocab.txt",
            "training_args.bin",
        ];
        for (paths, wanted, files) in [
            (&gguf[..], None, &["a-Q4_K_M.gguf"][..]),
            (&gguf, Some("q8_0"), &["a-Q8_0.gguf"]),
            (&gguf, Some("Q4_K_S"), &["a-Q4_K_S.gguf"]),
            (&gguf, Some("mmproj-a-f16.gguf"), &["mmproj-a-f16.gguf"]),
            (&parts, None, &["a-q4_0-00001-of-00002.gguf", "a-q4_0-00002-of-00002.gguf"]),
            (&["a.gguf"], None, &["a.gguf"]),
            (&["a.gguf", "b.siskin"], None, &["b.siskin"]),
            (&["a-w8r.siskin", "a-w4i.siskin"], None, &["a-w4i.siskin"]),
            (
                &folder,
                None,
                &["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json", "vocab.txt"],
            ),
            (&folder, Some("onnx/model.onnx"), &["onnx/model.onnx"]),
            (&["onnx/model.onnx", "onnx/model_int8.onnx"], None, &["onnx/model.onnx"]),
        ] {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            assert_eq!(picked(paths, wanted), Ok(files), "{paths:?} {wanted:?}");
        }
    }

    #[test]
    fn what_cannot_be_picked_is_explained() {
        for (paths, wanted, message) in [
            (&["a-iq2_xs.gguf", "a-f16.gguf"][..], None, "a-iq2_xs.gguf, a-f16.gguf"),
            (&["a-q4_0.gguf", "b-q4_0.gguf"], None, "a-q4_0.gguf, b-q4_0.gguf"),
            (&["a-q4_k_m.gguf"], Some("q4_k"), "no such file or type; there are a-q4_k_m.gguf"),
            (&["config.json", "pytorch_model.bin"], None, "pickles"),
            (&["README.md"], None, "there is no .siskin"),
        ] {
            let error = picked(paths, wanted).unwrap_err();
            assert!(error.contains(message), "{paths:?}: {error}");
        }
    }
}
