//! A constant learning rate after warmup.

use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::{RelativeSchedule, Settings, check, warmup};
use crate::settings::read;

/// Settings of `constant`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConstantOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warmup_steps: u64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    let options: ConstantOptions = read("constant", settings)?;
    check("constant", options.warmup_steps, 1.0, steps)?;
    Ok(Box::new(options))
}

impl RelativeSchedule for ConstantOptions {
    fn ratio(&self, step: u64) -> f64 {
        warmup(step, self.warmup_steps).unwrap_or(1.0)
    }
}
