//! Bad words: forbids the last token of a sequence after its other tokens.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext, forbid};

struct BadWords {
    words: Vec<Vec<u32>>,
}

/// Builds the processor if `rules` enable it. End tokens are never forbidden.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let is_end = |word: &[u32]| matches!(word, [id] if rules.eos_token_ids.contains(id));
    let words: Vec<_> = rules.bad_words.iter().filter(|word| !is_end(word)).cloned().collect();
    (!words.is_empty()).then(|| Arc::new(BadWords { words }) as Arc<dyn LogitsProcessor>)
}

impl LogitsProcessor for BadWords {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        for (last, begun) in self.words.iter().filter_map(|word| word.split_last()) {
            if place.text.ends_with(begun) {
                forbid(scores, [*last]);
            }
        }
    }
}
