//! Temperature: divides the logits, by a constant or by a value that follows the entropy (dynamic temperature).

use super::candidates::Candidates;
use super::{Filter, SamplerOptions, SamplerRandom};

#[derive(Clone)]
struct Temperature {
    temperature: f32,
    range: f32,
    exponent: f32,
}

/// Builds the filter if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Filter>> {
    let range = options.dynamic_temperature_range;
    if options.temperature == 1.0 && range == 0.0 {
        return None;
    }
    let exponent = options.dynamic_temperature_exponent;
    Some(Box::new(Temperature { temperature: options.temperature, range, exponent }))
}

impl Temperature {
    /// Returns the temperature for the candidates: the range is mapped linearly from zero to maximum entropy.
    fn current(&self, candidates: &mut Candidates) -> f32 {
        if self.range <= 0.0 || candidates.items.len() < 2 {
            return self.temperature;
        }
        candidates.softmax();
        let share = candidates.entropy() / libm::log(candidates.items.len() as f64);
        let lowest = (self.temperature - self.range).max(0.0);
        let width = self.temperature + self.range - lowest;
        lowest + width * libm::powf((share as f32).clamp(0.0, 1.0), self.exponent)
    }
}

impl Filter for Temperature {
    fn apply(&mut self, candidates: &mut Candidates, _random: &mut SamplerRandom) {
        let temperature = self.current(candidates);
        let highest = candidates.highest();
        if temperature <= 0.0 {
            candidates.retain(|_| false);
            return;
        }
        // The highest logit becomes 0, so that no temperature, however small, can overflow.
        for candidate in &mut candidates.items {
            candidate.logit = (candidate.logit - highest) / temperature;
        }
    }

    fn fork(&self) -> Box<dyn Filter> {
        Box::new(self.clone())
    }
}
