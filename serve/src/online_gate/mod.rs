//! Compares a canary with a stable server while both answer requests, and takes the canary out of the traffic.
//!
//! The metrics of both are read again and again. Differences of error rates and latencies have confidence intervals that hold
//! at all times together, so that the comparison may end as soon as it is decided.

mod counters;
mod haproxy;
mod sequential;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use siskin::{Error, Result};

use crate::load::Target;
use counters::{Counters, Histogram};
pub use haproxy::disable_traffic;
use sequential::{Proportion, SequentialTest};

/// The quantile of latencies that is compared.
const QUANTILE: f64 = 0.95;
/// As many readings of the canary's metrics in a row may fail.
const MAX_FAILED_READINGS: usize = 3;
/// How long a reading may take.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for the comparison of two running servers.
#[derive(Clone, Debug)]
pub struct OnlineGateOptions {
    /// The model whose metrics are compared; `None`: all together.
    pub model: Option<String>,
    /// By how much the share of failed requests may be higher.
    pub max_error_increase: f64,
    /// By how much the share of requests may be higher that are slower than the 95th percentile of the stable server.
    pub max_slow_increase: f64,
    /// The probability of a wrong decision.
    pub error_probability: f64,
    /// The time between readings.
    pub interval: Duration,
    /// The time after which the comparison ends undecided.
    pub max_time: Duration,
}

impl Default for OnlineGateOptions {
    fn default() -> Self {
        Self {
            model: None,
            max_error_increase: 0.01,
            max_slow_increase: 0.05,
            error_probability: 0.05,
            interval: Duration::from_secs(1),
            max_time: Duration::from_secs(600),
        }
    }
}

/// What a comparison shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnlineVerdict {
    /// The canary is not worse than the bound.
    Passed,
    /// It is worse.
    Regression,
    /// There are too few requests to tell.
    Undecided,
}

/// The difference of a share of the requests between the servers.
#[derive(Clone, Debug)]
struct OnlineCheck {
    name: String,
    stable: Proportion,
    canary: Proportion,
    /// The confidence interval of the difference.
    lower: f64,
    upper: f64,
    bound: f64,
}

/// What is known so far.
#[derive(Clone, Debug)]
pub struct OnlineReport {
    checks: Vec<OnlineCheck>,
    /// Why the canary cannot be compared.
    problem: Option<String>,
    /// How often the canary was started again.
    canary_restarts: u64,
    elapsed: Duration,
}

/// A comparison of two running servers.
#[derive(Clone, Debug)]
pub struct OnlineGate {
    stable: Target,
    canary: Target,
    options: OnlineGateOptions,
}

impl OnlineCheck {
    fn verdict(&self) -> OnlineVerdict {
        match (self.lower > self.bound, self.upper <= self.bound) {
            (true, _) => OnlineVerdict::Regression,
            (_, true) => OnlineVerdict::Passed,
            _ => OnlineVerdict::Undecided,
        }
    }
}

impl OnlineVerdict {
    fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Regression => "REGRESSION",
            Self::Undecided => "undecided",
        }
    }
}

impl OnlineReport {
    /// Returns the verdict over all checks.
    pub fn verdict(&self) -> OnlineVerdict {
        let is = |verdict| move |check: &OnlineCheck| check.verdict() == verdict;
        if self.problem.is_some() || self.checks.iter().any(is(OnlineVerdict::Regression)) {
            return OnlineVerdict::Regression;
        }
        match !self.checks.is_empty() && self.checks.iter().all(is(OnlineVerdict::Passed)) {
            true => OnlineVerdict::Passed,
            false => OnlineVerdict::Undecided,
        }
    }

    /// Returns a line for each check.
    pub fn text(&self) -> String {
        let line = |check: &OnlineCheck| {
            format!(
                "{:<10}  {}: {:.2}% of {} against {:.2}% of {}, difference {:+.2} to {:+.2} points, at most {:+.2}\n",
                check.verdict().name(),
                check.name,
                100.0 * check.canary.share(),
                check.canary.total,
                100.0 * check.stable.share(),
                check.stable.total,
                100.0 * check.lower,
                100.0 * check.upper,
                100.0 * check.bound,
            )
        };
        let problem = self.problem.iter().map(|problem| format!("REGRESSION  {problem}\n"));
        let restarts = (self.canary_restarts > 0)
            .then(|| format!("warning     the canary was started again {} times\n", self.canary_restarts));
        self.checks.iter().map(line).chain(problem).chain(restarts).collect()
    }

