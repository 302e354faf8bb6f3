//! The texts that no repetition reaches across, as tokens.

use crate::sample::SamplerOptions;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::{Error, Result};

/// The most tokens of a breaker that begins inside a token.
const LONGEST_REST: usize = 20;

/// The longest breaker, in bytes: each token that ends with its beginning has the rest of it encoded.
const LONGEST_TEXT: usize = 256;

/// The options with the ways in which tokens spell one of `texts` among the breakers of DRY: as a part of a token,
/// or begun at the end of one. Nothing is looked for where DRY is off.
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
        if text.len() > LONGEST_TEXT {
            let message = format!("has {} bytes; give at most {LONGEST_TEXT}", text.len());
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
