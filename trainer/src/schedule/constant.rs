//! A constant learning rate after warmup.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::{Curve, Settings, check, rising};
use crate::settings::read;

/// Settings of `constant`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConstantOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warm_up: u64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: ConstantOptions = read("constant", settings)?;
    check("constant", options.warm_up, 1.0, steps)?;
    Ok(Box::new(options))
}

impl Curve for ConstantOptions {
    fn share(&self, step: u64) -> f64 {
        rising(step, self.warm_up).unwrap_or(1.0)
    }
}
