//! Beam search results of Transformers on the small random models, from `tests/data/search`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use siskin::beam_search::{BeamEarlyStopping, FinishedHypothesis, SearchOptions};
use siskin::file::File;
use siskin::logits_processors::LogitsProcessorOptions;
use siskin_convert::{OpenOptions, PackedCache, open_any};

use crate::paths;

/// A source or prompt, search options, and the expected results.
#[derive(Debug)]
pub struct SearchCase {
    /// The folder of the model, in `tests/data`.
    pub model: String,
    /// Whether the model is an encoder–decoder and encodes the source.
    pub reads: bool,
    /// The search options; one beam is greedy decoding.
    pub options: SearchOptions,
    /// The source or prompt.
    pub source: Vec<u32>,
    /// The forced prefix, after the model's own start tokens.
    pub prefix: Vec<u32>,
    /// The generated sequences; greedy ones have no score.
    pub found: Vec<FinishedHypothesis>,
}

/// Reads the cases of a file.
///
/// # Panics
/// If it is missing or corrupt: it is part of the repository.
pub fn cases(name: &str) -> Vec<SearchCase> {
    let bytes = std::fs::read(paths::data("search").join(name)).expect("the cases are there");
    let all: Vec<Value> = serde_json::from_slice(&bytes).expect("the cases are JSON");
    all.iter().map(case).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().expect("an id") as u32;
    match value {
        Value::Array(list) => list.iter().map(id).collect(),
        Value::Null => Vec::new(),
        one => vec![id(one)],
    }
}

fn case(case: &Value) -> SearchCase {
    let options = &case["options"];
    let count = |key: &str, usual: u64| options[key].as_u64().unwrap_or(usual) as usize;
    let number = |key: &str, usual: f64| options[key].as_f64().unwrap_or(usual) as f32;
    let rules = LogitsProcessorOptions {
        eos_token_ids: ids(&options["eos_token_id"]),
        repetition_penalty: number("repetition_penalty", 1.0),
        no_repeat_ngram_size: count("no_repeat_ngram_size", 0),
        encoder_no_repeat_ngram_size: count("encoder_no_repeat_ngram_size", 0),
        bad_words: options["bad_words_ids"]
            .as_array()
            .map(|all| all.iter().map(ids).collect())
            .unwrap_or_default(),
        min_length: count("min_length", 0),
        min_tokens: count("min_new_tokens", 0),
        forced_bos_token_id: ids(&options["forced_bos_token_id"]).first().copied(),
        forced_eos_token_ids: ids(&options["forced_eos_token_id"]),
        suppress: ids(&options["suppress_tokens"]),
        suppress_first: ids(&options["begin_suppress_tokens"]),
    };
    let early = match &options["early_stopping"] {
        Value::Bool(true) => BeamEarlyStopping::Full,
        Value::String(_) => BeamEarlyStopping::Never,
        _ => BeamEarlyStopping::Unlikely,
    };
    let options = SearchOptions {
        beams: count("num_beams", 1),
        num_beam_groups: count("num_beam_groups", 1),
        diversity_penalty: number("diversity_penalty", 0.0),
        length_penalty: number("length_penalty", 1.0),
        early_stopping: early,
        num_return_sequences: count("num_return_sequences", 1),
        max_tokens: count("max_new_tokens", 20),
        logits_processors: rules,
    };
    let found = |found: &Value| FinishedHypothesis {
        tokens: ids(&found["tokens"]),
        score: found["score"].as_f64().unwrap_or(f64::NAN),
    };
    let model = case["model"].as_str().expect("a name").to_owned();
    SearchCase {
        reads: model.contains("texts"),
        model,
        options,
        source: ids(&case["source"]),
        prefix: ids(&case["options"]["decoder_input_ids"]).get(1..).unwrap_or_default().to_vec(),
        found: case["found"].as_array().expect("a list").iter().map(found).collect(),
    }
}

/// Packs a golden model with a tokenizer whose texts are `t0 t1 t2` and so on, except for tokens in `spelled`, and with
/// additional configuration entries. `name` is the name of the folder that is created.
///
/// # Panics
/// If that cannot be written.
pub fn with_tokenizer(
    folder: &Path,
    name: &str,
    model: &str,
    spelled: &[(u32, &str)],
    config: &Value,
) -> File {
    let source = paths::data(model);
    let made: PathBuf = folder.join(name);
    std::fs::create_dir_all(&made).expect("a folder is made");
    std::fs::copy(source.join("model.safetensors"), made.join("model.safetensors")).expect("a copy is made");
    let bytes = std::fs::read(source.join("config.json")).expect("config.json is there");
    let mut own: Value = serde_json::from_slice(&bytes).expect("config.json is JSON");
    for (key, value) in config.as_object().expect("an object") {
        own[key] = value.clone();
    }
    std::fs::write(made.join("config.json"), own.to_string()).expect("config.json is written");
    let count = own["vocab_size"].as_u64().expect("a count") as u32;
    let spelling = |id: u32| {
        let other = spelled.iter().find(|(known, _)| *known == id);
        other.map_or_else(|| format!("t{id}"), |(_, text)| (*text).to_owned())
    };
    let vocabulary: serde_json::Map<String, Value> = (0..count).map(|id| (spelling(id), json!(id))).collect();
    let added = |(id, text): &(u32, &str)| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    };
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": spelled.iter().map(added).collect::<Vec<_>>(), "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": spelling(0)}});
    std::fs::write(made.join("tokenizer.json"), tokenizer.to_string()).expect("tokenizer.json is written");
    open_any(&made, &OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() })
        .expect("the model packs")
}

/// Returns the text of tokens in such a model.
pub fn text(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("t{id}")).collect::<Vec<_>>().join(" ")
}
