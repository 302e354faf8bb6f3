//! Small models with a tokenizer of bytes and a chat template, packed from those of `tests/data`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use siskin::{Error, Result};
use siskin_convert::{PackOptions, pack_file};

use crate::paths;

/// What a model is made of.
pub struct ChatModel<'a> {
    /// The folder of its weights and configuration in `tests/data`.
    pub source: &'a str,
    /// Its `tokenizer.json`.
    pub tokenizer: Value,
    /// Its chat template.
    pub template: Option<&'a str>,
    /// Its maximum length in tokens, if not that of the source.
    pub max_positions: Option<usize>,
}

/// Packs a model to `FOLDER/NAME.siskin`.
pub fn pack(folder: &Path, name: &str, model: &ChatModel<'_>) -> Result<PathBuf> {
    let ChatModel { source, tokenizer, template, max_positions } = model;
    let io = |error: std::io::Error| Error::io(folder.display().to_string(), &error);
    let target = folder.join(name);
    std::fs::create_dir_all(&target).map_err(io)?;
    let source = paths::data(source);
    std::fs::copy(source.join("model.safetensors"), target.join("model.safetensors")).map_err(io)?;
    let mut config = std::fs::read_to_string(source.join("config.json")).map_err(io)?;
    if let Some(max) = max_positions {
        let mut fields: Value = serde_json::from_str(&config)
            .map_err(|error| Error::corrupt("config.json", error.to_string()))?;
        fields["max_position_embeddings"] = (*max).into();
        config = fields.to_string();
    }
    std::fs::write(target.join("config.json"), config).map_err(io)?;
    let config = json!({ "chat_template": template });
    std::fs::write(target.join("tokenizer_config.json"), config.to_string()).map_err(io)?;
    std::fs::write(target.join("tokenizer.json"), tokenizer.to_string()).map_err(io)?;
    let packed = folder.join(format!("{name}.siskin"));
    pack_file(&target, &packed, &PackOptions::default())?;
    Ok(packed)
}

/// Builds a tokenizer with one token per byte, so that characters span tokens. The first ids are `special` tokens instead.
pub fn byte_tokenizer(special: &[&str]) -> Value {
    // GPT-2's byte-to-Unicode alphabet: unprintable bytes are mapped to characters after the others.
    let seen =
        |byte: u32| (33..=126).contains(&byte) || (161..=172).contains(&byte) || (174..=255).contains(&byte);
    let mut vocabulary = Map::new();
    let mut hidden = 256;
    for byte in 0..256_u32 {
        let character = if seen(byte) { byte } else { hidden };
        hidden += u32::from(!seen(byte));
        if byte as usize >= special.len() {
            vocabulary.insert(char::from_u32(character).unwrap_or_default().to_string(), byte.into());
        }
    }
    let added = |(id, text): (usize, &&str)| {
        json!({
            "id": id, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false
        })
    };
    let added: Vec<Value> = special.iter().enumerate().map(added).collect();
    let level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "vocab": vocabulary, "merges": []
        }
    })
}
