//! The rate of each step.
//!
//! A schedule is a file with a type that is a `Curve`, and a line in `SCHEDULES`. Curves are pure functions of the
//! step's number, so that training goes on anywhere without a state. Steps are counted from 0.

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

/// Every schedule: its name, and what makes it of its settings and the number of steps.
const SCHEDULES: &[(&str, Build)] = &[
    ("constant", constant::build),
    ("linear", falling::linear),
    ("cosine", falling::cosine),
    ("cosine_restarts", restarts::build),
    ("one_cycle", one_cycle::build),
    ("inverse_root", inverse_root::build),
    ("warm_up_stable_decay", stable::build),
];

/// The names of all schedules.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEDULES.iter().map(|(name, _)| *name)
}

/// What share of the largest rate a step has.
pub(crate) trait Curve: Send + Sync {
    /// From 0 to 1.
    fn share(&self, step: u64) -> f64;
}

/// Which schedule, with which settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleOptions {
    /// Its name.
    pub name: String,
    /// The largest rate.
    pub rate: f64,
    /// Its own settings.
    #[serde(flatten)]
    pub settings: Settings,
}

/// The rates of a training.
pub struct Schedule {
    rate: f64,
    curve: Box<dyn Curve>,
}

impl Schedule {
    /// For a training of so many steps.
    ///
    /// # Errors
    /// Where there is no such schedule or setting, or a setting is out of its range.
    pub fn new(options: &ScheduleOptions, steps: u64) -> Result<Self> {
        let Some((_, build)) = SCHEDULES.iter().find(|(name, _)| *name == options.name) else {
            let known: Vec<_> = names().collect();
            return Err(unknown("schedule.name", "schedule", &options.name, &known));
        };
        within("schedule.rate", options.rate, 0.0..=f64::MAX)?;
        let curve = build(&options.settings, steps).map_err(|error| error.within("schedule"))?;
        Ok(Self { rate: options.rate, curve })
    }

    /// The rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        self.rate * self.curve.share(step)
    }
}

/// The share of a step while rates rise from nothing, and then `None`.
fn rising(step: u64, warm_up: u64) -> Option<f64> {
    (step < warm_up).then(|| step as f64 / warm_up as f64)
}

/// How much of what lies between two steps is over: 0 to 1.
fn progress(step: u64, first: u64, end: u64) -> f64 {
    (step.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
}

/// From 1 to `last` as `share` goes from 1 to 0.
fn down_to(last: f64, share: f64) -> f64 {
    share * (1.0 - last) + last
}

/// Half a wave, from 1 to 0 as `progress` goes from 0 to 1.
fn wave(progress: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

/// Refuses a `warm_up` that is longer than the training, and a `last` that is no share.
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
