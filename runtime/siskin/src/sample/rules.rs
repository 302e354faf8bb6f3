//! The logits processors of [`crate::logits_processors`] as a step of the chain.

use super::{Edit, SamplerOptions};
use crate::logits_processors::{LogitsProcessorList, ProcessorContext};

/// The initial capacity, in tokens.
const ROOM: usize = 1 << 12;

struct Step {
    rules: LogitsProcessorList,
    source: Vec<u32>,
    text: Vec<u32>,
    /// The length of the prompt, and the maximum number of tokens that may follow it.
    prompt: Option<(usize, usize)>,
}

/// Builds the edit if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Edit>> {
    let rules =
        LogitsProcessorList::new(&options.logits_processors).ok().filter(|rules| !rules.is_empty())?;
    Some(Box::new(Step { rules, source: Vec::new(), text: Vec::with_capacity(ROOM), prompt: None }))
}

impl Edit for Step {
    fn apply(&mut self, scores: &mut [f32]) {
        let (prompt, max_tokens) = *self.prompt.get_or_insert((self.text.len(), usize::MAX));
        let left = max_tokens.saturating_sub(self.text.len().saturating_sub(prompt));
        self.rules.apply(scores, &ProcessorContext { source: &self.source, text: &self.text, prompt, left });
    }

    fn begin(&mut self, source: &[u32], max_tokens: usize) {
        self.source.clear();
        self.source.extend_from_slice(source);
        self.prompt = Some((self.text.len(), max_tokens));
    }

    fn accept(&mut self, id: u32) {
        self.text.push(id);
    }

    fn reset(&mut self) {
        self.text.clear();
    }

    fn fork(&self) -> Box<dyn Edit> {
        let mut text = Vec::with_capacity(self.text.capacity());
        text.extend_from_slice(&self.text);
        Box::new(Self { rules: self.rules.clone(), source: self.source.clone(), text, prompt: self.prompt })
    }
}
