//! What the server does when requests have to wait for long: it gives up, in this order, what costs clients least. It never
//! answers with another model unless the client allows it, and says what it did.

use std::time::Duration;

/// How much is given up. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DegradationLevel {
    /// Nothing.
    #[default]
    None,
    /// Speculative decoding, whose rows are used for others. Responses stay the same.
    NoSpeculation,
    /// Requests of the lowest priority, which wait until nothing else runs.
    BatchWaits,
    /// Long responses, which are cut.
    ShortResponses,
    /// The model: requests that allow it are answered by a smaller one.
    Fallback,
    /// Further requests, which are rejected.
    Reject,
}

impl DegradationLevel {
    const ALL: [Self; 6] = [
        Self::None,
        Self::NoSpeculation,
        Self::BatchWaits,
        Self::ShortResponses,
        Self::Fallback,
        Self::Reject,
    ];

    /// Returns the level for requests that would wait for `predicted`: the first beyond `after`, each further one at twice the
    /// time. `None`: there are no levels.
    pub(crate) fn of(predicted: Duration, after: Option<Duration>) -> Self {
        let Some(after) = after.filter(|after| !after.is_zero()) else { return Self::None };
        let reached = (0..5).take_while(|level| predicted > after.saturating_mul(1 << level)).count();
        Self::ALL[reached]
    }

    /// Returns its number, for metrics.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_predicted_wait() {
        let level = |seconds: f64| {
            DegradationLevel::of(Duration::from_secs_f64(seconds), Some(Duration::from_secs(2)))
        };
        assert_eq!(level(0.0), DegradationLevel::None);
        assert_eq!(level(2.0), DegradationLevel::None);
        assert_eq!(level(2.1), DegradationLevel::NoSpeculation);
        assert_eq!(level(4.1), DegradationLevel::BatchWaits);
        assert_eq!(level(8.1), DegradationLevel::ShortResponses);
        assert_eq!(level(16.1), DegradationLevel::Fallback);
        assert_eq!(level(32.1), DegradationLevel::Reject);
        assert_eq!(level(1e9), DegradationLevel::Reject);
        assert_eq!(DegradationLevel::of(Duration::MAX, None), DegradationLevel::None);
        assert_eq!(DegradationLevel::Reject.number(), 5);
    }
}