    /// Returns the same as JSON.
    pub fn to_json(&self) -> Value {
        let check = |check: &OnlineCheck| {
            json!({
                "name": check.name,
                "verdict": check.verdict().name().to_lowercase(),
                "stable": check.stable.share(),
                "stable_requests": check.stable.total,
                "canary": check.canary.share(),
                "canary_requests": check.canary.total,
                "difference": [check.lower, check.upper],
                "bound": check.bound,
            })
        };
        json!({
            "verdict": self.verdict().name().to_lowercase(),
            "problem": self.problem,
            "canary_restarts": self.canary_restarts,
            "seconds": self.elapsed.as_secs_f64(),
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

impl OnlineGate {
    /// Compares the servers at two URLs.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) if a URL is not one of an HTTP server, and for options out of range.
    pub fn new(stable: &str, canary: &str, options: OnlineGateOptions) -> Result<Self> {
        let is_share = |value: f64| (0.0..1.0).contains(&value);
        if !(options.error_probability > 0.0 && is_share(options.error_probability)) {
            return Err(Error::argument("error_probability", "expected a number between 0 and 1"));
        }
        if !(is_share(options.max_error_increase) && is_share(options.max_slow_increase)) {
            return Err(Error::argument("max_error_increase", "expected a share of less than 1"));
        }
        Ok(Self { stable: Target::new(stable, None)?, canary: Target::new(canary, None)?, options })
    }

    /// Reads the metrics of both servers until a verdict is reached or the time is over; `progress` gets each report.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](siskin::ErrorKind::Io) if the stable server does not answer.
    pub fn run(&self, progress: &mut dyn FnMut(&OnlineReport)) -> Result<OnlineReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::io("sockets", &error))?;
        runtime.block_on(self.compare(progress))
    }

    async fn compare(&self, progress: &mut dyn FnMut(&OnlineReport)) -> Result<OnlineReport> {
        let start = Instant::now();
        let (mut stable, mut canary) = (Accumulated::default(), Accumulated::default());
        let mut test = SequentialTest::new(self.options.error_probability);
        let mut failed_readings = 0;
        loop {
            let is_over = start.elapsed() >= self.options.max_time;
            let reading = self.read(&self.stable).await;
            stable.add(reading.map_err(|why| Error::io("stable server", &std::io::Error::other(why)))?);
            let mut problem = None;
            match self.read(&self.canary).await {
                Ok(reading) => {
                    canary.add(reading);
                    failed_readings = 0;
                }
                Err(why) => {
                    failed_readings += 1;
                    problem = (failed_readings >= MAX_FAILED_READINGS).then(|| format!("the canary: {why}"));
                }
            }
            let checks = match problem {
                None => checks(&mut test, &stable.sum, &canary.sum, &self.options),
                Some(_) => Vec::new(),
            };
            let report =
                OnlineReport { checks, problem, canary_restarts: canary.restarts, elapsed: start.elapsed() };
            progress(&report);
            if is_over || report.verdict() != OnlineVerdict::Undecided {
                return Ok(report);
            }
            tokio::time::sleep(self.options.interval).await;
        }
    }

    async fn read(&self, target: &Target) -> std::result::Result<Counters, String> {
        let reading = tokio::time::timeout(READ_TIMEOUT, target.get("/metrics")).await;
        let page = reading.map_err(|_| format!("no metrics within {} s", READ_TIMEOUT.as_secs()))??;
        Ok(Counters::parse(&String::from_utf8_lossy(&page), self.options.model.as_deref()))
    }
}

/// What was counted since the first reading, restarts of the server included.
#[derive(Default)]
struct Accumulated {
    last: Option<Counters>,
    sum: Counters,
    restarts: u64,
}

impl Accumulated {
    fn add(&mut self, now: Counters) {
        if let Some(last) = &self.last {
            self.restarts += u64::from(self.sum.add_difference(&now, last));
        }
        self.last = Some(now);
    }
}

/// Compares what was counted.
fn checks(
    test: &mut SequentialTest,
    stable: &Counters,
    canary: &Counters,
    options: &OnlineGateOptions,
) -> Vec<OnlineCheck> {
    let mut pairs = vec![(
        "failed requests".to_owned(),
        Proportion { count: stable.failed, total: stable.requests },
        Proportion { count: canary.failed, total: canary.requests },
        options.max_error_increase,
    )];
    let latencies = [
        ("first token", &stable.first_token, &canary.first_token),
        ("response", &stable.response, &canary.response),
    ];
    for (name, stable, canary) in latencies {
        // Models without generated text have no first tokens.
        if stable.total == 0 && canary.total == 0 {
            continue;
        }
        // Histograms know no times within a bucket: both of its ends are compared.
        pairs.extend(stable.bounds_around(QUANTILE).into_iter().map(|bound| {
            let above = |histogram: &Histogram| Proportion {
                count: histogram.count_above(bound),
                total: histogram.total,
            };
            let name = format!("{name} after more than {bound} s");
            (name, above(stable), above(canary), options.max_slow_increase)
        }));
    }
    let intervals =
        test.look(&pairs.iter().map(|(_, stable, canary, _)| (*stable, *canary)).collect::<Vec<_>>());
    let check = |((name, stable, canary, bound), (lower, upper))| OnlineCheck {
        name,
        stable,
        canary,
        lower,
        upper,
        bound,
    };
    pairs.into_iter().zip(intervals).map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters after `requests` requests, of which `failed` failed, and `slow` took 0.3 s instead of 0.1 s.
    fn counters(requests: u64, failed: u64, slow: u64) -> Counters {
        let page = format!(
            "siskin_request_success_total{{model=\"m\",finished_reason=\"stop\"}} {}\n\
             siskin_request_success_total{{model=\"m\",finished_reason=\"error\"}} {failed}\n\
             siskin_e2e_request_latency_seconds_bucket{{model=\"m\",le=\"0.064\"}} 0\n\
             siskin_e2e_request_latency_seconds_bucket{{model=\"m\",le=\"0.128\"}} {}\n\
             siskin_e2e_request_latency_seconds_bucket{{model=\"m\",le=\"0.256\"}} {}\n\
             siskin_e2e_request_latency_seconds_bucket{{model=\"m\",le=\"0.512\"}} {requests}\n\
             siskin_e2e_request_latency_seconds_bucket{{model=\"m\",le=\"+Inf\"}} {requests}\n",
            requests - failed,
            requests - slow,
            requests - slow,
        );
        Counters::parse(&page, Some("m"))
    }

    /// The verdict after readings of growing counters, and after how many.
    fn verdict(failed: u64, slow: u64) -> (OnlineVerdict, u64) {
        let mut test = SequentialTest::new(0.05);
        let options = OnlineGateOptions::default();
        for reading in 1..=200 {
            let requests = 20 * reading;
            let stable = counters(requests, 0, requests / 100);
            let canary = counters(requests, requests * failed / 100, requests * slow / 100);
            let checks = checks(&mut test, &stable, &canary, &options);
            let report = OnlineReport { checks, problem: None, canary_restarts: 0, elapsed: Duration::ZERO };
            if report.verdict() != OnlineVerdict::Undecided {
                return (report.verdict(), reading);
            }
        }
        (OnlineVerdict::Undecided, 200)
    }

    #[test]
    fn worse_canaries_are_found_and_equal_ones_pass() {
        let (passed, after) = verdict(0, 1);
        assert_eq!(passed, OnlineVerdict::Passed);
        assert!((20..150).contains(&after), "{after}");
        for (failed, slow, most) in [(20, 1, 5), (5, 1, 60), (0, 40, 4), (0, 15, 20)] {
            let (found, after) = verdict(failed, slow);
            assert_eq!(found, OnlineVerdict::Regression, "{failed} {slow}");
            assert!(after <= most, "{failed} {slow}: {after}");
        }
        assert_eq!(verdict(1, 1).0, OnlineVerdict::Undecided, "at the bound");
    }

    #[test]
    fn restarts_do_not_lose_requests() {
        let mut accumulated = Accumulated::default();
        for (requests, failed) in [(100, 50), (110, 55), (5, 1), (25, 1)] {
            accumulated.add(counters(requests, failed, 0));
        }
        assert_eq!((accumulated.sum.requests, accumulated.sum.failed), (10 + 5 + 20, 5 + 1));
        assert_eq!(accumulated.restarts, 1);
    }

    #[test]
    fn a_process_with_another_start_time_was_restarted() {
        let page = |start: u32, requests: u32| {
            let series = "siskin_request_success_total{model=\"a\",finished_reason=\"stop\"}";
            Counters::parse(&format!("process_start_time_seconds {start}\n{series} {requests}\n"), None)
        };
        let mut accumulated = Accumulated::default();
        for (start, requests) in [(100, 5), (100, 7), (200, 30)] {
            accumulated.add(page(start, requests));
        }
        assert_eq!((accumulated.sum.requests, accumulated.restarts), (2 + 30, 1));
    }
}
