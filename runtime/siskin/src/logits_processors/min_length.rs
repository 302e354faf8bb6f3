//! Minimum length: forbids end tokens before it.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext, forbid};

struct MinLength {
    ends: Vec<u32>,
    length: usize,
    tokens: usize,
}

/// Builds the processor if `rules` enable it.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let LogitsProcessorOptions { min_length: length, min_tokens: tokens, .. } = *rules;
    let is_on = (length > 0 || tokens > 0) && !rules.eos_token_ids.is_empty();
    is_on.then(|| {
        Arc::new(MinLength { ends: rules.eos_token_ids.clone(), length, tokens }) as Arc<dyn LogitsProcessor>
    })
}

impl LogitsProcessor for MinLength {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        let written = place.text.len() - place.prompt.min(place.text.len());
        if place.text.len() < self.length || written < self.tokens {
            forbid(scores, self.ends.iter().copied());
        }
    }
}
