//! Adam, with weight decay as a part of the gradient (L2 regularization).

use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::moments::AdamSettings;
use super::{Settings, UpdateRule};
use crate::settings::read;

/// Settings of `adam`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamOptions {
    /// The decay rates of both moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// The weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamOptions {
    pub(crate) fn moments(&self) -> Result<AdamSettings> {
        let Self { betas, eps, weight_decay } = *self;
        AdamSettings { betas, eps, weight_decay, decoupled: false }.checked("adam")
    }
}

pub(super) fn build(settings: &Settings) -> Result<Box<dyn UpdateRule>> {
    Ok(Box::new(read::<AdamOptions>("adam", settings)?.moments()?))
}
