//! No-repeat n-grams: forbids tokens that would complete an n-gram a second time.

use std::sync::Arc;

use super::{LogitsProcessor, LogitsProcessorOptions, ProcessorContext, forbid};

/// N-grams of the text itself, or of the encoder input.
struct NoRepeatNgram {
    size: usize,
    of_source: bool,
}

/// Builds the processor for the text if `rules` enable it.
pub(super) fn build(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let size = rules.no_repeat_ngram_size;
    (size > 0).then(|| Arc::new(NoRepeatNgram { size, of_source: false }) as Arc<dyn LogitsProcessor>)
}

/// Builds the processor for the encoder input if `rules` enable it.
pub(super) fn build_source(rules: &LogitsProcessorOptions) -> Option<Arc<dyn LogitsProcessor>> {
    let size = rules.encoder_no_repeat_ngram_size;
    (size > 0).then(|| Arc::new(NoRepeatNgram { size, of_source: true }) as Arc<dyn LogitsProcessor>)
}

impl LogitsProcessor for NoRepeatNgram {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        let Some(start) = place.text.len().checked_sub(self.size - 1) else { return };
        let prefix = &place.text[start..];
        let tokens = if self.of_source { place.source } else { place.text };
        for ngram in tokens.windows(self.size).filter(|ngram| ngram.starts_with(prefix)) {
            forbid(scores, ngram.last().copied());
        }
    }
}
