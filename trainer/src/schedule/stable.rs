//! Warmup–stable–decay (WSD): a constant rate for most steps, and a decay at the end.

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use super::{Curve, Settings, check, down_to, progress, rising, wave};
use crate::settings::read;

/// Settings of `warm_up_stable_decay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StableOptions {
    /// Warmup steps, in which the rate rises from `last`.
    pub warm_up: u64,
    /// Decay steps; `None`: a tenth of all.
    pub decay: Option<u64>,
    /// The shape of the decay.
    pub fall: Fall,
    /// The final rate, as a fraction of the peak.
    pub last: f64,
}

/// The shape of a decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fall {
    /// Cosine.
    #[default]
    Cosine,
    /// Linear.
    Linear,
    /// 1 − √progress.
    Root,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn Curve>> {
    let options: StableOptions = read("warm_up_stable_decay", settings)?;
    check("warm_up_stable_decay", options.warm_up, options.last, steps)?;
    let decay = options.decay.unwrap_or(steps / 10);
    let Some(first) = steps.checked_sub(decay).filter(|first| *first >= options.warm_up) else {
        let message = format!("{decay} steps and a warm-up of {} are more than {steps}", options.warm_up);
        return Err(Error::argument("warm_up_stable_decay.decay", message));
    };
    Ok(Box::new(Stable { options, first, steps }))
}

struct Stable {
    options: StableOptions,
    /// The first step of the decay.
    first: u64,
    steps: u64,
}

impl Curve for Stable {
    fn share(&self, step: u64) -> f64 {
        let last = self.options.last;
        if let Some(share) = rising(step, self.options.warm_up) {
            return down_to(last, share);
        }
        if step >= self.steps {
            return last;
        }
        let progress = progress(step, self.first, self.steps);
        let share = match self.options.fall {
            Fall::Cosine => wave(progress),
            Fall::Linear => 1.0 - progress,
            Fall::Root => 1.0 - progress.sqrt(),
        };
        down_to(last, share)
    }
}
