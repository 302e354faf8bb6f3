//! The candidates: tokens that may still be sampled.

use std::cmp::Ordering;

use super::SamplerRandom;

/// A token that may still be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TokenCandidate {
    pub(crate) id: u32,
    pub(crate) logit: f32,
    /// Valid after [`Candidates::softmax`] until the list shrinks.
    pub(crate) probability: f32,
}

/// Orders by descending logit, and equal logits by ascending id.
pub(crate) fn better_first(left: &TokenCandidate, right: &TokenCandidate) -> Ordering {
    right.logit.partial_cmp(&left.logit).unwrap_or(Ordering::Equal).then(left.id.cmp(&right.id))
}

/// The candidates, in an order that depends only on their values, so that sums over them round the same on every
/// machine. Never empty once filled, and never with a masked token.
#[derive(Debug)]
pub(crate) struct Candidates {
    pub(crate) items: Vec<TokenCandidate>,
    /// Whether `items` is ordered by [`better_first`].
    pub(crate) sorted: bool,
}

impl Candidates {
    /// Creates an empty list with the given capacity.
    pub(crate) fn new(room: usize) -> Self {
        Self { items: Vec::with_capacity(room), sorted: false }
    }

    /// Returns the most likely candidate.
    pub(crate) fn best(&self) -> Option<TokenCandidate> {
        if self.sorted {
            self.items.first().copied()
        } else {
            self.items.iter().copied().min_by(better_first)
        }
    }

    /// Returns the highest logit.
    pub(crate) fn highest(&self) -> f32 {
        if self.sorted {
            return self.items.first().map_or(f32::NEG_INFINITY, |candidate| candidate.logit);
        }
        self.items.iter().fold(f32::NEG_INFINITY, |highest, candidate| highest.max(candidate.logit))
    }

    /// Computes the probability of each candidate among the candidates.
    pub(crate) fn softmax(&mut self) {
        let highest = self.highest();
        let mut sum = 0.0_f64;
        for candidate in &mut self.items {
            candidate.probability = libm::expf(candidate.logit - highest);
            sum += f64::from(candidate.probability);
        }
        for candidate in &mut self.items {
            candidate.probability = (f64::from(candidate.probability) / sum) as f32;
        }
    }

    /// Returns the entropy of the probabilities, in nats.
    pub(crate) fn entropy(&self) -> f64 {
        let mut entropy = 0.0;
        for candidate in self.items.iter().filter(|candidate| candidate.probability > 0.0) {
            let probability = f64::from(candidate.probability);
            entropy -= probability * libm::log(probability);
        }
        entropy
    }

    /// Keeps the candidates that `keep` accepts, in their order; if it accepts none, keeps the best one.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&TokenCandidate) -> bool) {
        let best = self.best();
        self.items.retain(keep);
        if self.items.is_empty() {
            self.items.extend(best);
        }
    }

    /// Draws one candidate by its probability; applies softmax first.
    pub(crate) fn draw(&mut self, random: &mut SamplerRandom) -> Option<TokenCandidate> {
        self.softmax();
        let sum: f64 = self.items.iter().map(|candidate| f64::from(candidate.probability)).sum();
        let target = sum * random.unit();
        let mut running = 0.0;
        let mut chosen = None;
        for candidate in self.items.iter().filter(|candidate| candidate.probability > 0.0) {
            running += f64::from(candidate.probability);
            chosen = Some(*candidate);
            if running > target {
                break;
            }
        }
        chosen
    }
}

impl Clone for Candidates {
    /// A copy keeps the capacity, so that it does not allocate later either.
    fn clone(&self) -> Self {
        let mut items = Vec::with_capacity(self.items.capacity());
        items.extend_from_slice(&self.items);
        Self { items, sorted: self.sorted }
    }
}
