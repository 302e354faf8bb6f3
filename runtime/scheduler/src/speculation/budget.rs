//! How many draft tokens are worth their time.

use super::MAX_DRAFTS;

/// Draft tokens are only used if they raise the expected throughput by this factor.
pub(crate) const MIN_GAIN: f64 = 1.02;

/// Passes without draft tokens after which some are tried, since the text may have changed.
pub(crate) const RETRY: u32 = 64;

/// How many draft tokens a pass can use for a request, and which of them pay.
#[derive(Clone, Debug)]
pub struct DraftBudget {
    /// The maximum number of draft tokens.
    pub limit: usize,
    /// The probability that the first draft tokens are right, for each number of them from 1.
    pub(crate) chain: [f32; MAX_DRAFTS],
    /// The tokens per second of the pass without draft tokens; infinite while unknown: nothing is worth time then.
    pub(crate) tokens_per_second: f64,
    /// How much longer a pass takes for each draft token that it verifies.
    pub(crate) seconds_per_row: f64,
}

impl DraftBudget {
    /// Returns a budget that any draft token is worth.
    pub fn unlimited(limit: usize) -> Self {
        Self { limit, chain: [1.0; MAX_DRAFTS], tokens_per_second: 0.0, seconds_per_row: 0.0 }
    }

    /// Returns how many draft tokens are expected to raise the throughput, if each takes `seconds` to make, beside the time
    /// to verify it. The time of the pass itself is spent anyway.
    pub fn worthwhile(&self, seconds: f64) -> usize {
        let cost = MIN_GAIN * self.tokens_per_second * (seconds + self.seconds_per_row);
        let pays = |chain: &&f32| f64::from(**chain) > cost;
        self.chain.iter().take(self.limit).take_while(pays).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_pay_while_they_come_faster_than_tokens() {
        let chain = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2];
        // 100 tokens per second without draft tokens.
        let budget = DraftBudget { limit: 8, chain, tokens_per_second: 100.0, seconds_per_row: 0.001 };
        assert_eq!(budget.worthwhile(0.0), 8);
        assert_eq!(budget.worthwhile(0.004), 4);
        assert_eq!(budget.worthwhile(0.009), 0);
        assert_eq!(DraftBudget { limit: 2, ..budget.clone() }.worthwhile(0.004), 2);
        let unknown = DraftBudget { tokens_per_second: f64::INFINITY, ..budget };
        assert_eq!(unknown.worthwhile(0.001), 0, "how long a pass takes is not known yet");
        assert_eq!(DraftBudget::unlimited(5).worthwhile(1e6), 5);
    }
}
