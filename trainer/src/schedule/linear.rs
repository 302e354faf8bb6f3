//! A straight line down.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::{Curve, Settings, check, down_to, progress, rising};
use crate::settings::read;

/// Settings of `linear`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearOptions {
    /// Steps in which the rate rises from nothing.
    pub warm_up: u64,
    /// The share of the rate that is left after the last step.
    pub last: f64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: LinearOptions = read("linear", settings)?;
    check("linear", options.warm_up, options.last, steps)?;
    Ok(Box::new(Linear { options, steps }))
}

struct Linear {
    options: LinearOptions,
    steps: u64,
}

impl Curve for Linear {
    fn share(&self, step: u64) -> f64 {
        let LinearOptions { warm_up, last } = self.options;
        rising(step, warm_up).unwrap_or_else(|| down_to(last, 1.0 - progress(step, warm_up, self.steps)))
    }
}
