//! Learning-rate schedules.
//!
//! A schedule is a file with a type that implements `Curve`, and a line in `SCHEDULES`. Curves are pure functions of
//! the step, so that a run resumes anywhere without state. Steps are counted from 0.

mod constant;
mod falling;
mod inverse_root;
mod one_cycle;
mod restarts;
mod stable;

pub use constant::ConstantOptions;
pub use falling::FallingOptions;
pub use inverse_root::InverseRootOptions;
pub use one_cycle::OneCycleOptions;
pub use restarts::RestartsOptions;
pub use stable::{Fall, StableOptions};

use serde::{Deserialize, Serialize};
use siskin::{Error, Result};

use crate::settings::{Settings, unknown, within};

type Build = fn(&Settings, u64) -> Result<Box<dyn Curve>>;

/// Every schedule: name, and constructor from settings and the number of steps.
const SCHEDULES: &[(&str, Build)] = &[
    ("constant", constant::build),
    ("linear", falling::linear),
    ("cosine", falling::cosine),
    ("cosine_restarts", restarts::build),
    ("one_cycle", one_cycle::build),
    ("inverse_root", inverse_root::build),
    ("warm_up_stable_decay", stable::build),
];

/// Returns the names of all schedules.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEDULES.iter().map(|(name, _)| *name)
}

/// The rate of a step relative to the peak.
pub(crate) trait Curve: Send + Sync {
    /// Returns the rate of a step, from 0 to 1.
    fn share(&self, step: u64) -> f64;
}

/// The schedule and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleOptions {
    /// Its name.
    pub name: String,
    /// The peak learning rate.
    pub rate: f64,
    /// Its own settings.
    #[serde(flatten)]
    pub settings: Settings,
}

/// The learning rates of a run.
pub struct LearningRateSchedule {
    rate: f64,
    curve: Box<dyn Curve>,
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
        within("schedule.rate", options.rate, 0.0..=f64::MAX)?;
        let curve = build(&options.settings, steps).map_err(|error| error.within("schedule"))?;
        Ok(Self { rate: options.rate, curve })
    }

    /// Returns the rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        self.rate * self.curve.share(step)
    }
}

/// Returns the relative rate of a step during warmup, `None` afterwards.
fn rising(step: u64, warm_up: u64) -> Option<f64> {
    (step < warm_up).then(|| step as f64 / warm_up as f64)
}

/// Returns the progress of a step between two others: 0 to 1.
fn progress(step: u64, first: u64, end: u64) -> f64 {
    (step.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
}

/// Maps `share` from 1 to 0 to the range from 1 to `last`.
fn down_to(last: f64, share: f64) -> f64 {
    share * (1.0 - last) + last
}

/// A half cosine, from 1 to 0 as `progress` goes from 0 to 1.
fn wave(progress: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

/// Refuses a `warm_up` that is longer than the run, and a `last` that is not a fraction.
fn check(name: &str, warm_up: u64, last: f64, steps: u64) -> Result<()> {
    within(&format!("{name}.last"), last, 0.0..=1.0)?;
    match warm_up <= steps {
        true => Ok(()),
        false => {
            let message = format!("{warm_up} steps are more than the {steps} of the training");
            Err(Error::argument(format!("{name}.warm_up"), message))
        }
    }
}
