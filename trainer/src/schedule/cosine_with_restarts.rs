//! Cosine annealing with restarts (SGDR, arXiv:1608.03983).

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{RelativeSchedule, Settings, check, half_cosine, progress, scale_to_min, warmup};
use crate::settings::read;

/// Settings of `cosine_with_restarts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CosineWithRestartsOptions {
    /// Warmup steps, in which the rate rises linearly from zero.
    pub warmup_steps: u64,
    /// The rate at the end of each cycle, as a fraction of the peak.
    pub min_lr_ratio: f64,
    /// The number of cycles.
    pub num_cycles: u32,
}

impl Default for CosineWithRestartsOptions {
    fn default() -> Self {
        Self { warmup_steps: 0, min_lr_ratio: 0.0, num_cycles: 1 }
    }
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    let options: CosineWithRestartsOptions = read("cosine_with_restarts", settings)?;
    check("cosine_with_restarts", options.warmup_steps, options.min_lr_ratio, steps)?;
    if options.num_cycles == 0 {
        return Err(Error::argument("cosine_with_restarts.num_cycles", "expected at least 1, got 0"));
    }
    Ok(Box::new(CosineWithRestarts { options, steps }))
}

struct CosineWithRestarts {
    options: CosineWithRestartsOptions,
    steps: u64,
}

impl RelativeSchedule for CosineWithRestarts {
    fn ratio(&self, step: u64) -> f64 {
        let CosineWithRestartsOptions { warmup_steps, min_lr_ratio, num_cycles } = self.options;
        warmup(step, warmup_steps).unwrap_or_else(|| {
            let progress = progress(step, warmup_steps, self.steps);
            if progress >= 1.0 {
                min_lr_ratio
            } else {
                scale_to_min(min_lr_ratio, half_cosine(f64::from(num_cycles) * progress % 1.0))
            }
        })
    }
}
