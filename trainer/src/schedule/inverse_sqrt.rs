//! Inverse square root decay.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{RelativeSchedule, Settings, check, warmup};
use crate::settings::read;

/// Settings of `inverse_sqrt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseSqrtOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warmup_steps: u64,
    /// Steps after which the rate is 1 / √2 of the peak; `None`: as many as `warmup_steps`, or 10 000 without one.
    pub timescale: Option<u64>,
    /// The minimum rate, as a fraction of the peak.
    pub min_lr_ratio: f64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    let options: InverseSqrtOptions = read("inverse_sqrt", settings)?;
    check("inverse_sqrt", options.warmup_steps, options.min_lr_ratio, steps)?;
    let timescale =
        options.timescale.unwrap_or(if options.warmup_steps > 0 { options.warmup_steps } else { 10_000 });
    if timescale == 0 {
        return Err(Error::argument("inverse_sqrt.timescale", "expected at least 1, got 0"));
    }
    Ok(Box::new(InverseSqrt { options, timescale: timescale as f64 }))
}

struct InverseSqrt {
    options: InverseSqrtOptions,
    timescale: f64,
}

impl RelativeSchedule for InverseSqrt {
    fn ratio(&self, step: u64) -> f64 {
        warmup(step, self.options.warmup_steps).unwrap_or_else(|| {
            let after = (step - self.options.warmup_steps) as f64;
            (1.0 / ((after + self.timescale) / self.timescale).sqrt()).max(self.options.min_lr_ratio)
        })
    }
}
