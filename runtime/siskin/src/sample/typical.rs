//! Locally typical sampling (arXiv:2202.00666): keeps the candidates whose surprise is nearest to the expected
//! surprise.

use super::candidates::{Candidates, TokenCandidate};
use super::{Filter, SamplerOptions, SamplerRandom, top_k};

struct Typical {
    mass: f32,
    scored: Vec<(f64, TokenCandidate)>,
}

/// Builds the filter if `options` enable it.
pub(super) fn build(options: &SamplerOptions, vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    if options.mirostat || options.typical_p >= 1.0 {
        return None;
    }
    Some(Box::new(Typical {
        mass: options.typical_p,
        scored: Vec::with_capacity(top_k::room_for(options, vocabulary_size)),
    }))
}

impl Filter for Typical {
    fn apply(&mut self, candidates: &mut Candidates, _random: &mut SamplerRandom) {
        candidates.softmax();
        let entropy = candidates.entropy();
        self.scored.clear();
        self.scored.extend(candidates.items.iter().map(|candidate| {
            let surprise = -libm::log(f64::from(candidate.probability));
            ((surprise - entropy).abs(), *candidate)
        }));
        self.scored
            .sort_unstable_by(|left, right| left.0.total_cmp(&right.0).then(left.1.id.cmp(&right.1.id)));
        let mut sum = 0.0;
        candidates.items.clear();
        candidates.sorted = false;
        for (_, candidate) in &self.scored {
            candidates.items.push(*candidate);
            sum += f64::from(candidate.probability);
            if sum > f64::from(self.mass) {
                break;
            }
        }
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(Self { mass: self.mass, scored: Vec::with_capacity(self.scored.capacity()) })
    }
}
