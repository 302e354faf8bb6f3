//! A circuit breaker: a model whose requests fail gets no more until one succeeds.

use std::collections::VecDeque;
use std::time::Duration;

/// Outcomes older than this do not count.
const WINDOW: Duration = Duration::from_secs(10);
/// The breaker opens when more than half of at least this many requests failed.
const MIN_REQUESTS: usize = 20;
/// How long it stays open before one request is tried.
const OPEN_TIME: Duration = Duration::from_secs(10);
/// How often in a row passes may stall before it opens.
const MAX_STALLS: u32 = 3;
/// Outcomes that are kept.
const MAX_OUTCOMES: usize = 4096;

/// Whether a model gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    /// Requests are admitted.
    Closed,
    /// Requests are rejected.
    Open,
    /// One probe request is admitted.
    HalfOpen,
}

/// The breaker of a model. Times are measured from the start of the server.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: BreakerState,
    /// When it last opened.
    opened: Duration,
    /// When requests ended, and whether they failed.
    outcomes: VecDeque<(Duration, bool)>,
    /// A request is tried, and has not ended.
    is_probing: bool,
    /// How often it has opened: outcomes of requests from before are ignored.
    generation: u64,
    stalls: u32,
    /// The model's outputs are wrong: it stays open.
    is_corrupt: bool,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self {
            state: BreakerState::Closed,
            opened: Duration::ZERO,
            outcomes: VecDeque::new(),
            is_probing: false,
            generation: 0,
            stalls: 0,
            is_corrupt: false,
        }
    }

    /// Lets a request begin: returns the generation for its outcome; `None` if it may not.
    pub(crate) fn admit(&mut self, now: Duration) -> Option<u64> {
        if self.state == BreakerState::Open && !self.rejects_all(now) {
            (self.state, self.is_probing, self.stalls) = (BreakerState::HalfOpen, false, 0);
        }
        let admits = match self.state {
            BreakerState::Closed => true,
            BreakerState::Open => false,
            BreakerState::HalfOpen => !std::mem::replace(&mut self.is_probing, true),
        };
        admits.then_some(self.generation)
    }

    /// Returns whether not even one request is tried.
    pub(crate) fn rejects_all(&self, now: Duration) -> bool {
        self.state == BreakerState::Open && (self.is_corrupt || now < self.opened + OPEN_TIME)
    }

    /// Records that a request computes something: if it was tried, the model works.
    pub(crate) fn record_output(&mut self, generation: u64) {
        if generation == self.generation && self.state == BreakerState::HalfOpen {
            self.close();
        }
    }

    /// Records the end of a request that [`Breaker::admit`] let begin.
    pub(crate) fn record(&mut self, now: Duration, generation: u64, outcome: RequestOutcomeKind) {
        if generation != self.generation {
            return;
        }
        let has_failed = match outcome {
            // The request ended before its outcome was known.
            RequestOutcomeKind::Abandoned => {
                self.is_probing = false;
                return;
            }
            RequestOutcomeKind::Succeeded => false,
            RequestOutcomeKind::Failed => true,
        };
        match self.state {
            BreakerState::HalfOpen if has_failed => self.open(now),
            BreakerState::HalfOpen => self.close(),
            BreakerState::Open => {}
            BreakerState::Closed => {
                self.outcomes.push_back((now, has_failed));
                let is_old = |time: Duration| time + WINDOW < now;
                while self.outcomes.len() > MAX_OUTCOMES
                    || self.outcomes.front().is_some_and(|(time, _)| is_old(*time))
                {
                    self.outcomes.pop_front();
                }
                let failed = self.outcomes.iter().filter(|(_, has_failed)| *has_failed).count();
                if self.outcomes.len() >= MIN_REQUESTS && 2 * failed > self.outcomes.len() {
                    self.open(now);
                }
            }
        }
    }

    /// Records whether passes make progress.
    pub(crate) fn record_progress(&mut self, now: Duration, is_stalled: bool) {
        self.stalls = if is_stalled { self.stalls + 1 } else { 0 };
        if self.stalls >= MAX_STALLS && self.state != BreakerState::Open {
            self.open(now);
        }
    }

    /// Records whether the model's outputs have the bits that they must have.
    pub(crate) fn record_integrity(&mut self, now: Duration, is_intact: bool) {
        self.is_corrupt = !is_intact;
        if self.is_corrupt {
            self.open(now);
        }
    }

    /// Returns how many of the recent requests failed, and their number; none while the breaker is not closed.
    pub(crate) fn recent_failures(&self, now: Duration) -> (usize, usize) {
        let recent = self.outcomes.iter().filter(|(time, _)| *time + WINDOW >= now);
        recent.fold((0, 0), |(failed, total), (_, has_failed)| (failed + usize::from(*has_failed), total + 1))
    }

    /// Returns the state, without trying a request.
    pub(crate) fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns whether the model's outputs are wrong.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    fn open(&mut self, now: Duration) {
        (self.state, self.opened, self.is_probing) = (BreakerState::Open, now, false);
        self.generation += 1;
        self.outcomes.clear();
    }

    fn close(&mut self) {
        (self.state, self.is_probing, self.stalls) = (BreakerState::Closed, false, 0);
        self.outcomes.clear();
    }
}

