//! Stochastic gradient descent, with or without momentum.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{CHUNK, Settings, StepTensor, TableData, TensorShape, UpdateRule, zeros};
use crate::settings::{read, within};

/// Settings of `sgd`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SgdOptions {
    /// The momentum.
    pub momentum: f64,
    /// The dampening of the gradient in the momentum; the first step has none.
    pub dampening: f64,
    /// The weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Whether Nesterov momentum is used.
    pub nesterov: bool,
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: SgdOptions = read("sgd", settings)?;
    within("sgd.momentum", options.momentum, 0.0..=f64::MAX)?;
    within("sgd.dampening", options.dampening, 0.0..=1.0)?;
    within("sgd.weight_decay", options.weight_decay, 0.0..=f64::MAX)?;
    if options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0) {
        return Err(Error::argument("sgd.nesterov", "needs a momentum and no dampening"));
    }
    Ok(Box::new(options))
}

impl UpdateRule for SgdOptions {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        match self.momentum {
            0.0 => Vec::new(),
            _ => vec![("momentum", zeros(shape.count()))],
        }
    }

    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]) {
        let rate = tensor.learning_rate as f32;
        let decay = (self.weight_decay * tensor.weight_decay_factor) as f32;
        let gradient = |number: f32, gradient: f32| gradient * tensor.grad_factor + decay * number;
        let chunks = tensor.numbers.par_chunks_mut(CHUNK).zip(tensor.gradient.par_chunks(CHUNK));
        let [TableData::Numbers(velocity)] = state else {
            return chunks.for_each(|(numbers, gradients)| {
                for (number, given) in numbers.iter_mut().zip(gradients) {
                    *number -= rate * gradient(*number, *given);
                }
            });
        };
        let momentum = self.momentum as f32;
        let gradient_weight = if tensor.step == 1 { 1.0 } else { (1.0 - self.dampening) as f32 };
        chunks.zip(velocity.par_chunks_mut(CHUNK)).for_each(|((numbers, gradients), velocity)| {
            for ((number, given), velocity) in numbers.iter_mut().zip(gradients).zip(velocity) {
                let gradient = gradient(*number, *given);
                *velocity = *velocity * momentum + gradient_weight * gradient;
                *number -= rate * if self.nesterov { gradient + momentum * *velocity } else { *velocity };
            }
        });
    }
}
