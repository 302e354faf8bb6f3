//! Repetition, frequency and presence penalties of the sampler: as in llama.cpp, over the last tokens. The logits
//! processor `repetition_penalty` is Transformers' and covers the whole text.

use super::history::TokenHistory;
use super::{Edit, SamplerOptions};

const DONE: u32 = 1 << 31;

struct Penalties {
    repetition: f32,
    frequency: f32,
    presence: f32,
    history: TokenHistory,
    /// The number of occurrences of each token of the vocabulary in the history; the highest bit is scratch.
    counts: Vec<u32>,
}

/// Builds the edit if `options` enable it.
pub(super) fn build(options: &SamplerOptions, vocabulary_size: usize) -> Option<Box<dyn Edit>> {
    let off = options.repetition_penalty == 1.0
        && options.frequency_penalty == 0.0
        && options.presence_penalty == 0.0;
    if off || options.penalty_last_n == 0 {
        return None;
    }
    Some(Box::new(Penalties {
        repetition: options.repetition_penalty,
        frequency: options.frequency_penalty,
        presence: options.presence_penalty,
        history: TokenHistory::new(options.penalty_last_n),
        counts: vec![0; vocabulary_size],
    }))
}

impl Penalties {
    fn penalized(&self, score: f32, count: u32) -> f32 {
        let score = if score <= 0.0 { score * self.repetition } else { score / self.repetition };
        (score - (count as f32 * self.frequency + self.presence)).min(f32::MAX)
    }
}

impl Edit for Penalties {
    fn apply(&mut self, scores: &mut [f32]) {
        for &id in self.history.window() {
            let Some(&count) = self.counts.get(id as usize) else { continue };
            if count & DONE != 0 {
                continue;
            }
            if let Some(score) = scores.get_mut(id as usize) {
                *score = self.penalized(*score, count);
            }
            self.counts[id as usize] |= DONE;
        }
        for &id in self.history.window() {
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count &= !DONE;
            }
        }
    }

    fn accept(&mut self, id: u32) {
        if let Some(count) = self.counts.get_mut(id as usize) {
            *count += 1;
        }
        if let Some(count) = self.history.push(id).and_then(|lost| self.counts.get_mut(lost as usize)) {
            *count -= 1;
        }
    }

    fn reset(&mut self) {
        self.history.clear();
        self.counts.fill(0);
    }

    fn fork(&self) -> Box<dyn Edit> {
        Box::new(Self { history: self.history.fork(), counts: self.counts.clone(), ..*self })
    }
}
