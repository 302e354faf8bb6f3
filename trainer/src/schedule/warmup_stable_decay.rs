//! Warmup–stable–decay (WSD): a constant rate for most steps, and a decay at the end.

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use super::{RelativeSchedule, Settings, check, half_cosine, progress, scale_to_min, warmup};
use crate::settings::read;

/// Settings of `warmup_stable_decay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmupStableDecayOptions {
    /// Warmup steps, in which the rate rises from `min_lr_ratio`.
    pub warmup_steps: u64,
    /// Decay steps; `None`: a tenth of all.
    pub decay_steps: Option<u64>,
    /// The shape of the decay.
    pub decay_type: DecayType,
    /// The final rate, as a fraction of the peak.
    pub min_lr_ratio: f64,
}

/// The shape of a decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecayType {
    /// Cosine.
    #[default]
    Cosine,
    /// Linear.
    Linear,
    /// 1 − √progress.
    #[serde(rename = "1-sqrt")]
    OneMinusSqrt,
}

pub(super) fn build(settings: &Settings, steps: u64) -> Result<Box<dyn RelativeSchedule>> {
    let options: WarmupStableDecayOptions = read("warmup_stable_decay", settings)?;
    check("warmup_stable_decay", options.warmup_steps, options.min_lr_ratio, steps)?;
    let decay = options.decay_steps.unwrap_or(steps / 10);
    let Some(first) = steps.checked_sub(decay).filter(|first| *first >= options.warmup_steps) else {
        let message = format!(
            "{decay} decay steps and {} warmup steps exceed the {steps} steps of the run",
            options.warmup_steps
        );
        return Err(Error::argument("warmup_stable_decay.decay_steps", message));
    };
    Ok(Box::new(WarmupStableDecay { options, decay_start: first, steps }))
}

struct WarmupStableDecay {
    options: WarmupStableDecayOptions,
    /// The first step of the decay.
    decay_start: u64,
    steps: u64,
}

impl RelativeSchedule for WarmupStableDecay {
    fn ratio(&self, step: u64) -> f64 {
        let min_lr_ratio = self.options.min_lr_ratio;
        if let Some(share) = warmup(step, self.options.warmup_steps) {
            return scale_to_min(min_lr_ratio, share);
        }
        if step >= self.steps {
            return min_lr_ratio;
        }
        let progress = progress(step, self.decay_start, self.steps);
        let share = match self.options.decay_type {
            DecayType::Cosine => half_cosine(progress),
            DecayType::Linear => 1.0 - progress,
            DecayType::OneMinusSqrt => 1.0 - progress.sqrt(),
        };
        scale_to_min(min_lr_ratio, share)
    }
}
