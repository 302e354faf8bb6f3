//! AdamW (arXiv:1711.05101): Adam with decoupled weight decay.

use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::moments::AdamSettings;
use super::{Settings, StepTensor, TableData, TensorShape, UpdateRule, zeros};
use crate::settings::read;

/// Settings of `adamw`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWOptions {
    /// The decay rates of both moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// The weight decay, times the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 }
    }
}

impl AdamWOptions {
    pub(crate) fn moments(&self, name: &str) -> Result<AdamSettings> {
        let Self { betas, eps, weight_decay } = *self;
        AdamSettings { betas, eps, weight_decay, decoupled: true }.checked(name)
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    let options: AdamWOptions = read("adamw", settings)?;
    Ok(Box::new(options.moments("adamw")?))
}

impl UpdateRule for AdamSettings {
    fn slots(&self, shape: &TensorShape<'_>) -> Vec<(&'static str, TableData)> {
        vec![("first", zeros(shape.count())), ("second", zeros(shape.count()))]
    }

    fn step(&self, tensor: StepTensor<'_>, state: &mut [TableData]) {
        let [TableData::Numbers(first), TableData::Numbers(second)] = state else {
            unreachable!("two tables of values")
        };
        self.step(tensor, first, second);
    }
}
