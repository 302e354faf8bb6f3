//! Rules from a model's generation config.

use serde_json::Value;

use super::LogitsProcessorOptions;
use crate::Result;
use crate::model::Model;
use siskin_graph::arch::ConfigReader;

impl LogitsProcessorOptions {
    /// Returns the rules of the model's generation config, with its end tokens.
    pub fn of(model: &Model) -> Result<Self> {
        let config = model.config_reader();
        Self::read(&config, model.end_ids(), model.choices())
    }

    /// Returns the rules of a config. `ends` are the tokenizer's end tokens, used if the config names none. Tokens from
    /// `choices` on are never sampled, and settings about them are ignored.
    pub(crate) fn read(config: &ConfigReader, ends: &[u32], choices: usize) -> Result<Self> {
        let is_there = |id: &u32| (*id as usize) < choices;
        let count = |key: &str| config.count(&[&place(config, key)]).map(Option::unwrap_or_default);
        let ids = |key: &str| -> Vec<u32> {
            let all = config.get(&place(config, key)).map(listed).unwrap_or_default();
            all.into_iter().filter(is_there).collect()
        };
        let own_ends = tokens(config, "eos_token_id");
        let penalty = config.number(&[&place(config, "repetition_penalty")])?.unwrap_or(1.0);
        let words = config.get(&place(config, "bad_words_ids"));
        let word = |word: &Value| word.as_array().map(|list| list.iter().filter_map(id).collect());
        let words = words.and_then(Value::as_array).map(|list| list.iter().filter_map(word).collect());
        let bad_words: Vec<Vec<u32>> = words.unwrap_or_default();
        Ok(Self {
            eos_token_ids: if own_ends.is_empty() { ends.to_vec() } else { own_ends },
            repetition_penalty: penalty as f32,
            no_repeat_ngram_size: count("no_repeat_ngram_size")?,
            encoder_no_repeat_ngram_size: count("encoder_no_repeat_ngram_size")?,
            bad_words: bad_words
                .into_iter()
                .filter(|word| !word.is_empty() && word.iter().all(is_there))
                .collect(),
            min_length: count("min_length")?,
            min_tokens: count("min_new_tokens")?,
            forced_bos_token_id: ids("forced_bos_token_id").first().copied(),
            forced_eos_token_ids: ids("forced_eos_token_id"),
            suppress: ids("suppress_tokens"),
            suppress_first: ids("begin_suppress_tokens"),
        })
    }
}

/// Returns the key of a generation setting: in the generation config if there is one, which then replaces the model
/// config entirely, and otherwise in the model config.
pub(crate) fn place(config: &ConfigReader, key: &str) -> String {
    if config.get("generation").is_some() { format!("generation/{key}") } else { key.to_owned() }
}

/// Returns a token id; negative numbers mean none.
fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// Returns the ids of a token or a list of tokens.
fn listed(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(list) => list.iter().filter_map(id).collect(),
        one => id(one).into_iter().collect(),
    }
}

/// Returns a token or a list of tokens that every model has; the generation config takes precedence.
pub(crate) fn tokens(config: &ConfigReader, key: &str) -> Vec<u32> {
    let own = config.get(&format!("generation/{key}"));
    own.or_else(|| config.get(key)).map(listed).unwrap_or_default()
}
