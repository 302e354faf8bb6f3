//! Logit bias: a value added to the logits of given tokens; negative infinity forbids a token.

use super::{Edit, SamplerOptions};

#[derive(Clone)]
struct Bias {
    pairs: Vec<(u32, f32)>,
}

/// Builds the edit if `options` enable it.
pub(super) fn build(options: &SamplerOptions, _vocabulary_size: usize) -> Option<Box<dyn Edit>> {
    if options.logit_bias.is_empty() {
        return None;
    }
    Some(Box::new(Bias { pairs: options.logit_bias.clone() }))
}

impl Edit for Bias {
    fn apply(&mut self, scores: &mut [f32]) {
        for &(id, bias) in &self.pairs {
            if let Some(score) = scores.get_mut(id as usize) {
                *score = (*score + bias).min(f32::MAX);
            }
        }
    }

    fn fork(&self) -> Box<dyn Edit> {
        Box::new(self.clone())
    }
}
