//! Linear and cosine decay.

use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::{RelativeSchedule, Settings, check, half_cosine, progress, scale_to_min, warmup};
use crate::settings::read;

/// Settings of `linear` and `cosine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecayOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warmup_steps: u64,
    /// The final rate, as a fraction of the peak.
    pub min_lr_ratio: f64,
}

/// Linear decay.
pub(super) fn linear(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    build("linear", |progress| 1.0 - progress, settings, steps)
}

/// Cosine decay.
pub(super) fn cosine(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    build("cosine", half_cosine, settings, steps)
}

fn build(
    name: &str,
    form: fn(f64) -> f64,
    settings: &Settings,
    steps: u64,
) -> Result<Box<dyn RelativeSchedule>> {
    let options: DecayOptions = read(name, settings)?;
    check(name, options.warmup_steps, options.min_lr_ratio, steps)?;
    Ok(Box::new(Decay { options, shape: form, steps }))
}

struct Decay {
    options: DecayOptions,
    /// A function from 1 to 0 as the progress goes from 0 to 1.
    shape: fn(f64) -> f64,
    steps: u64,
}

impl RelativeSchedule for Decay {
    fn ratio(&self, step: u64) -> f64 {
        let DecayOptions { warmup_steps, min_lr_ratio } = self.options;
        let decayed = || scale_to_min(min_lr_ratio, (self.shape)(progress(step, warmup_steps, self.steps)));
        warmup(step, warmup_steps).unwrap_or_else(decayed)
    }
}
