//! Cosine annealing with restarts (SGDR, arXiv:1608.03983).

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use super::{Curve, Settings, check, down_to, progress, rising, wave};
use crate::settings::read;

/// Settings of `cosine_restarts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartsOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warm_up: u64,
    /// The rate at the end of each cycle, as a fraction of the peak.
    pub last: f64,
    /// The number of cycles.
    pub cycles: u32,
}

impl Default for RestartsOptions {
    fn default() -> Self {
        Self { warm_up: 0, last: 0.0, cycles: 1 }
    }
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: RestartsOptions = read("cosine_restarts", settings)?;
    check("cosine_restarts", options.warm_up, options.last, steps)?;
    if options.cycles == 0 {
        return Err(Error::argument("cosine_restarts.cycles", "is 0; give at least 1"));
    }
    Ok(Box::new(Restarts { options, steps }))
}

struct Restarts {
    options: RestartsOptions,
    steps: u64,
}

impl Curve for Restarts {
    fn share(&self, step: u64) -> f64 {
        let RestartsOptions { warm_up, last, cycles } = self.options;
        rising(step, warm_up).unwrap_or_else(|| {
            let progress = progress(step, warm_up, self.steps);
            if progress >= 1.0 { last } else { down_to(last, wave(f64::from(cycles) * progress % 1.0)) }
        })
    }
}
