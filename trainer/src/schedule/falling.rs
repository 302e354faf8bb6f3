//! Linear and cosine decay.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::{Curve, Settings, check, down_to, progress, rising, wave};
use crate::settings::read;

/// Settings of `linear` and `cosine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FallingOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warm_up: u64,
    /// The final rate, as a fraction of the peak.
    pub last: f64,
}

/// Linear decay.
pub(super) fn linear(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    build("linear", |progress| 1.0 - progress, settings, steps)
}

/// Cosine decay.
pub(super) fn cosine(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    build("cosine", wave, settings, steps)
}

fn build(name: &str, form: fn(f64) -> f64, settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: FallingOptions = read(name, settings)?;
    check(name, options.warm_up, options.last, steps)?;
    Ok(Box::new(Falling { options, form, steps }))
}

struct Falling {
    options: FallingOptions,
    /// A function from 1 to 0 as the progress goes from 0 to 1.
    form: fn(f64) -> f64,
    steps: u64,
}

impl Curve for Falling {
    fn share(&self, step: u64) -> f64 {
        let FallingOptions { warm_up, last } = self.options;
        let fallen = || down_to(last, (self.form)(progress(step, warm_up, self.steps)));
        rising(step, warm_up).unwrap_or_else(fallen)
    }
}
