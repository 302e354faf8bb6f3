//! Min-p: keeps candidates whose probability is at least a given fraction of the highest (arXiv:2407.01082).

use super::candidates::Candidates;
use super::{Filter, SamplerOptions, SamplerRandom};

#[derive(Clone)]
struct MinP {
    /// The logarithm of the fraction.
    distance: f32,
}

/// Builds the filter if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    if options.mirostat || options.min_p <= 0.0 {
        return None;
    }
    Some(Box::new(MinP { distance: libm::logf(options.min_p) }))
}

impl Filter for MinP {
    fn apply(&mut self, candidates: &mut Candidates, _random: &mut SamplerRandom) {
        let bar = candidates.highest() + self.distance;
        candidates.items.retain(|candidate| candidate.logit >= bar);
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
