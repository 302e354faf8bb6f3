//! Half waves down, each from the largest rate.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use super::{Curve, Settings, check, down_to, progress, rising, wave};
use crate::settings::read;

/// Settings of `cosine_restarts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RestartsOptions {
    /// Steps in which the rate rises from nothing.
    pub warm_up: u64,
    /// The share of the rate that each wave goes down to.
    pub last: f64,
    /// How many waves there are.
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
