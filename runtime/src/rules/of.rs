//! What a model's own configuration asks for.

use serde_json::Value;

use super::Rules;
use crate::Result;
use crate::arch::Config;
use crate::model::Model;

impl Rules {
    /// Those that the model's configuration of generation asks for, with the tokens that end its texts.
    pub fn of(model: &Model) -> Result<Self> {
        let config = Config::new(model.file().metadata().config.clone());
        Self::read(&config, model.end_ids())
    }

    /// The same of a configuration. `ends` are the tokenizer's, which stand in where the configuration says none.
    pub(crate) fn read(config: &Config, ends: &[u32]) -> Result<Self> {
        let count = |key: &str| config.count(&[&own(key), key]).map(Option::unwrap_or_default);
        let own_ends = ids(config, "eos_token_id");
        let penalty = config.number(&[&own("repetition_penalty"), "repetition_penalty"])?.unwrap_or(1.0);
        let words = config.get(&own("bad_words_ids")).or_else(|| config.get("bad_words_ids"));
        let word = |word: &Value| word.as_array().map(|list| list.iter().filter_map(id).collect());
        let words = words.and_then(Value::as_array).map(|list| list.iter().filter_map(word).collect());
        let bad_words: Vec<Vec<u32>> = words.unwrap_or_default();
        Ok(Self {
            ends: if own_ends.is_empty() { ends.to_vec() } else { own_ends },
            repetition_penalty: penalty as f32,
            no_repeat: count("no_repeat_ngram_size")?,
            no_repeat_source: count("encoder_no_repeat_ngram_size")?,
            bad_words: bad_words.into_iter().filter(|word| !word.is_empty()).collect(),
            min_length: count("min_length")?,
            min_tokens: count("min_new_tokens")?,
            forced_first: ids(config, "forced_bos_token_id").first().copied(),
            forced_last: ids(config, "forced_eos_token_id"),
            suppress: ids(config, "suppress_tokens"),
            suppress_first: ids(config, "begin_suppress_tokens"),
        })
    }
}

/// Where the configuration of generation has a key.
pub(crate) fn own(key: &str) -> String {
    format!("generation/{key}")
}

/// A token; negative numbers stand for none.
fn id(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

/// A token or a list of tokens, which the configuration of generation says first.
pub(crate) fn ids(config: &Config, key: &str) -> Vec<u32> {
    match config.get(&own(key)).or_else(|| config.get(key)) {
        Some(Value::Array(list)) => list.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}
