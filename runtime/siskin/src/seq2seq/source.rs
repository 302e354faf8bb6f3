//! From texts to encoder input: whole, or in parts that end at sentence boundaries.

use super::Seq2SeqGenerateOptions;
use crate::encoder::OverflowMode;
use crate::{Error, ErrorKind, Result};
use siskin_tokenizer::{EncodeOptions, Tokenizer};

/// Characters after which a sentence may end.
const ENDS: &[char] = &['.', '!', '?', '…', '。', '！', '？', '\n'];

/// Returns the tokens of a text as encoder input.
fn encode(tokenizer: &Tokenizer, text: &str, writing: &Seq2SeqGenerateOptions) -> Result<Vec<u32>> {
    let text = format!("{}{text}", writing.prefix);
    let options = EncodeOptions { add_special: writing.around.is_none(), parse_special: false };
    let tokens = tokenizer.encode(&text, options)?;
    Ok(match &writing.around {
        None => tokens,
        Some((before, after)) => [before, tokens.as_slice(), after].concat(),
    })
}

/// Splits a text into sources of up to `max_tokens` tokens each.
pub(super) fn parts(
    tokenizer: &Tokenizer,
    text: &str,
    writing: &Seq2SeqGenerateOptions,
    max_tokens: usize,
) -> Result<Vec<Vec<u32>>> {
    let whole = encode(tokenizer, text, writing)?;
    if whole.is_empty() {
        return Err(Error::argument("text", "no tokens; the text must not be empty"));
    }
    if whole.len() <= max_tokens {
        return Ok(vec![whole]);
    }
    let overlap = match writing.overflow {
        OverflowMode::Error => {
            let message = format!(
                "{} tokens, but only {max_tokens} fit: shorten it, truncate it, or split it into windows",
                whole.len()
            );
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        OverflowMode::Truncate => 0,
        OverflowMode::Window { overlap } => overlap,
    };
    let plain = EncodeOptions { add_special: false, parse_special: false };
    let spans: Vec<(usize, usize)> = tokenizer
        .encode_with_offsets(text, plain)?
        .iter()
        .map(|token| (token.start as usize, token.end as usize))
        .collect();
    let around = whole.len().saturating_sub(spans.len());
    let Some(room) = max_tokens.checked_sub(around).filter(|&room| room > overlap) else {
        let message = format!(
            "each window has {around} special tokens and shares {overlap} with the next one, but only {max_tokens} fit"
        );
        return Err(Error::new(ErrorKind::TooLong, "text", message));
    };
    let mut parts = Vec::new();
    let mut first = 0;
    while first < spans.len() {
        let (tokens, end) = part(tokenizer, text, writing, (&spans, first, room, max_tokens))?;
        parts.push(tokens);
        if end >= spans.len() || writing.overflow == OverflowMode::Truncate {
            break;
        }
        // A part must start after the start of the one before it, or the loop would not terminate.
        first = end.saturating_sub(overlap).max(first + 1);
    }
    Ok(parts)
}

/// Returns the part from token `first` on, and the first token of the next one.
fn part(
    tokenizer: &Tokenizer,
    text: &str,
    writing: &Seq2SeqGenerateOptions,
    (spans, first, room, max_tokens): (&[(usize, usize)], usize, usize, usize),
) -> Result<(Vec<u32>, usize)> {
    let from = text.floor_char_boundary(spans[first].0);
    let mut count = room.min(spans.len() - first);
    loop {
        let mut end = first + count;
        let mut to = spans.get(end).map_or(text.len(), |next| text.floor_char_boundary(next.0));
        if writing.overflow != OverflowMode::Truncate && end < spans.len() {
            let cut = sentence_end(&text[from..to.max(from)]).map_or(to, |length| from + length);
            // A token that extends past the cut, such as one that begins with a space, belongs to the next part.
            end = spans.partition_point(|span| span.1 <= cut).clamp(first + 1, end);
            to = spans.get(end).map_or(text.len(), |next| text.floor_char_boundary(next.0));
        }
        let tokens = encode(tokenizer, &text[from..to.max(from)], writing)?;
        // A part may encode to more tokens than it has in the whole text.
        match tokens.len().checked_sub(max_tokens) {
            None | Some(0) => return Ok((tokens, end)),
            Some(_) if count == 1 => {
                let message = format!(
                    "a part of one token becomes {} tokens; there is room for {max_tokens}",
                    tokens.len()
                );
                return Err(Error::new(ErrorKind::TooLong, "text", message));
            }
            Some(excess) => count = count.saturating_sub(excess).max(1),
        }
    }
}

/// Returns where the last sentence, or else the last word, in the second half of a text ends; `None` if there is
/// neither.
fn sentence_end(text: &str) -> Option<usize> {
    let half = text.len() / 2;
    let mut word = None;
    let mut sentence = None;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let end = at + character.len_utf8();
        let before_space = characters.peek().is_some_and(|(_, next)| next.is_whitespace());
        let is_wide = ('\u{3000}'..='\u{FFEF}').contains(&character);
        if end > half && ENDS.contains(&character) && (before_space || is_wide || character == '\n') {
            sentence = Some(end);
        }
        if end > half && character.is_whitespace() {
            word = Some(end);
        }
    }
    sentence.or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_with_sentences_or_words() {
        assert_eq!(sentence_end("One. Two is here. Three fol"), Some(17));
        assert_eq!(sentence_end("One. Two is here and on"), Some(21));
        assert_eq!(sentence_end("3.14159"), None);
        assert_eq!(sentence_end("一二三。四"), Some(12));
    }
}
