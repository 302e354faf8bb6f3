//! The texts that no repetition reaches across, as tokens.

use crate::Result;
use crate::sample::SamplerOptions;
use crate::tokenizer::{EncodeOptions, Tokenizer};

/// The most tokens of a breaker that begins inside a token.
const LONGEST_REST: usize = 20;

/// The options with every way in which tokens spell one of `texts` among the breakers of DRY. Nothing is looked
/// for where DRY is off.
pub(super) fn with_breakers(
    options: &SamplerOptions,
    texts: &[String],
    tokenizer: &Tokenizer,
) -> Result<SamplerOptions> {
    let mut options = options.clone();
    if options.dry_multiplier == 0.0 {
        return Ok(options);
    }
    for text in texts.iter().filter(|text| !text.is_empty()) {
        for id in 0..tokenizer.vocabulary_size() {
            if let Some(breaker) = spelling(tokenizer, id, text)? {
                options.dry_sequence_breakers.push(breaker);
            }
        }
    }
    Ok(options)
}

/// How `text` is spelt from token `id` on, if it holds the text or ends with its beginning.
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
    breaker.truncate(1 + LONGEST_REST);
    Ok(Some(breaker))
}
