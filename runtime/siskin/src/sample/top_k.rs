//! Top-k: the candidates are the k highest logits, found in one pass over the vocabulary.

use super::SamplerOptions;
use super::candidates::{Candidates, TokenCandidate, better_first};

/// Tokens tested together: most groups hold no logit above the current threshold and are skipped at once.
const GROUP: usize = 32;

/// Fills `candidates` with the `keep` highest of `scores`, best first; 0 keeps all, ordered by id.
pub(super) fn fill(candidates: &mut Candidates, scores: &[f32], keep: usize) {
    let everything = keep == 0 || keep >= scores.len();
    candidates.sorted = !everything;
    if everything {
        candidates.items.clear();
        let allowed = scores.iter().enumerate().filter(|(_, score)| **score > f32::NEG_INFINITY);
        candidates.items.extend(allowed.map(|(id, &logit)| candidate(id, logit)));
    } else {
        best(&mut candidates.items, scores, keep);
    }
}

/// Writes the `keep` highest of `scores` to `items`, best first, without masked ones.
///
/// The length of `items` reaches at most `keep` * 2 plus a group, or the length of `scores`, whichever is less.
pub(super) fn best(items: &mut Vec<TokenCandidate>, scores: &[f32], keep: usize) {
    items.clear();
    if keep == 0 {
        return;
    }
    let full = room(scores.len(), keep) - GROUP;
    let mut bar = f32::NEG_INFINITY;
    for (group, values) in scores.chunks(GROUP).enumerate() {
        if !values.iter().fold(false, |any, value| any | (*value > bar)) {
            continue;
        }
        let first = group * GROUP;
        let above = values.iter().enumerate().filter(|(_, value)| **value > bar);
        items.extend(above.map(|(offset, &logit)| candidate(first + offset, logit)));
        if items.len() >= full && items.len() > keep {
            cut(items, keep);
            bar = items[keep - 1].logit;
        }
    }
    if items.len() > keep {
        cut(items, keep);
    }
    items.sort_unstable_by(better_first);
}

/// Returns the maximum number of candidates that [`best`] holds at once.
pub(super) fn room(scores: usize, keep: usize) -> usize {
    keep.min(scores).saturating_mul(2).max(256) + GROUP
}

/// Returns the maximum number of candidates that the chain of `options` holds at once.
pub(super) fn room_for(options: &SamplerOptions, vocabulary_size: usize) -> usize {
    let everything = options.mirostat || options.top_k == 0;
    if everything { vocabulary_size } else { room(vocabulary_size, options.top_k).min(vocabulary_size) }
}

fn cut(items: &mut Vec<TokenCandidate>, keep: usize) {
    items.select_nth_unstable_by(keep - 1, better_first);
    items.truncate(keep);
}

fn candidate(id: usize, logit: f32) -> TokenCandidate {
    TokenCandidate { id: id as u32, logit, probability: 0.0 }
}
