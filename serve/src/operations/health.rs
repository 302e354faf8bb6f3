//! The health of a model.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::breaker::{Breaker, BreakerState, RequestOutcomeKind};
use super::traffic_share::TrafficShare;
use crate::error::ApiError;
use crate::sync::lock;

/// What is known about a model, adapters included.
pub(crate) struct ModelHealth {
    start: Instant,
    breaker: Mutex<Breaker>,
    traffic_share: Mutex<TrafficShare>,
    /// The number of passes when the watchdog looked last.
    steps: AtomicU64,
    integrity_checks: AtomicU64,
    integrity_failures: AtomicU64,
    /// When the last requests ended.
    ends: Mutex<VecDeque<Duration>>,
}

/// How many ends of requests the rate is computed from, at most and at least.
const MAX_ENDS: usize = 32;
const MIN_ENDS: usize = 4;
/// Ends before this do not count.
const END_AGE: Duration = Duration::from_secs(60);

/// A request that may begin. If it is dropped, it was canceled or rejected.
pub(crate) struct AdmittedRequest {
    health: Arc<ModelHealth>,
    generation: u64,
    outcome: RequestOutcomeKind,
}

impl ModelHealth {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            breaker: Mutex::new(Breaker::new()),
            traffic_share: Mutex::new(TrafficShare::new()),
            steps: AtomicU64::new(0),
            integrity_checks: AtomicU64::new(0),
            integrity_failures: AtomicU64::new(0),
            ends: Mutex::default(),
        }
    }

    /// Lets a request begin, unless the circuit breaker is open.
    pub(crate) fn admit(self: &Arc<Self>, model: &str) -> Result<AdmittedRequest, ApiError> {
        let mut breaker = self.breaker();
        match breaker.admit(self.now()) {
            Some(generation) => {
                let outcome = RequestOutcomeKind::Abandoned;
                Ok(AdmittedRequest { health: Arc::clone(self), generation, outcome })
            }
            None if breaker.is_corrupt() => Err(ApiError::unavailable(format!(
                "`{model}` failed its self-test and is disabled: faulty memory, model file or kernel"
            ))),
            None => Err(ApiError::unavailable(format!(
                "`{model}` is temporarily unavailable: too many of its requests failed"
            ))),
        }
    }

    /// Records the number of passes so far, and whether there are requests for more.
    pub(crate) fn record_progress(&self, steps: u64, is_running: bool) {
        let before = self.steps.swap(steps, Ordering::Relaxed);
        self.breaker().record_progress(self.now(), is_running && steps == before);
    }

    pub(crate) fn record_integrity(&self, is_intact: bool) {
        self.integrity_checks.fetch_add(1, Ordering::Relaxed);
        self.integrity_failures.fetch_add(u64::from(!is_intact), Ordering::Relaxed);
        self.breaker().record_integrity(self.now(), is_intact);
    }

    /// Returns why the model is not ready; `None` if it is.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let breaker = self.breaker();
        match breaker.rejects_all(self.now()) {
            true if breaker.is_corrupt() => Some("its outputs are wrong"),
            true => Some("its requests fail"),
            false => None,
        }
    }

    /// Returns the share of its usual requests that a load balancer should send, in percent.
    pub(crate) fn traffic_share(&self) -> u32 {
        let now = self.now();
        let (failed, total) = self.breaker().recent_failures(now);
        lock(&self.traffic_share).percent(now, failed, total)
    }

    /// Returns the state of the circuit breaker.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker().state()
    }

    /// Returns how often outputs were compared with those that they must be, and how often they differed.
    pub(crate) fn integrity(&self) -> (u64, u64) {
        (self.integrity_checks.load(Ordering::Relaxed), self.integrity_failures.load(Ordering::Relaxed))
    }

    /// Returns how long a request waits after `waiting` others, given how often requests ended lately (Little's law); zero if
    /// too few have.
    pub(crate) fn queue_time(&self, waiting: usize) -> Duration {
        let now = self.now();
        let ends = lock(&self.ends);
        let recent = ends.iter().filter(|end| **end + END_AGE >= now);
        let (count, first) = (recent.clone().count(), recent.min());
        match first.filter(|_| count >= MIN_ENDS) {
            Some(first) => now.saturating_sub(*first).mul_f64(waiting as f64 / count as f64),
            None => Duration::ZERO,
        }
    }

    fn record_end(&self) {
        let mut ends = lock(&self.ends);
        if ends.len() == MAX_ENDS {
            ends.pop_front();
        }
        ends.push_back(self.now());
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        lock(&self.breaker)
    }
}

impl AdmittedRequest {
    /// Records that the request has a first token.
    pub(crate) fn record_output(&self) {
        self.health.breaker().record_output(self.generation);
    }

    /// Records the end of the request; errors of clients do not count.
    pub(crate) fn end(mut self, error: Option<&ApiError>) {
        self.outcome = match error {
            None => RequestOutcomeKind::Succeeded,
            Some(error) if error.is_server_error() => RequestOutcomeKind::Failed,
            Some(_) => RequestOutcomeKind::Abandoned,
        };
    }
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        // Requests that did not run are ignored: they do not show how long others wait.
        if self.outcome != RequestOutcomeKind::Abandoned {
            self.health.record_end();
        }
        self.health.breaker().record(self.health.now(), self.generation, self.outcome);
    }
}
