//! Cross-entropy.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{Loss, LossRows, LossSum, Targets};
use crate::real::Real;

/// Cross-entropy with the softmax of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CrossEntropy {
    /// Label smoothing: the fraction of the target that is spread evenly over all columns.
    pub label_smoothing: f64,
}

impl<T: Real> Loss<T> for CrossEntropy {
    fn add(
        &self,
        outputs: &LossRows<'_, T>,
        targets: &Targets,
        scale: f64,
        gradient: &mut [T],
    ) -> Result<LossSum> {
        let columns = outputs.columns;
        let rows = outputs.numbers.len() / columns.max(1);
        let of_rows = |list: usize| outputs.first + rows <= list;
        if !of_rows(targets.ids.len()) || !of_rows(targets.weights.len()) {
            return Err(Error::argument("targets", "there are fewer targets than output rows"));
        }
        let part = outputs.first..outputs.first + rows;
        let (ids, weights) = (&targets.ids[part.clone()], &targets.weights[part]);
        let counts = |(id, weight): &(&u32, &f32)| **weight != 0.0 && **id as usize >= columns;
        if let Some((id, _)) = ids.iter().zip(weights).find(counts) {
            return Err(Error::argument(
                "targets",
                format!("target {id} is out of range for {columns} classes"),
            ));
        }
        let sums: Vec<LossSum> = outputs
            .numbers
            .par_chunks(columns)
            .zip(gradient.par_chunks_mut(columns))
            .enumerate()
            .map(|(row, (x, gradient))| {
                self.row(x, ids[row] as usize, f64::from(weights[row]), scale, gradient)
            })
            .collect();
        let mut all = LossSum::default();
        sums.iter().for_each(|sum| all.add(sum));
        Ok(all)
    }
}

impl CrossEntropy {
    fn row<T: Real>(&self, x: &[T], id: usize, weight: f64, scale: f64, gradient: &mut [T]) -> LossSum {
        if weight == 0.0 {
            gradient.fill(T::ZERO);
            return LossSum::default();
        }
        let (mut best, mut max) = (0, x[0]);
        for (column, number) in x.iter().enumerate() {
            if *number > max {
                (best, max) = (column, *number);
            }
        }
        let mut sum = T::ZERO;
        for (g, x) in gradient.iter_mut().zip(x) {
            *g = (*x - max).exp();
            sum += *g;
        }
        let total = max + sum.ln();
        let even = self.label_smoothing / x.len() as f64;
        let factor = T::of(weight * scale);
        for g in gradient.iter_mut() {
            *g = (*g / sum - T::of(even)) * factor;
        }
        gradient[id] -= T::of(1.0 - self.label_smoothing) * factor;
        let mut loss = (1.0 - self.label_smoothing) * (total - x[id]).f64();
        if self.label_smoothing > 0.0 {
            let mean: f64 = x.iter().map(|x| (total - *x).f64()).sum::<f64>() / x.len() as f64;
            loss += self.label_smoothing * mean;
        }
        let right = if best == id { weight } else { 0.0 };
        LossSum { loss: loss * weight, weight, correct: right, ..LossSum::default() }
    }
}
