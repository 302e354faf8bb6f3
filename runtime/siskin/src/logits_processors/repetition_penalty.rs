//! Repetition penalty of a model's generation config: as in Transformers, over the whole text, for beam search as well.
//! The sampler's own, which the user sets, is limited to the last tokens.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext};

struct RepetitionPenalty {
    penalty: f32,
}

/// Builds the processor if `rules` enable it.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let penalty = rules.repetition_penalty;
    (penalty != 1.0).then(|| Arc::new(RepetitionPenalty { penalty }) as Arc<dyn LogitsProcessor>)
}

impl LogitsProcessor for RepetitionPenalty {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        let mut known = place.text.to_vec();
        known.sort_unstable();
        known.dedup();
        for id in known {
            if let Some(score) = scores.get_mut(id as usize) {
                let changed = if *score < 0.0 { *score * self.penalty } else { *score / self.penalty };
                *score = changed.min(f32::MAX);
            }
        }
    }
}
