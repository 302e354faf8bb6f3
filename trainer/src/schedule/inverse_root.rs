//! Inverse square root decay.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use super::{Curve, Settings, check, rising};
use crate::settings::read;

/// Settings of `inverse_root`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseRootOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warm_up: u64,
    /// Steps after which the rate is 1 / √2 of the peak; `None`: as many as `warm_up`, or 10 000 without one.
    pub timescale: Option<u64>,
    /// The minimum rate, as a fraction of the peak.
    pub last: f64,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: InverseRootOptions = read("inverse_root", settings)?;
    check("inverse_root", options.warm_up, options.last, steps)?;
    let timescale = options.timescale.unwrap_or(if options.warm_up > 0 { options.warm_up } else { 10_000 });
    if timescale == 0 {
        return Err(Error::argument("inverse_root.timescale", "is 0; give at least 1"));
    }
    Ok(Box::new(InverseRoot { options, timescale: timescale as f64 }))
}

struct InverseRoot {
    options: InverseRootOptions,
    timescale: f64,
}

impl Curve for InverseRoot {
    fn share(&self, step: u64) -> f64 {
        rising(step, self.options.warm_up).unwrap_or_else(|| {
            let after = (step - self.options.warm_up) as f64;
            (1.0 / ((after + self.timescale) / self.timescale).sqrt()).max(self.options.last)
        })
    }
}
