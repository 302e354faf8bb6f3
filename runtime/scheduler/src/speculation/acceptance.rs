//! How likely draft tokens are right, from those before.

use super::MAX_DRAFTS;

/// The weight of a new observation.
const WEIGHT: f32 = 0.1;
/// The assumption before any: draft tokens are tried.
const PRIOR: f32 = 0.6;

/// New requests start with at least this, since their text may repeat more than others did.
const FLOOR: f32 = 0.4;

/// For each position of a chain: how often its draft token was right after all before it were.
#[derive(Clone, Debug)]
pub(crate) struct Acceptance {
    rates: [f32; MAX_DRAFTS],
}

impl Default for Acceptance {
    fn default() -> Self {
        Self { rates: [PRIOR; MAX_DRAFTS] }
    }
}

impl Acceptance {
    /// Returns the rates that a new request starts with.
    pub(crate) fn for_new_request(&self) -> Self {
        Self { rates: self.rates.map(|rate| rate.max(FLOOR)) }
    }

    /// Records that the first `accepted` of `proposed` draft tokens were right.
    pub(crate) fn record(&mut self, proposed: usize, accepted: usize) {
        let observed = self.rates.iter_mut().take(proposed.min(accepted + 1));
        for (position, rate) in observed.enumerate() {
            let outcome = if position < accepted { 1.0 } else { 0.0 };
            *rate += WEIGHT * (outcome - *rate);
        }
    }

    /// Returns the probability that the first `count` draft tokens are right, for each `count` from 1.
    pub(crate) fn chain(&self) -> [f32; MAX_DRAFTS] {
        let mut chain = 1.0;
        self.rates.map(|rate| {
            chain *= rate;
            chain
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_that_were_observed() {
        let mut acceptance = Acceptance::default();
        // The first two are right, the third is not, further ones are not reached.
        (0..100).for_each(|_| acceptance.record(4, 2));
        let chain = acceptance.chain();
        assert!(chain[1] > 0.99 && chain[2] < 0.01, "{chain:?}");
        assert_eq!(acceptance.rates[3], PRIOR);
        acceptance.record(0, 0);
        assert_eq!(acceptance.rates[3], PRIOR);
    }
}
