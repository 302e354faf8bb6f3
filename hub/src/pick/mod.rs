//! Which files of a repository are the model.

mod gguf;
mod onnx;
mod transformers;

use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};

/// Files that would run code when they are read.
const PICKLES: [&str; 5] = [".bin", ".pt", ".pth", ".ckpt", ".pkl"];

/// The files of a model, in order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PickedFiles {
    /// A file, followed by the others that belong to it: those that it is split into, or that are read with it.
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
            return Ok(PickedFiles::File(with_companions(paths, wanted)));
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
        return gguf::preferred(paths);
    }
    if let Some(folder) = transformers::folder(paths)? {
        return Ok(folder);
    }
    let graph = match of_extension(".onnx").as_slice() {
        [] => return Err(without_model(paths)),
        [one] => one,
        several => onnx::preferred(paths).ok_or_else(|| ambiguous(several))?,
    };
    Ok(PickedFiles::File(with_companions(paths, graph)))
}

/// Returns a file, followed by the others without which it is not a model.
fn with_companions(paths: &[String], path: &str) -> Vec<String> {
    match path.ends_with(".onnx") {
        true => onnx::with_companions(paths, path),
        false => gguf::with_parts(paths, path),
    }
}

/// Picks by the type in the name of a file.
fn of_type(paths: &[String], wanted: &str) -> Result<PickedFiles> {
    let is_model = |path: &&String| [".gguf", ".siskin"].iter().any(|extension| path.ends_with(extension));
    let found: Vec<&String> = paths
        .iter()
        .filter(is_model)
        .filter(|path| gguf::is_first_part(path) && !gguf::is_projector(path) && gguf::has_type(path, wanted))
        .collect();
    match found.as_slice() {
        [one] => Ok(PickedFiles::File(gguf::with_parts(paths, one))),
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
            (&["onnx/model.onnx", "onnx/model_int8.onnx"], None, &["onnx/model.onnx"]),
        ] {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            assert_eq!(picked(paths, wanted), Ok(files), "{paths:?} {wanted:?}");
        }
    }

    #[test]
    fn folders_have_their_weights_alone() {
        let sharded = [
            "adapter_model.safetensors",
            "config.json",
            "consolidated.safetensors",
            "flax_model.msgpack",
            "fp16/model.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
        ];
        let shards = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
        ];
        let whole = [
            "adapter_model.safetensors",
            "chat_template.json",
            "config.json",
            "consolidated.safetensors",
            "model.safetensors",
            "pytorch_model.bin",
        ];
        // An index without the shards that it could name.
        let stale = ["config.json", "model.safetensors", "model.safetensors.index.json", "x.safetensors"];
        let layers = ["2_Dense/config.json", "2_Dense/model.safetensors", "config.json", "model.safetensors"];
        let only = ["config.json", "weights.safetensors", "onnx/model.onnx"];
        for (paths, files) in [
            (&sharded[..], &shards[..]),
            (&whole, &["chat_template.json", "config.json", "model.safetensors"]),
            (&stale, &["config.json", "model.safetensors"]),
            (&layers, &layers),
            (&only, &["config.json", "weights.safetensors"]),
        ] {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            assert_eq!(picked(paths, None), Ok(files), "{paths:?}");
        }
    }

    #[test]
    fn graphs_come_with_what_is_read_with_them() {
        let sentences = [
            "1_Pooling/config.json",
            "README.md",
            "config.json",
            "model.safetensors",
            "modules.json",
            "onnx/model.onnx",
            "onnx/model.onnx_data",
            "onnx/model.onnx_data_1",
            "onnx/model_int8.onnx",
            "onnx/model_int8.onnx.data",
            "tokenizer.json",
        ];
        let pair = [
            "config.json",
            "onnx/config.json",
            "onnx/decoder_model.onnx",
            "onnx/decoder_model.onnx_data",
            "onnx/decoder_model_merged.onnx",
            "onnx/encoder_model.onnx",
            "onnx/tokenizer.json",
        ];
        let bare = ["a/b.onnx", "a/b.onnx.data", "a/c.onnx", "config.json", "x/b.onnx.data"];
        for (paths, wanted, files) in [
            (
                &sentences[..],
                Some("onnx/model.onnx"),
                &[
                    "onnx/model.onnx",
                    "1_Pooling/config.json",
                    "config.json",
                    "modules.json",
                    "onnx/model.onnx_data",
                    "onnx/model.onnx_data_1",
                    "tokenizer.json",
                ][..],
            ),
            (
                &sentences,
                Some("onnx/model_int8.onnx"),
                &[
                    "onnx/model_int8.onnx",
                    "1_Pooling/config.json",
                    "config.json",
                    "modules.json",
                    "onnx/model_int8.onnx.data",
                    "tokenizer.json",
                ],
            ),
            (
                &pair,
                None,
                &[
                    "onnx/encoder_model.onnx",
                    "onnx/config.json",
                    "onnx/decoder_model.onnx",
                    "onnx/decoder_model.onnx_data",
                    "onnx/tokenizer.json",
                ],
            ),
            (
                &pair,
                Some("onnx/decoder_model.onnx"),
                &[
                    "onnx/decoder_model.onnx",
                    "onnx/config.json",
                    "onnx/decoder_model.onnx_data",
                    "onnx/encoder_model.onnx",
                    "onnx/tokenizer.json",
                ],
            ),
            (&bare, Some("a/b.onnx"), &["a/b.onnx", "a/b.onnx.data"]),
            (&["config.json", "a.onnx"], None, &["a.onnx", "config.json"]),
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
            (
                &["config.json", "x.safetensors", "y.safetensors"],
                None,
                "these files or its type behind a colon: x.safetensors, y.safetensors",
            ),
            (&["a-q4_k_m.gguf"], Some("q4_k"), "no such file or type; there are a-q4_k_m.gguf"),
            (&["config.json", "pytorch_model.bin"], None, "pickles"),
            (&["README.md"], None, "there is no .siskin"),
        ] {
            let error = picked(paths, wanted).unwrap_err();
            assert!(error.contains(message), "{paths:?}: {error}");
        }
    }
}
