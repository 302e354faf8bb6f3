//! Mirostat 2 (arXiv:2007.14966): keeps the surprise of the text near a target by adapting an upper bound on each
//! token's surprise.

use super::candidates::Candidates;
use super::{Filter, SamplerOptions, SamplerRandom};

#[derive(Clone)]
struct Mirostat {
    target: f32,
    rate: f32,
    /// The current upper bound on a candidate's surprise, in bits.
    bound: f32,
}

/// Builds the filter if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    if !options.mirostat {
        return None;
    }
    let target = options.mirostat_tau;
    Some(Box::new(Mirostat { target, rate: options.mirostat_eta, bound: 2.0 * target }))
}

impl Filter for Mirostat {
    fn apply(&mut self, candidates: &mut Candidates, _random: &mut SamplerRandom) {
        candidates.softmax();
        candidates.retain(|candidate| -libm::log2f(candidate.probability) <= self.bound);
    }

    fn drawn(&mut self, probability: f32) {
        self.bound -= self.rate * (-libm::log2f(probability) - self.target);
    }

    fn reset(&mut self) {
        self.bound = 2.0 * self.target;
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
