//! The share of its usual requests that a load balancer should send to a model: less when requests fail, none when too many
//! do.

use std::time::Duration;

/// At this rate of errors, a model gets no requests.
const MAX_ERROR_RATE: f64 = 0.1;
/// Fewer failures are inconclusive.
const MIN_FAILURES: usize = 3;
/// The quantile of the normal distribution for a one-sided confidence of 95%.
const CONFIDENCE: f64 = 1.644_854;
/// How long a model gets no requests at first; twice as long each further time. Longer than outcomes count.
const FIRST_PAUSE: Duration = Duration::from_secs(20);
const MAX_PAUSE: Duration = Duration::from_secs(20 * 60);
/// How long the share grows after a pause, and from what.
const RAMP_TIME: Duration = Duration::from_secs(60);
const RAMP_START: f64 = 0.1;
/// Pauses are short again after this time without one.
const MEMORY: Duration = Duration::from_secs(30 * 60);

/// The share of a model. Times are measured from when the model was loaded.
#[derive(Debug)]
pub(crate) struct TrafficShare {
    /// When the last pause ends.
    resumes: Option<Duration>,
    next_pause: Duration,
}

impl TrafficShare {
    pub(crate) fn new() -> Self {
        Self { resumes: None, next_pause: FIRST_PAUSE }
    }

    /// Returns the share in percent, given how many of `total` recent requests failed.
    pub(crate) fn percent(&mut self, now: Duration, failed: usize, total: usize) -> u32 {
        if self.resumes.is_some_and(|resumes| now < resumes) {
            return 0;
        }
        let health = 1.0 - error_rate(failed, total) / MAX_ERROR_RATE;
        if health <= 0.0 {
            self.resumes = Some(now + self.next_pause);
            self.next_pause = (self.next_pause * 2).min(MAX_PAUSE);
            return 0;
        }
        let since = self.resumes.map(|resumes| now.saturating_sub(resumes));
        if since.is_some_and(|since| since >= MEMORY) {
            *self = Self::new();
        }
        let ramp = since.map_or(1.0, |since| RAMP_START + since.as_secs_f64() / RAMP_TIME.as_secs_f64());
        ((100.0 * health.min(ramp).min(1.0)).round() as u32).max(1)
    }
}

/// Returns the rate of errors that is exceeded with a confidence of 95% (the lower bound of Wilson's interval).
fn error_rate(failed: usize, total: usize) -> f64 {
    if failed < MIN_FAILURES || total == 0 {
        return 0.0;
    }
    let (n, rate) = (total as f64, failed as f64 / total as f64);
    let z2 = CONFIDENCE * CONFIDENCE;
    let center = rate + z2 / (2.0 * n);
    let margin = CONFIDENCE * (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
    ((center - margin) / (1.0 + z2 / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_lower_the_share() {
        let share = |failed, total| TrafficShare::new().percent(Duration::ZERO, failed, total);
        assert_eq!((share(0, 0), share(0, 100), share(2, 2)), (100, 100, 100));
        assert_eq!((share(3, 4), share(8, 40), share(50, 100), share(1000, 1000)), (0, 0, 0, 0));
        // One of a hundred fails: the rate is hardly above zero with any confidence.
        assert!(share(3, 300) >= 95, "{}", share(3, 300));
        let few = share(20, 400);
        assert!((50..80).contains(&few), "{few}");
        assert!(share(40, 4000) > 85);
    }

    #[test]
    fn bounds_solve_the_equation_of_the_score_test() {
        // The roots of rate - p = z * sqrt(p * (1 - p) / n), found by bisection.
        for (failed, total, expected) in [(10, 100, 0.060_719), (5, 10, 0.269_272), (200, 1000, 0.180_016)] {
            assert!(
                (error_rate(failed, total) - expected).abs() < 1e-5,
                "{failed}: {}",
                error_rate(failed, total)
            );
        }
    }

    #[test]
    fn pauses_get_longer_and_end_slowly() {
        let at = Duration::from_secs;
        let mut share = TrafficShare::new();
        assert_eq!(share.percent(at(100), 10, 20), 0);
        assert_eq!(share.percent(at(119), 0, 0), 0, "no requests, no failures");
        assert_eq!(share.percent(at(120), 0, 0), 10);
        assert_eq!(share.percent(at(150), 0, 50), 60);
        assert_eq!(share.percent(at(180), 0, 50), 100);
        assert_eq!(share.percent(at(200), 5, 10), 0);
        assert_eq!((share.percent(at(239), 0, 0), share.percent(at(240), 0, 0)), (0, 10), "twice as long");
        assert_eq!(share.percent(at(240 + 1800), 0, 0), 100);
        assert_eq!(share.percent(at(3000), 5, 10), 0);
        assert_eq!(share.percent(at(3020), 0, 0), 10, "short again after a long time");
    }
}
