//! Unigram model (arXiv:1804.10959): the most likely sequence of tokens, by the Viterbi algorithm.

use super::super::fallible_alloc;
use super::super::section::{attribute, flag};
use super::{ModelTables, TokenSpan, characters, is_start, push_bytes, push_unknown};
use siskin_format::Result;

/// The best path to a byte of the text.
#[derive(Clone, Copy, Debug)]
struct Best {
    score: f64,
    from: u32,
    /// The token that ends here; an id outside the vocabulary means unknown.
    id: u32,
}

const UNREACHED: Best = Best { score: f64::NEG_INFINITY, from: 0, id: 0 };

/// Reusable buffers.
#[derive(Debug, Default)]
pub(in super::super) struct UnigramBuffers {
    best: Vec<Best>,
    path: Vec<TokenSpan>,
}

pub(super) fn encode(
    tables: &ModelTables<'_>,
    text: &[u8],
    (start, end): (usize, usize),
    buffers: &mut UnigramBuffers,
    floor: usize,
    out: &mut Vec<TokenSpan>,
) -> Result<()> {
    let Some(piece) = text.get(start..end) else { return Ok(()) };
    let view = &tables.view;
    let best = &mut buffers.best;
    best.clear();
    fallible_alloc::reserve(best, piece.len() + 1)?;
    best.resize(piece.len() + 1, UNREACHED);
    best[0].score = 0.0;
    let is_boundary = |at: usize| piece.get(at).is_none_or(|&byte| is_start(byte));
    for (at, next) in characters(piece) {
        let reached = best[at].score;
        let mut covers_character = false;
        let mut offer = |length: usize, score: f64, id: u32| {
            let target = &mut best[at + length];
            if reached + score > target.score {
                *target = Best { score: reached + score, from: at as u32, id };
            }
        };
        tables.trie.prefixes(&piece[at..], 0, |length, id| {
            if !is_boundary(at + length) {
                return;
            }
            covers_character |= length == next - at;
            let is_user_defined = view.attributes_of(id) & attribute::KIND == 3;
            offer(length, if is_user_defined { 0.0 } else { f64::from(view.score(id)) }, id);
        });
        if !covers_character {
            offer(next - at, f64::from(tables.unknown_score), view.tokens);
        }
    }
    buffers.path.clear();
    let mut at = piece.len();
    while at > 0 {
        let Best { from, id, .. } = best[at];
        // Scores that are not finite may leave a position unreachable: go back by one character.
        let from = if (from as usize) < at && best[at].score > f64::NEG_INFINITY {
            from
        } else {
            piece[..at].iter().rposition(|&byte| is_start(byte)).unwrap_or(0) as u32
        };
        let id = if best[at].score > f64::NEG_INFINITY { id } else { view.tokens };
        fallible_alloc::push(&mut buffers.path, TokenSpan { id, start: from, end: at as u32 })?;
        at = from as usize;
    }
    // A run of unknown characters becomes one unknown token, or byte tokens.
    let mut unknown: Option<(usize, usize)> = None;
    for token in buffers.path.iter().rev() {
        let (from, to) = (start + token.start as usize, start + token.end as usize);
        if token.id >= view.tokens {
            unknown = Some((unknown.map_or(from, |(first, _)| first), to));
            continue;
        }
        flush(tables, text, unknown.take(), floor, out);
        out.push(TokenSpan { id: token.id, start: from as u32, end: to as u32 });
    }
    flush(tables, text, unknown, floor, out);
    Ok(())
}

fn flush(
    tables: &ModelTables<'_>,
    text: &[u8],
    unknown: Option<(usize, usize)>,
    floor: usize,
    out: &mut Vec<TokenSpan>,
) {
    let Some((start, end)) = unknown else { return };
    let view = &tables.view;
    let bytes = text.get(start..end).unwrap_or_default();
    if !view.has(flag::BYTE_FALLBACK) || !push_bytes(view, bytes, start, out) {
        push_unknown(view, (start, end), true, out, floor);
    }
}