/// What the end of a request says about its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcomeKind {
    Succeeded,
    Failed,
    /// It was canceled or rejected, or its client left.
    Abandoned,
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestOutcomeKind::{Abandoned, Failed, Succeeded};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Requests that end at `seconds`: `failed` of `count` fail.
    fn run(breaker: &mut Breaker, seconds: u64, count: usize, failed: usize) {
        for index in 0..count {
            if let Some(generation) = breaker.admit(at(seconds)) {
                breaker.record(at(seconds), generation, if index < failed { Failed } else { Succeeded });
            }
        }
    }

    #[test]
    fn a_probe_that_stalls_opens_the_breaker_again() {
        let mut breaker = Breaker::new();
        let seconds = Duration::from_secs;
        (0..MAX_STALLS).for_each(|_| breaker.record_progress(seconds(1), true));
        assert!(breaker.rejects_all(seconds(2)));
        assert!(breaker.admit(seconds(12)).is_some() && breaker.admit(seconds(12)).is_none());
        (0..MAX_STALLS).for_each(|_| breaker.record_progress(seconds(13), true));
        assert!(breaker.rejects_all(seconds(14)));
        assert!(breaker.admit(seconds(24)).is_some(), "another one is tried");
    }

    #[test]
    fn many_failures_open_it() {
        let mut breaker = Breaker::new();
        run(&mut breaker, 1, 19, 19);
        assert_eq!(breaker.state(), BreakerState::Closed, "too few to tell");
        let before = breaker.admit(at(1)).unwrap();
        run(&mut breaker, 1, 1, 1);
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(breaker.admit(at(10)).is_none() && breaker.rejects_all(at(10)));
        assert!(!breaker.rejects_all(at(11)), "ready for one");
        let probe = breaker.admit(at(11)).unwrap();
        assert!(breaker.admit(at(11)).is_none(), "only one");
        breaker.record(at(12), before, Succeeded);
        breaker.record_output(before);
        assert_eq!(breaker.state(), BreakerState::HalfOpen, "requests from before are ignored");
        breaker.record(at(12), probe, Failed);
        assert!(breaker.admit(at(21)).is_none());
        let probe = breaker.admit(at(22)).unwrap();
        breaker.record(at(22), probe, Abandoned);
        let probe = breaker.admit(at(22)).expect("another one is tried if that one was abandoned");
        breaker.record_output(probe);
        assert_eq!(breaker.state(), BreakerState::Closed, "at its first token");
        breaker.record(at(23), probe, Succeeded);
        run(&mut breaker, 23, 18, 18);
        assert_eq!(breaker.state(), BreakerState::Closed, "outcomes before it opened do not count");
    }

    #[test]
    fn half_of_the_requests_may_fail() {
        let mut breaker = Breaker::new();
        run(&mut breaker, 1, 40, 0);
        run(&mut breaker, 2, 40, 40);
        assert_eq!(breaker.state(), BreakerState::Closed);
        run(&mut breaker, 2, 1, 1);
        assert_eq!(breaker.state(), BreakerState::Open);
        let mut breaker = Breaker::new();
        run(&mut breaker, 1, 15, 15);
        assert_eq!((breaker.recent_failures(at(11)), breaker.recent_failures(at(12))), ((15, 15), (0, 0)));
        run(&mut breaker, 12, 15, 15);
        assert_eq!(breaker.state(), BreakerState::Closed, "old failures do not count");
    }

    #[test]
    fn stalls_and_wrong_outputs_open_it() {
        let mut breaker = Breaker::new();
        for (seconds, is_stalled) in [(1, true), (2, true), (3, false), (4, true), (5, true)] {
            breaker.record_progress(at(seconds), is_stalled);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.record_progress(at(6), true);
        assert_eq!(breaker.state(), BreakerState::Open);
        let mut breaker = Breaker::new();
        breaker.record_integrity(at(1), false);
        assert!(breaker.admit(at(1000)).is_none(), "wrong outputs do not become right by themselves");
        breaker.record_integrity(at(1000), true);
        let probe = breaker.admit(at(1011)).unwrap();
        breaker.record(at(1012), probe, Succeeded);
        assert!(!breaker.is_corrupt() && breaker.state() == BreakerState::Closed);
    }
}
