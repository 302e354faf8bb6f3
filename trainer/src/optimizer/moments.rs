//! The update of Adam (arXiv:1412.6980): moving averages of gradients and of their squares.

use rayon::prelude::*;
use siskin_format::Result;

use super::{CHUNK, StepTensor, lerp};
use crate::settings::within;

/// The settings that Adam and AdamW share.
#[derive(Clone, Debug)]
pub(crate) struct AdamSettings {
    pub(crate) betas: [f64; 2],
    pub(crate) eps: f64,
    pub(crate) weight_decay: f64,
    /// Whether weight decay is decoupled; otherwise it is a part of the gradient.
    pub(crate) decoupled: bool,
}

/// The largest decay rate below one.
pub(super) const ALMOST_ONE: f64 = 1.0 - f64::EPSILON;

impl AdamSettings {
    pub(super) fn checked(self, name: &str) -> Result<Self> {
        for (index, beta) in self.betas.iter().enumerate() {
            within(&format!("{name}.betas[{index}]"), *beta, 0.0..=ALMOST_ONE)?;
        }
        within(&format!("{name}.eps"), self.eps, 0.0..=f64::MAX)?;
        within(&format!("{name}.weight_decay"), self.weight_decay, 0.0..=f64::MAX)?;
        Ok(self)
    }

    /// Returns the scalars of a step.
    pub(super) fn scalars(&self, tensor: &StepTensor<'_>) -> MomentScalars {
        let [first, second] = self.betas;
        let count = i32::try_from(tensor.step).unwrap_or(i32::MAX);
        let decay = self.weight_decay * tensor.weight_decay_factor;
        let correction = [1.0 - first.powi(count), 1.0 - second.powi(count)];
        MomentScalars {
            factor: tensor.grad_factor,
            keep: if self.decoupled { (1.0 - tensor.learning_rate * decay) as f32 } else { 1.0 },
            decay: if self.decoupled { 0.0 } else { decay as f32 },
            first: (1.0 - first) as f32,
            second: [second as f32, (1.0 - second) as f32],
            root: correction[1].sqrt() as f32,
            eps: self.eps as f32,
            rate: (tensor.learning_rate / correction[0]) as f32,
        }
    }

    /// Runs one step with both moments in f32.
    pub(super) fn step(&self, tensor: StepTensor<'_>, first: &mut [f32], second: &mut [f32]) {
        let scalars = self.scalars(&tensor);
        let numbers = tensor.numbers.par_chunks_mut(CHUNK).zip(tensor.gradient.par_chunks(CHUNK));
        let averages = first.par_chunks_mut(CHUNK).zip(second.par_chunks_mut(CHUNK));
        numbers.zip(averages).for_each(|((numbers, gradient), (first, second))| {
            scalars.apply(numbers, gradient, first, second);
        });
    }
}

/// The scalar factors of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct MomentScalars {
    factor: f32,
    keep: f32,
    decay: f32,
    first: f32,
    second: [f32; 2],
    root: f32,
    eps: f32,
    rate: f32,
}

impl MomentScalars {
    /// Updates parameters and moments.
    pub(super) fn apply(&self, numbers: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32]) {
        let averages = first.iter_mut().zip(second);
        for ((number, gradient), (first, second)) in numbers.iter_mut().zip(gradient).zip(averages) {
            let gradient = gradient * self.factor + self.decay * *number;
            *number *= self.keep;
            *first = lerp(*first, gradient, self.first);
            *second = *second * self.second[0] + self.second[1] * gradient * gradient;
            let divisor = second.sqrt() / self.root + self.eps;
            *number -= self.rate * *first / divisor;
        }
    }
}
