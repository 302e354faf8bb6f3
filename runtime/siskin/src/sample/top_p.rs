//! Top-p (nucleus sampling, arXiv:1904.09751): the fewest most likely candidates that hold the given share of the
//! probability.

use super::candidates::{Candidates, better_first};
use super::{Filter, SamplerOptions, SamplerRandom};

/// How many candidates of an unsorted list are sorted first; each further round sorts four times as many.
const FIRST_ROUND: usize = 256;

#[derive(Clone)]
struct TopP {
    mass: f64,
}

/// Builds the filter if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    if options.mirostat || options.top_p >= 1.0 {
        return None;
    }
    Some(Box::new(TopP { mass: f64::from(options.top_p) }))
}

impl Filter for TopP {
    fn apply(&mut self, candidates: &mut Candidates, _random: &mut SamplerRandom) {
        candidates.softmax();
        let count = candidates.items.len();
        let mut ready = if candidates.sorted { count } else { 0 };
        let mut sum = 0.0_f64;
        for index in 0..count {
            if index == ready {
                ready = (ready * 4).clamp(FIRST_ROUND, FIRST_ROUND.max(count)).min(count);
                let rest = &mut candidates.items[index..];
                if ready < count {
                    rest.select_nth_unstable_by(ready - index, better_first);
                }
                rest[..ready - index].sort_unstable_by(better_first);
            }
            sum += f64::from(candidates.items[index].probability);
            if sum as f32 >= self.mass as f32 {
                candidates.items.truncate(index + 1);
                break;
            }
        }
        candidates.sorted = true;
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
