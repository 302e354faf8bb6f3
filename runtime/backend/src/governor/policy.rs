//! The policy of a governor, as a pure function of the times passed in.

use std::time::Duration;

use super::{GovernorStats, PowerState, ThermalState, ThrottleTarget};

/// For each thermal status, the allowed duty cycle and fraction of the threads; at least one thread is allowed.
const HEAT: [(f32, f32); 7] =
    [(1.0, 1.0), (1.0, 1.0), (0.7, 1.0), (0.4, 0.5), (0.15, 0.0), (0.05, 0.0), (0.05, 0.0)];
/// The same limits in power saving mode or with a low battery.
const SAVING: (f32, f32) = (0.5, 0.5);
/// The same limits in the background.
const BACKGROUND: (f32, f32) = (0.25, 0.0);
/// The battery level that counts as low.
const LOW: f32 = 0.15;
/// How long the previous thermal status holds before the next lower one is assumed.
const COOLING: Duration = Duration::from_secs(10);
/// The window of the moving average of a token's cost, and the minimum number of tokens between two changes of the
/// thread count.
const JUDGED: u32 = 8;
/// Fewer threads are tried only if a token's predicted cost stays below this fraction of the interval between tokens.
const ROOM: f32 = 0.85;
/// Waits are limited to this many seconds.
const EVER: f32 = 1e9;
/// How long to wait before retrying a thread count that was too small.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Policy {
    /// Threads of the model.
    max_threads: usize,
    target: ThrottleTarget,
    power: PowerState,
    /// The last reported thermal status.
    said: ThermalState,
    /// The assumed thermal status, and since when.
    believed: (ThermalState, Duration),
    /// No pass begins before this time.
    rest_until: Duration,
    /// When the next token is due.
    due: Duration,
    /// Threads needed for the target's rate.
    threads: usize,
    /// Average seconds per token with this thread count, and the number of tokens measured.
    cost: (f32, u32),
    /// The last thread count that was too small, and when that was found.
    too_few: (usize, Duration),
    stats: GovernorStats,
}

impl Policy {
    pub(super) fn new(max_threads: usize) -> Self {
        let max_threads = max_threads.max(1);
        Self {
            max_threads,
            target: ThrottleTarget::Off,
            power: PowerState::default(),
            said: ThermalState::None,
            believed: (ThermalState::None, Duration::ZERO),
            rest_until: Duration::ZERO,
            due: Duration::ZERO,
            threads: max_threads,
            cost: (0.0, 0),
            too_few: (0, Duration::ZERO),
            stats: GovernorStats::default(),
        }
    }

    pub(super) fn target(&self) -> ThrottleTarget {
        self.target
    }

    pub(super) fn hold(&mut self, target: ThrottleTarget) {
        self.target = target;
        (self.rest_until, self.due) = (Duration::ZERO, Duration::ZERO);
        (self.threads, self.cost, self.too_few) = (self.max_threads, (0.0, 0), (0, Duration::ZERO));
    }

    pub(super) fn set_power_state(&mut self, power: PowerState) {
        self.power = power;
    }

    pub(super) fn set_thermal_state(&mut self, thermal: ThermalState, now: Duration) {
        self.cool(now);
        if self.said == self.believed.0 {
            // The reported status was that high until now.
            self.believed.1 = now;
        }
        self.said = thermal;
        if thermal >= self.believed.0 {
            self.believed = (thermal, now);
        }
    }

    pub(super) fn stats(&mut self, now: Duration) -> GovernorStats {
        self.cool(now);
        GovernorStats { duty: self.limits().0, ..self.stats }
    }

    /// Lowers the assumed status by one for every [`COOLING`] since it was last reported.
    fn cool(&mut self, now: Duration) {
        while self.believed.0 > self.said && now.saturating_sub(self.believed.1) >= COOLING {
            let lower = ThermalState::ALL[(self.believed.0 as usize).saturating_sub(1)];
            self.believed = (lower, self.believed.1 + COOLING);
        }
    }

    /// Returns the allowed duty cycle and thread count.
    fn limits(&self) -> (f32, usize) {
        let (mut duty, mut share) = HEAT[self.believed.0 as usize];
        let mut limit = |(max_duty, max_share): (f32, f32)| {
            (duty, share) = (duty.min(max_duty), share.min(max_share));
        };
        let low = self.power.on_battery && self.power.battery.is_some_and(|left| left < LOW);
        if self.power.saving || low {
            limit(SAVING);
        }
        match self.target {
            ThrottleTarget::DutyCycle(part) => limit((part, 1.0)),
            ThrottleTarget::Background => limit(BACKGROUND),
            ThrottleTarget::Off => (duty, share) = (1.0, 1.0),
            ThrottleTarget::Adaptive | ThrottleTarget::TokensPerSecond(_) => {}
        }
        (duty, ((self.max_threads as f32 * share) as usize).max(1))
    }

    /// Returns how long a pass that arrives now must wait.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        self.rest_until.saturating_sub(now)
    }

    /// Records the waiting time of a pass.
    pub(super) fn waited(&mut self, time: Duration) {
        self.stats.waited += time;
    }

    /// Begins a pass and returns its thread count.
    pub(super) fn begin(&mut self, now: Duration) -> usize {
        self.cool(now);
        self.stats.threads = self.threads.min(self.limits().1);
        self.stats.threads
    }

    /// Ends a pass. If several ran at once, the longest wait applies.
    pub(super) fn end(&mut self, begun: Duration, now: Duration, wrote: bool) {
        let worked = now.saturating_sub(begun);
        self.stats.passes += 1;
        self.stats.worked += worked;
        let duty = self.limits().0;
        let rest = seconds(worked.as_secs_f32() * (1.0 - duty) / duty);
        self.rest_until = self.rest_until.max(now.saturating_add(rest));
        if let (ThrottleTarget::TokensPerSecond(rate), true) = (self.target, wrote) {
            let interval = seconds(1.0 / rate);
            // Lateness is made up for by one token, not by a burst.
            self.due = self.due.max(begun.saturating_sub(interval)).saturating_add(interval);
            self.rest_until = self.rest_until.max(self.due);
            self.judge(worked.as_secs_f32(), interval.as_secs_f32(), now);
        }
    }

    /// Removes a thread if the rate can be held without it, and adds one if the rate cannot be held.
    fn judge(&mut self, worked: f32, interval: f32, now: Duration) {
        let (cost, count) = self.cost;
        let share = 1.0 / (count + 1).min(JUDGED) as f32;
        let cost = cost + (worked - cost) * share;
        self.cost = (cost, count + 1);
        if count + 1 < JUDGED {
            return;
        }
        let threads = self.threads;
        if cost > interval && threads < self.max_threads {
            self.too_few = (threads, now);
            (self.threads, self.cost) = (threads + 1, (0.0, 0));
        } else if threads > 1 {
            let fewer = cost * threads as f32 / (threads - 1) as f32;
            let known = threads - 1 <= self.too_few.0 && now.saturating_sub(self.too_few.1) < PATIENCE;
            if fewer < ROOM * interval && !known {
                (self.threads, self.cost) = (threads - 1, (0.0, 0));
            }
        }
    }
}

fn seconds(count: f32) -> Duration {
    Duration::try_from_secs_f32(count.min(EVER)).unwrap_or_default()
}
