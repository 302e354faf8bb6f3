//! One-cycle: cosine annealing up to the peak rate, and down to far below the initial rate.

use serde::{Deserialize, Serialize};
use siskin_format::Result;

use super::{RelativeSchedule, Settings, check, half_cosine, scale_to_min};
use crate::settings::{read, within};

/// Settings of `one_cycle`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OneCycleOptions {
    /// Steps until the peak; `None`: three tenths of all.
    pub warmup_steps: Option<u64>,
    /// The rate of the first step, as a fraction of the peak.
    pub initial_lr_ratio: f64,
    /// The rate of the last step, as a fraction of the peak.
    pub min_lr_ratio: f64,
}

impl Default for OneCycleOptions {
    fn default() -> Self {
        Self { warmup_steps: None, initial_lr_ratio: 1.0 / 25.0, min_lr_ratio: 1.0 / 25.0 / 1e4 }
    }
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    let OneCycleOptions { warmup_steps, initial_lr_ratio, min_lr_ratio } = read("one_cycle", settings)?;
    check("one_cycle", warmup_steps.unwrap_or(0), min_lr_ratio, steps)?;
    within("one_cycle.initial_lr_ratio", initial_lr_ratio, 0.0..=1.0)?;
    let top = warmup_steps.map_or(0.3 * steps as f64, |warmup_steps| warmup_steps as f64) - 1.0;
    Ok(Box::new(OneCycle { peak: top, end: steps as f64 - 1.0, initial_lr_ratio, min_lr_ratio }))
}

struct OneCycle {
    /// The step with the peak rate.
    peak: f64,
    /// The last step.
    end: f64,
    initial_lr_ratio: f64,
    min_lr_ratio: f64,
}

impl RelativeSchedule for OneCycle {
    fn ratio(&self, step: u64) -> f64 {
        let step = step as f64;
        if step <= self.peak {
            let left = if self.peak > 0.0 { 1.0 - step / self.peak } else { 0.0 };
            return scale_to_min(self.initial_lr_ratio, half_cosine(left));
        }
        let top = self.peak.max(0.0);
        scale_to_min(
            self.min_lr_ratio,
            half_cosine(((step - top) / (self.end - top).max(1.0)).clamp(0.0, 1.0)),
        )
    }
}
