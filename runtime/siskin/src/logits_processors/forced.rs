//! Forced tokens: tokens that are fixed at a position, whatever the logits.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext};

struct ForcedTokens {
    first: Option<u32>,
    last: Vec<u32>,
}

/// Builds the processor if `rules` enable it.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let LogitsProcessorOptions { forced_bos_token_id, ref forced_eos_token_ids, .. } = *rules;
    let is_on = forced_bos_token_id.is_some() || !forced_eos_token_ids.is_empty();
    is_on.then(|| {
        Arc::new(ForcedTokens { first: forced_bos_token_id, last: forced_eos_token_ids.clone() })
            as Arc<dyn LogitsProcessor>
    })
}

/// Allows only `ids`, all with the same score. If none of them is in the vocabulary, nothing changes.
fn force(scores: &mut [f32], ids: &[u32]) {
    if !ids.iter().any(|&id| (id as usize) < scores.len()) {
        return;
    }
    scores.fill(f32::NEG_INFINITY);
    for &id in ids {
        if let Some(score) = scores.get_mut(id as usize) {
            *score = 0.0;
        }
    }
}

impl LogitsProcessor for ForcedTokens {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        if place.text.len() == 1 {
            force(scores, self.first.as_slice());
        }
        if place.left == 1 {
            force(scores, &self.last);
        }
    }
}
