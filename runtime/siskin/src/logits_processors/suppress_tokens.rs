//! Suppressed tokens: forbidden everywhere, or as the first token only.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext, forbid};

struct SuppressTokens {
    always: Vec<u32>,
    first: Vec<u32>,
    /// Whether a token is forced after a prompt of one token.
    forces_first: bool,
}

/// Builds the processor if `rules` enable it.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let LogitsProcessorOptions { suppress, suppress_first, .. } = rules;
    let is_on = !suppress.is_empty() || !suppress_first.is_empty();
    let rule = || SuppressTokens {
        always: suppress.clone(),
        first: suppress_first.clone(),
        forces_first: rules.forced_bos_token_id.is_some(),
    };
    is_on.then(|| Arc::new(rule()) as Arc<dyn LogitsProcessor>)
}

impl LogitsProcessor for SuppressTokens {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        forbid(scores, self.always.iter().copied());
        let first = place.prompt + usize::from(self.forces_first && place.prompt == 1);
        if place.text.len() == first {
            forbid(scores, self.first.iter().copied());
        }
    }
}
