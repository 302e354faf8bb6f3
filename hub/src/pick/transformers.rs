//! Folders of Transformers and sentence-transformers: weights in safetensors, and the files that describe them.

use siskin_format::Result;

use super::{PickedFiles, ambiguous};

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files beside the weights that change what the model does.
const DESCRIPTIONS: [&str; 14] = [
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "modules.json",
    "preprocessor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
];
/// The same, with other endings: vocabularies, and the configurations of layers in folders of their own.
const DESCRIPTION_ENDINGS: [&str; 3] = [".model", "vocab.txt", "/config.json"];

/// Picks the weights of a folder and what describes them; `None` without a configuration or weights.
pub(super) fn folder(paths: &[String]) -> Result<Option<PickedFiles>> {
    let has = |name: &str| paths.iter().any(|path| path == name);
    let at_root = |path: &&String| path.ends_with(".safetensors") && !path.contains('/');
    let all: Vec<&String> = paths.iter().filter(at_root).collect();
    if all.is_empty() || !has("config.json") {
        return Ok(None);
    }
    let mut weights: Vec<&String> = all.iter().copied().filter(|path| is_shard(path)).collect();
    let is_sharded = has(INDEX) && !weights.is_empty();
    if !is_sharded {
        weights = match all.as_slice() {
            [one] => vec![one],
            several => several.iter().copied().filter(|path| *path == WEIGHTS).collect(),
        };
    }
    if weights.is_empty() {
        return Err(ambiguous(&all));
    }
    let is_part = |path: &&String| {
        weights.contains(path) || is_sharded && *path == INDEX || describes(path) || is_layer(path)
    };
    Ok(Some(PickedFiles::Folder(paths.iter().filter(is_part).cloned().collect())))
}

/// Returns true for the files that describe a model, by their path in its folder.
pub(super) fn describes(path: &str) -> bool {
    DESCRIPTIONS.contains(&path) || DESCRIPTION_ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// Returns true for the weights that the index of a sharded model names.
fn is_shard(path: &str) -> bool {
    let middle = path.strip_prefix("model-").and_then(|path| path.strip_suffix(".safetensors"));
    middle.is_some_and(|middle| middle.contains("-of-"))
}

/// Returns true for the weights of a layer of sentence-transformers, such as those of `2_Dense`.
fn is_layer(path: &str) -> bool {
    let folder = path.strip_suffix(WEIGHTS).and_then(|folder| folder.strip_suffix('/'));
    folder.is_some_and(|folder| folder.starts_with(|c: char| c.is_ascii_digit()) && !folder.contains('/'))
}
