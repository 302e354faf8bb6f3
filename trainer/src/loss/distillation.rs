//! Knowledge distillation (arXiv:1503.02531): the divergence of a row's softmax from that of a teacher.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{CrossEntropy, Loss, LossRows, LossSum, Targets};
use crate::real::Real;

/// The KL divergence from the teacher's softmax to the row's, both at a temperature, and cross-entropy with the
/// target.
///
/// The teacher's scores are [`Targets::numbers`]. As usual, the divergence is multiplied by the squared temperature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Distillation {
    /// The softmax temperature.
    pub temperature: f64,
    /// The weight of the divergence; the rest is cross-entropy.
    pub kd_ratio: f64,
}

impl Default for Distillation {
    fn default() -> Self {
        Self { temperature: 2.0, kd_ratio: 0.5 }
    }
}

impl<T: Real> Loss<T> for Distillation {
    fn add(
        &self,
        outputs: &LossRows<'_, T>,
        targets: &Targets,
        scale: f64,
        gradient: &mut [T],
    ) -> Result<LossSum> {
        let columns = outputs.columns;
        let mut sum =
            CrossEntropy::default().add(outputs, targets, scale * (1.0 - self.kd_ratio), gradient)?;
        sum.loss *= 1.0 - self.kd_ratio;
        let first = outputs.first * columns;
        let teacher = targets.numbers.get(first..first + outputs.numbers.len()).ok_or_else(|| {
            Error::argument("targets.numbers", "there are fewer teacher logits than student logits")
        })?;
        let losses: Vec<f64> = outputs
            .numbers
            .par_chunks(columns)
            .zip(teacher.par_chunks(columns))
            .zip(gradient.par_chunks_mut(columns))
            .enumerate()
            .map(|(row, ((x, teacher), gradient))| {
                let weight = f64::from(targets.weights[outputs.first + row]) * self.kd_ratio;
                self.row(x, teacher, weight, scale, gradient)
            })
            .collect();
        sum.loss += losses.iter().sum::<f64>();
        Ok(sum)
    }
}

impl Distillation {
    fn row<T: Real>(&self, x: &[T], teacher: &[f32], weight: f64, scale: f64, gradient: &mut [T]) -> f64 {
        if weight == 0.0 {
            return 0.0;
        }
        let own = logarithms(x.iter().map(|x| x.f64() / self.temperature));
        let wanted = logarithms(teacher.iter().map(|x| f64::from(*x) / self.temperature));
        let mut loss = 0.0;
        for ((g, own), wanted) in gradient.iter_mut().zip(&own).zip(&wanted) {
            loss += wanted.exp() * (wanted - own);
            *g += T::of(weight * scale * self.temperature * (own.exp() - wanted.exp()));
        }
        weight * self.temperature * self.temperature * loss
    }
}

/// Returns the log-softmax.
fn logarithms(scores: impl Iterator<Item = f64>) -> Vec<f64> {
    let scores: Vec<f64> = scores.collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = max + scores.iter().map(|score| (score - max).exp()).sum::<f64>().ln();
    scores.into_iter().map(|score| score - total).collect()
}
