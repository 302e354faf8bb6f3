//! Lion (arXiv:2302.06675): the update is the sign of an interpolated momentum.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::moments::ALMOST_ONE;
use super::{CHUNK, Settings, StepTensor, TableData, TensorShape, UpdateRule, zeros};
use crate::settings::{read, within};

/// Settings of `lion`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LionOptions {
    /// The weight of the momentum in the update, and the decay rate of the momentum.
    pub betas: [f64; 2],
    /// The weight decay, times the learning rate.
    pub weight_decay: f64,
}

impl Default for LionOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.99], weight_decay: 0.0 }
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: LionOptions = read("lion", settings)?;
    within("lion.betas[0]", options.betas[0], 0.0..=ALMOST_ONE)?;
    within("lion.betas[1]", options.betas[1], 0.0..=ALMOST_ONE)?;
    within("lion.weight_decay", options.weight_decay, 0.0..=f64::MAX)?;
    Ok(Box::new(options))
}

impl UpdateRule for LionOptions {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        vec![("momentum", zeros(shape.count()))]
    }

    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]) {
        let [TableData::Numbers(average)] = state else { unreachable!("one table of values") };
        let (rate, factor) = (tensor.learning_rate as f32, tensor.grad_factor);
        let keep = (1.0 - tensor.learning_rate * self.weight_decay * tensor.weight_decay_factor) as f32;
        let [beta1, beta2] = self.betas.map(|beta| [beta as f32, (1.0 - beta) as f32]);
        let chunks = tensor.numbers.par_chunks_mut(CHUNK).zip(tensor.gradient.par_chunks(CHUNK));
        chunks.zip(average.par_chunks_mut(CHUNK)).for_each(|((numbers, gradients), average)| {
            for ((number, gradient), average) in numbers.iter_mut().zip(gradients).zip(average) {
                let gradient = gradient * factor;
                let direction = *average * beta1[0] + gradient * beta1[1];
                let sign = if direction == 0.0 { 0.0 } else { direction.signum() };
                *number = *number * keep - rate * sign;
                *average = *average * beta2[0] + gradient * beta2[1];
            }
        });
    }
}
