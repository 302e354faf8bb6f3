//! DRY sequence breakers given as text, converted to token sequences.

use crate::model::Model;
use crate::sample::{Sampler, SamplerOptions};
use crate::{Error, Result};
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// The maximum number of tokens of a breaker that begins inside a token.
const MAX_REST_TOKENS: usize = 20;

/// The maximum length of a breaker in bytes: for each token that ends with a prefix of it, the remainder is encoded.
const MAX_TEXT_BYTES: usize = 256;

impl Model {
    /// Creates a sampler for the tokens of the model, with DRY sequence breakers that are given as text; these are ignored
    /// without a tokenizer.
    pub(crate) fn sampler(&self, options: &SamplerOptions, dry_breakers: &[String]) -> Result<Sampler> {
        match self.tokenizer() {
            Ok(tokenizer) => Sampler::new(&with_breakers(options, dry_breakers, tokenizer)?, self.choices()),
            Err(_) => Sampler::new(options, self.choices()),
        }
    }
}

/// Returns the options with every tokenization of `texts` added to the DRY sequence breakers: as a part of a token, or
/// starting at the end of one. Returns the options unchanged if DRY is off.
pub(crate) fn with_breakers(
    options: &SamplerOptions,
    texts: &[String],
    tokenizer: &Tokenizer,
) -> Result<SamplerOptions> {
    let mut options = options.clone();
    if options.dry_multiplier == 0.0 {
        return Ok(options);
    }
    for (index, text) in texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        if text.len() > MAX_TEXT_BYTES {
            let message = format!("{} bytes long; at most {MAX_TEXT_BYTES} are supported", text.len());
            return Err(Error::argument(format!("dry_breakers[{index}]"), message));
        }
        for id in 0..tokenizer.vocabulary_size() {
            if let Some(breaker) = spelling(tokenizer, id, text)? {
                options.dry_sequence_breakers.push(breaker);
            }
        }
    }
    Ok(options)
}

/// Returns how `text` is tokenized from token `id` on, if `id` contains the text or ends with a prefix of it.
fn spelling(tokenizer: &Tokenizer, id: u32, text: &str) -> Result<Option<Vec<u32>>> {
    let (token, wanted) = (tokenizer.token_text(id)?, text.as_bytes());
    if token.windows(wanted.len()).any(|part| part == wanted) {
        return Ok(Some(vec![id]));
    }
    let begun = (1..text.len())
        .rev()
        .find(|&length| text.is_char_boundary(length) && token.ends_with(&wanted[..length]));
    let Some(begun) = begun else { return Ok(None) };
    let mut breaker = vec![id];
    breaker.extend(tokenizer.encode(&text[begun..], EncodeOptions::default())?);
    breaker.truncate(1 + MAX_REST_TOKENS);
    Ok(Some(breaker))
}
