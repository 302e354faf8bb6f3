//! Throttling: limits the speed of a model to what the app requests, and further when the device is hot or its battery
//! is low.
//!
//! A [`Governor`] belongs to a model and is shared by everything that computes with it. It is off until
//! [`set_target`](Governor::set_target) sets a target. It limits the threads of a forward pass and delays the next pass; time that
//! the app spends elsewhere counts as waiting. Results never depend on it.

mod policy;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use policy::Policy;
use siskin_format::{Error, Result};

/// Interval between two checks for cancellation while waiting.
const SLICE: Duration = Duration::from_millis(5);

/// The throttling target set by the app.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ThrottleTarget {
    /// No throttling: hints are recorded only.
    #[default]
    Off,
    /// As fast as the hints allow.
    Adaptive,
    /// At most this many tokens per second for each sequence during decoding, with as few threads as that requires. Prefill
    /// and encoding run as fast as the hints allow.
    TokensPerSecond(f32),
    /// Duty cycle: the fraction of the time spent computing, above 0, at most 1.
    DutyCycle(f32),
    /// Background work: one thread for a quarter of the time.
    Background,
}

impl ThrottleTarget {
    fn check(self) -> Result<()> {
        let message = match self {
            Self::TokensPerSecond(rate) if !(rate > 0.0 && rate.is_finite()) => {
                format!("expected more than 0 tokens per second, got {rate}")
            }
            Self::DutyCycle(duty) if !(duty > 0.0 && duty <= 1.0) => {
                format!("expected a duty cycle above 0 and at most 1, got {duty}")
            }
            Self::Off | Self::Adaptive | Self::TokensPerSecond(_) | Self::DutyCycle(_) | Self::Background => {
                return Ok(());
            }
        };
        Err(Error::argument("target", message))
    }
}

/// The thermal status of a device, as in Android's `PowerManager`; iOS's nominal, fair, serious and critical are
/// `None`, `Light`, `Severe` and `Critical`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThermalState {
    /// Not throttled.
    #[default]
    None,
    /// Light throttling that does not affect the user.
    Light,
    /// The device begins to throttle.
    Moderate,
    /// The device is throttled severely.
    Severe,
    /// The device has done everything it can to cool down.
    Critical,
    /// Components are shutting down.
    Emergency,
    /// The device is about to shut down.
    Shutdown,
}

impl ThermalState {
    /// All values, coolest first.
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

/// The power state of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PowerState {
    /// Whether power saving mode is on.
    pub saving: bool,
    /// Whether it runs on battery.
    pub on_battery: bool,
    /// The battery level from 0 to 1, if known.
    pub battery: Option<f32>,
}

/// Statistics of a governor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GovernorStats {
    /// Forward passes while a target was set.
    pub passes: u64,
    /// Time spent in them.
    pub worked: Duration,
    /// Time spent waiting before them.
    pub waited: Duration,
    /// Threads of the last pass; 0 if there was none.
    pub threads: usize,
    /// The current duty cycle.
    pub duty: f32,
}

/// Throttles a model.
#[derive(Debug)]
pub struct Governor {
    start: Instant,
    on: AtomicBool,
    policy: Mutex<Policy>,
}

/// A forward pass that the governor has admitted.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// The number of threads it may use.
    pub threads: usize,
    /// Its start; `None` if no target is set.
    begun: Option<Duration>,
}

impl Governor {
    /// Creates a governor for a model with `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self { start: Instant::now(), on: AtomicBool::new(false), policy: Mutex::new(Policy::new(threads)) }
    }

    /// Sets the target from the next pass on.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin_format::ErrorKind::Argument) if the target is invalid; the previous one stays.
    pub fn set_target(&self, target: ThrottleTarget) -> Result<()> {
        target.check()?;
        self.policy().hold(target);
        self.on.store(target != ThrottleTarget::Off, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether a target is set.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns the target.
    pub fn target(&self) -> ThrottleTarget {
        self.policy().target()
    }

    /// Sets the thermal status. When the device cools down, the speed rises step by step, to avoid oscillation.
    pub fn set_thermal_state(&self, thermal: ThermalState) {
        let now = self.start.elapsed();
        self.policy().set_thermal_state(thermal, now);
    }

    /// Sets the power state.
    pub fn set_power_state(&self, power: PowerState) {
        self.policy().set_power_state(power);
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> GovernorStats {
        let now = self.start.elapsed();
        self.policy().stats(now)
    }

    /// Waits until a pass may begin, or until `cancel` is set.
    pub fn wait(&self, cancel: &AtomicBool) {
        if !self.is_on() {
            return;
        }
        let came = self.start.elapsed();
        loop {
            let now = self.start.elapsed();
            let mut policy = self.policy();
            let rest = policy.rest(now);
            if rest.is_zero() || cancel.load(Ordering::Relaxed) {
                return policy.waited(now.saturating_sub(came));
            }
            drop(policy);
            thread::sleep(rest.min(SLICE));
        }
    }

    /// Begins a pass, after [`Governor::wait`]. What comes between, such as waiting for threads, counts as rest.
    pub fn begin(&self, max_threads: usize) -> Pass {
        if !self.is_on() {
            return Pass { threads: max_threads, begun: None };
        }
        let now = self.start.elapsed();
        Pass { threads: self.policy().begin(now).min(max_threads), begun: Some(now) }
    }

    /// Records the end of a pass; `wrote` says whether it was a decode step of every sequence.
    pub fn end(&self, pass: Pass, wrote: bool) {
        if let Some(begun) = pass.begun {
            let now = self.start.elapsed();
            self.policy().end(begun, now, wrote);
        }
    }

    fn policy(&self) -> MutexGuard<'_, Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
