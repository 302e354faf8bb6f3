//! Learning-rate schedules.
//!
//! A schedule is a file with a type that implements `RelativeSchedule`, and a line in `SCHEDULES`. Schedules are pure functions of
//! the step, so that a run resumes anywhere without state. Steps are counted from 0.

mod constant;
mod cosine_with_restarts;
mod decay;
mod inverse_sqrt;
mod one_cycle;
mod warmup_stable_decay;

pub use constant::ConstantOptions;
pub use cosine_with_restarts::CosineWithRestartsOptions;
pub use decay::DecayOptions;
pub use inverse_sqrt::InverseSqrtOptions;
pub use one_cycle::OneCycleOptions;
pub use warmup_stable_decay::{DecayType, WarmupStableDecayOptions};

use serde::{Deserialize, Serialize};
use siskin_format::{Error, Result};

use crate::settings::{Settings, unknown, within};

type Build = fn(&Settings, u64) -> Result<Box<dyn RelativeSchedule>>;

/// Every schedule: name, and constructor from settings and the number of steps.
const SCHEDULES: &[(&str, Build)] = &[
    ("constant", constant::build),
    ("linear", decay::linear),
    ("cosine", decay::cosine),
    ("cosine_with_restarts", cosine_with_restarts::build),
    ("one_cycle", one_cycle::build),
    ("inverse_sqrt", inverse_sqrt::build),
    ("warmup_stable_decay", warmup_stable_decay::build),
];

/// Returns the names of all schedules.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEDULES.iter().map(|(name, _)| *name)
}

/// The rate of a step relative to the peak.
pub(crate) trait RelativeSchedule: Send + Sync {
    /// Returns the rate of a step, from 0 to 1.
    fn ratio(&self, step: u64) -> f64;
}

/// The schedule and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleOptions {
    /// Its name.
    pub name: String,
    /// The peak learning rate.
    pub learning_rate: f64,
    /// Its own settings.
    #[serde(flatten)]
    pub settings: Settings,
}

/// The learning rates of a run.
pub struct LearningRateSchedule {
    peak: f64,
    decay: Box<dyn RelativeSchedule>,
}

impl LearningRateSchedule {
    /// Creates the schedule of a run of `steps` steps.
    ///
    /// # Errors
    /// If the schedule or a setting is unknown, or a setting is out of range.
    pub fn new(options: &ScheduleOptions, steps: u64) -> Result<Self> {
        let Some((_, build)) = SCHEDULES.iter().find(|(name, _)| *name == options.name) else {
            let known: Vec<_> = names().collect();
            return Err(unknown("schedule.name", "schedule", &options.name, &known));
        };
        within("schedule.learning_rate", options.learning_rate, 0.0..=f64::MAX)?;
        let curve = build(&options.settings, steps).map_err(|error| error.within("schedule"))?;
        Ok(Self { peak: options.learning_rate, decay: curve })
    }

    /// Returns the rate of a step.
    pub fn learning_rate(&self, step: u64) -> f64 {
        self.peak * self.decay.ratio(step)
    }
}

/// Returns the relative rate of a step during warmup, `None` afterwards.
fn warmup(step: u64, warmup_steps: u64) -> Option<f64> {
    (step < warmup_steps).then(|| step as f64 / warmup_steps as f64)
}

/// Returns the progress of a step between two others: 0 to 1.
fn progress(step: u64, first: u64, end: u64) -> f64 {
    (step.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
}

/// Maps a ratio in 0..=1 to the range from `min_lr_ratio` to 1.
fn scale_to_min(min_lr_ratio: f64, ratio: f64) -> f64 {
    ratio * (1.0 - min_lr_ratio) + min_lr_ratio
}

/// A half cosine, from 1 to 0 as `progress` goes from 0 to 1.
fn half_cosine(progress: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

/// Rejects a warmup that is longer than the run, and a `min_lr_ratio` that is not a fraction.
fn check(name: &str, warmup_steps: u64, min_lr_ratio: f64, steps: u64) -> Result<()> {
    within(&format!("{name}.min_lr_ratio"), min_lr_ratio, 0.0..=1.0)?;
    match warmup_steps <= steps {
        true => Ok(()),
        false => {
            let message = format!("{warmup_steps} steps exceed the {steps} steps of the run");
            Err(Error::argument(format!("{name}.warmup_steps"), message))
        }
    }
}
