//! Half a wave down.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::{Curve, Settings, check, down_to, progress, rising, wave};
use crate::settings::read;

/// Settings of `cosine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CosineOptions {
    /// Steps in which the rate rises from nothing.
    pub warm_up: u64,
    /// The share of the rate that is left after the last step.
    pub last: f64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: CosineOptions = read("cosine", settings)?;
    check("cosine", options.warm_up, options.last, steps)?;
    Ok(Box::new(Cosine { options, steps }))
}

struct Cosine {
    options: CosineOptions,
    steps: u64,
}

impl Curve for Cosine {
    fn share(&self, step: u64) -> f64 {
        let CosineOptions { warm_up, last } = self.options;
        rising(step, warm_up).unwrap_or_else(|| down_to(last, wave(progress(step, warm_up, self.steps))))
    }
}
