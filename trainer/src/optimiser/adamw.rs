//! AdamW: Adam, where numbers decay by themselves.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::moments::Moments;
use super::{Data, Method, Settings, Shape, Tensor, zeros};
use crate::settings::read;

/// Settings of `adamw`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWOptions {
    /// The shares of both averages that stay in a step.
    pub betas: [f64; 2],
    /// What divisors are more than zero by.
    pub eps: f64,
    /// The share of a number that goes in a step, times the rate.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 }
    }
}

impl AdamWOptions {
    pub(crate) fn moments(&self, name: &str) -> Result<Moments> {
        let Self { betas, eps, weight_decay } = *self;
        Moments { betas, eps, weight_decay, decoupled: true }.checked(name)
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn Method>> {
    let options: AdamWOptions = read("adamw", settings)?;
    Ok(Box::new(options.moments("adamw")?))
}

impl Method for Moments {
    fn slots(&self, shape: &Shape<'_>) -> Vec<(&'static str, Data)> {
        vec![("first", zeros(shape.count())), ("second", zeros(shape.count()))]
    }

    fn step(&self, tensor: Tensor<'_>, state: &mut [Data]) {
        let [Data::Numbers(first), Data::Numbers(second)] = state else {
            unreachable!("two tables of numbers")
        };
        self.step(tensor, first, second);
    }
}
