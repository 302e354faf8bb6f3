//! One-cycle: cosine annealing up to the peak rate, and down to far below the first.

use serde::{Deserialize, Serialize};
use siskin::Result;

use super::{Curve, Settings, check, down_to, wave};
use crate::settings::{read, within};

/// Settings of `one_cycle`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OneCycleOptions {
    /// Steps until the peak; `None`: three tenths of all.
    pub warm_up: Option<u64>,
    /// The rate of the first step, as a fraction of the peak.
    pub first: f64,
    /// The rate of the last step, as a fraction of the peak.
    pub last: f64,
}

impl Default for OneCycleOptions {
    fn default() -> Self {
        Self { warm_up: None, first: 1.0 / 25.0, last: 1.0 / 25.0 / 1e4 }
    }
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let OneCycleOptions { warm_up, first, last } = read("one_cycle", settings)?;
    check("one_cycle", warm_up.unwrap_or(0), last, steps)?;
    within("one_cycle.first", first, 0.0..=1.0)?;
    let top = warm_up.map_or(0.3 * steps as f64, |warm_up| warm_up as f64) - 1.0;
    Ok(Box::new(OneCycle { top, end: steps as f64 - 1.0, first, last }))
}

struct OneCycle {
    /// The step with the peak rate.
    top: f64,
    /// The last step.
    end: f64,
    first: f64,
    last: f64,
}

impl Curve for OneCycle {
    fn share(&self, step: u64) -> f64 {
        let step = step as f64;
        if step <= self.top {
            let left = if self.top > 0.0 { 1.0 - step / self.top } else { 0.0 };
            return down_to(self.first, wave(left));
        }
        let top = self.top.max(0.0);
        down_to(self.last, wave(((step - top) / (self.end - top).max(1.0)).clamp(0.0, 1.0)))
    }
}
