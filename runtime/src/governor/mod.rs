//! Holds a model to the pace that an app asks for, and slower where the device is hot or its battery low.
//!
//! A [`Governor`] belongs to a model, and all that compute with it share it. It is off until
//! [`hold`](Governor::hold) says otherwise. It changes how many threads a pass through the model has, and lets time
//! go by before the next one; time that the app spends elsewhere counts. Results never depend on it.

mod policy;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};
use policy::Policy;

/// How long a wait goes on before it looks whether it is to end.
const SLICE: Duration = Duration::from_millis(5);

/// What an app asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Target {
    /// Nothing: hints are noted, and nothing is slowed down.
    #[default]
    Off,
    /// As fast as the hints allow.
    Full,
    /// So many tokens a second of each text that is written, no more, with no more threads than that takes. Texts are
    /// read as fast as the hints allow.
    TokensPerSecond(f32),
    /// The part of the time in which there may be computing: above 0, at most 1.
    DutyCycle(f32),
    /// Work that nobody waits for: one thread for a quarter of the time.
    Background,
}

impl Target {
    fn check(self) -> Result<()> {
        let message = match self {
            Self::TokensPerSecond(rate) if !(rate > 0.0 && rate.is_finite()) => {
                format!("{rate} tokens a second: give a number above 0")
            }
            Self::DutyCycle(duty) if !(duty > 0.0 && duty <= 1.0) => {
                format!("a duty cycle of {duty}: give a number above 0, at most 1")
            }
            _ => return Ok(()),
        };
        Err(Error::argument("target", message))
    }
}

/// How hot a device is, as Android counts it; iOS's nominal, fair, serious and critical are `None`, `Light`, `Severe`
/// and `Critical`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thermal {
    /// Not at all.
    #[default]
    None,
    /// Nobody notices.
    Light,
    /// The device begins to slow itself down.
    Moderate,
    /// It is slow already.
    Severe,
    /// All that can be done to cool it is done.
    Critical,
    /// Parts are switched off.
    Emergency,
    /// It is about to switch itself off.
    Shutdown,
}

impl Thermal {
    /// All, the coolest first.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Light,
        Self::Moderate,
        Self::Severe,
        Self::Critical,
        Self::Emergency,
        Self::Shutdown,
    ];
}

/// What the device runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Power {
    /// Whether its owner asked it to save power.
    pub saving: bool,
    /// Whether it runs on its battery alone.
    pub on_battery: bool,
    /// What is left in the battery, 0 to 1, where that is known.
    pub battery: Option<f32>,
}

/// What a governor did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GovernorStats {
    /// Passes through the model while a target was held.
    pub passes: u64,
    /// Time that they took.
    pub worked: Duration,
    /// Time that was let go by before them.
    pub waited: Duration,
    /// Threads of the last pass; 0: there was none.
    pub threads: usize,
    /// The part of the time in which there may be computing now.
    pub duty: f32,
}

/// The pace of a model.
#[derive(Debug)]
pub struct Governor {
    start: Instant,
    on: AtomicBool,
    policy: Mutex<Policy>,
}

/// A pass through the model that a governor let begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// The threads that it may have.
    pub threads: usize,
    /// When it began; `None` where nothing is held.
    begun: Option<Duration>,
}

impl Governor {
    /// For a model with so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { start: Instant::now(), on: AtomicBool::new(false), policy: Mutex::new(Policy::new(threads)) }
    }

    /// Holds `target` from the next pass on.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) where it makes no sense; what was held before stays.
    pub fn hold(&self, target: Target) -> Result<()> {
        target.check()?;
        self.policy().hold(target);
        self.on.store(target != Target::Off, Ordering::Relaxed);
        Ok(())
    }

    /// Whether something is held.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// What is held.
    pub fn target(&self) -> Target {
        self.policy().target()
    }

    /// Says how hot the device is. Where it cools down, the pace rises step by step, so that it does not swing.
    pub fn thermal(&self, thermal: Thermal) {
        let now = self.start.elapsed();
        self.policy().thermal(thermal, now);
    }

    /// Says what the device runs on.
    pub fn power(&self, power: Power) {
        self.policy().power(power);
    }

    /// What was done so far.
    pub fn stats(&self) -> GovernorStats {
        let now = self.start.elapsed();
        self.policy().stats(now)
    }

    /// Waits until a pass may begin, or until `stop` is set.
    pub(crate) fn wait(&self, stop: &AtomicBool) {
        if !self.is_on() {
            return;
        }
        let came = self.start.elapsed();
        loop {
            let now = self.start.elapsed();
            let mut policy = self.policy();
            let rest = policy.rest(now);
            if rest.is_zero() || stop.load(Ordering::Relaxed) {
                return policy.waited(now.saturating_sub(came));
            }
            drop(policy);
            thread::sleep(rest.min(SLICE));
        }
    }

    /// Lets a pass begin when it may, or at once when `stop` is set meanwhile.
    pub(crate) fn begin(&self, most: usize, stop: &AtomicBool) -> Pass {
        if !self.is_on() {
            return Pass { threads: most, begun: None };
        }
        self.wait(stop);
        let now = self.start.elapsed();
        Pass { threads: self.policy().begin(now).min(most), begun: Some(now) }
    }

    /// Notes that a pass is over, which wrote a token of each text or did not.
    pub(crate) fn end(&self, pass: Pass, wrote: bool) {
        if let Some(begun) = pass.begun {
            let now = self.start.elapsed();
            self.policy().end(begun, now, wrote);
        }
    }

    fn policy(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
