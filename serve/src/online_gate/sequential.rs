//! Confidence intervals of differences that hold at all looks together.

/// Fewer requests of the canary are no reason to look.
const FIRST_LOOK: u64 = 20;
/// How many more requests the next look needs.
const GROWTH: f64 = 1.25;

/// A share of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Proportion {
    pub(super) count: u64,
    pub(super) total: u64,
}

impl Proportion {
    pub(super) fn share(self) -> f64 {
        if self.total == 0 { 0.0 } else { self.count as f64 / self.total as f64 }
    }

    /// Returns Wilson's interval.
    fn interval(self, z: f64) -> (f64, f64) {
        if self.total == 0 {
            return (0.0, 1.0);
        }
        let (n, share, z2) = (self.total as f64, self.share(), z * z);
        let center = share + z2 / (2.0 * n);
        let margin = z * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z2 / n;
        (((center - margin) / scale).max(0.0), ((center + margin) / scale).min(1.0))
    }
}

/// A test that may be looked at again and again: the probability of an error at any look is limited, since each look may use
/// a part of it, 6/(πk)² for the k-th.
#[derive(Debug)]
pub(super) struct SequentialTest {
    error_probability: f64,
    looks: u32,
    /// The number of the canary's requests at the last look.
    requests: u64,
}

impl SequentialTest {
    pub(super) fn new(error_probability: f64) -> Self {
        Self { error_probability, looks: 0, requests: 0 }
    }

    /// Returns the intervals of the differences of pairs, canary minus stable; all possible values if there are too few further
    /// requests for a look.
    pub(super) fn look(&mut self, pairs: &[(Proportion, Proportion)]) -> Vec<(f64, f64)> {
        let requests = pairs.first().map_or(0, |(_, canary)| canary.total);
        if requests < FIRST_LOOK || (requests as f64) < GROWTH * self.requests as f64 {
            return vec![(-1.0, 1.0); pairs.len()];
        }
        (self.looks, self.requests) = (self.looks + 1, requests);
        let part = std::f64::consts::PI * f64::from(self.looks);
        let probability = self.error_probability / pairs.len() as f64 * 6.0 / (part * part);
        // At least the quantile of the normal distribution, whose tail is below exp(-z²/2) / 2.
        let z = (2.0 * (0.5 / probability).ln()).max(0.0).sqrt();
        pairs.iter().map(|(stable, canary)| difference(*stable, *canary, z)).collect()
    }
}

/// Returns the interval of the difference of two proportions (Newcombe 1998, method 10).
fn difference(stable: Proportion, canary: Proportion, z: f64) -> (f64, f64) {
    let ((stable_lower, stable_upper), (canary_lower, canary_upper)) =
        (stable.interval(z), canary.interval(z));
    let (before, after) = (stable.share(), canary.share());
    let difference = after - before;
    let lower = (after - canary_lower).hypot(stable_upper - before);
    let upper = (canary_upper - after).hypot(before - stable_lower);
    match stable.total.min(canary.total) {
        0 => (-1.0, 1.0),
        _ => (difference - lower, difference + upper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u64, total: u64) -> Proportion {
        Proportion { count, total }
    }

    #[test]
    fn intervals_are_those_of_the_article() {
        // Newcombe 1998, table II, method 10, 95%: 56/70 - 48/80, 9/10 - 3/10, 10/10 - 0/10.
        for (canary, stable, lower, upper) in [
            (of(56, 70), of(48, 80), 0.0524, 0.3339),
            (of(9, 10), of(3, 10), 0.1705, 0.8090),
            (of(10, 10), of(0, 10), 0.6075, 1.0),
        ] {
            let found = difference(stable, canary, 1.959_964);
            assert!((found.0 - lower).abs() < 1e-4 && (found.1 - upper).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn equal_servers_are_rarely_called_different() {
        let mut state = 1_u64;
        let mut fails = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u64::from((state >> 33) % 100 < 5)
        };
        let mut wrong = 0;
        for _ in 0..400 {
            let mut test = SequentialTest::new(0.05);
            let (mut stable, mut canary) = (Proportion::default(), Proportion::default());
            let mut is_wrong = false;
            for _ in 0..100 {
                for _ in 0..20 {
                    (stable.count, canary.count) = (stable.count + fails(), canary.count + fails());
                }
                (stable.total, canary.total) = (stable.total + 20, canary.total + 20);
                is_wrong |= test.look(&[(stable, canary)])[0].0 > 0.0;
            }
            wrong += u32::from(is_wrong);
        }
        assert!(wrong <= 20, "{wrong} of 400");
    }

    #[test]
    fn looks_need_further_requests() {
        let mut test = SequentialTest::new(0.05);
        assert_eq!(test.look(&[(of(0, 100), of(0, 19))]), [(-1.0, 1.0)]);
        let first = test.look(&[(of(0, 100), of(20, 20))])[0];
        assert!(first.0 > 0.3, "{first:?}");
        assert_eq!(test.look(&[(of(0, 100), of(20, 24))]), [(-1.0, 1.0)]);
        assert!(test.look(&[(of(0, 100), of(20, 25))])[0].0 > 0.3);
    }
}
