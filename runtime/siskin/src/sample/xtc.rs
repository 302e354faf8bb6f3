//! XTC ("exclude top choices"): with a given probability, removes all candidates above a threshold except the least
//! likely of them.

use super::candidates::{Candidates, TokenCandidate, better_first};
use super::{Filter, SamplerOptions, SamplerRandom};

#[derive(Clone)]
struct Xtc {
    probability: f32,
    threshold: f32,
}

/// Builds the filter if `options` enable it: above a threshold of 0.5 there can be only one top choice.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    if options.mirostat || options.xtc_probability <= 0.0 || options.xtc_threshold > 0.5 {
        return None;
    }
    Some(Box::new(Xtc { probability: options.xtc_probability, threshold: options.xtc_threshold }))
}

impl Filter for Xtc {
    fn apply(&mut self, candidates: &mut Candidates, random: &mut SamplerRandom) {
        if candidates.items.len() < 2 || random.unit() >= f64::from(self.probability) {
            return;
        }
        candidates.softmax();
        let above = |candidate: &TokenCandidate| candidate.probability >= self.threshold;
        let last = candidates.items.iter().copied().filter(above).max_by(better_first);
        if let Some(last) = last {
            candidates.items.retain(|candidate| !above(candidate) || candidate.id == last.id);
        }
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
