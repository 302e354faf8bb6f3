//! From logits to the scores of what may come next.

use crate::rules::{Place, RuleList};

/// When rules change scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once they are logarithms of probabilities.
    After,
    /// Before: what they leave sums up to one.
    Before,
}

/// Turns logits into logarithms of probabilities. Minus infinity stays; where nothing else is, all stays.
pub(crate) fn log_softmax(scores: &mut [f32]) {
    let most = scores.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    if most == f32::NEG_INFINITY {
        return;
    }
    let sum: f64 = scores.iter().map(|score| f64::from(libm::expf(score - most))).sum();
    let whole = f64::from(most) + libm::log(sum);
    scores.iter_mut().for_each(|score| *score = (f64::from(*score) - whole) as f32);
}

/// A sum of logarithms over a text of `length` tokens, divided by a power of its length.
pub(crate) fn normalise(sum: f64, length: usize, power: f32) -> f64 {
    sum / libm::pow(length as f64, f64::from(power))
}

/// The rules, and when they come.
#[derive(Clone)]
pub(super) struct Scorer {
    pub rules: RuleList,
    pub when: When,
}

impl Scorer {
    /// Turns logits into scores; `taken` is taken from single ones before rules come.
    pub(super) fn score(&self, scores: &mut [f32], place: &Place<'_>, taken: &[(u32, f32)]) {
        if self.when == When::Before {
            self.rules.apply(scores, place);
        }
        log_softmax(scores);
        for &(id, part) in taken {
            if let Some(score) = scores.get_mut(id as usize) {
                *score -= part;
            }
        }
        if self.when == When::After {
            self.rules.apply(scores, place);
        }
    }
}

/// How a beginning may go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// The sum of the logarithms with this token.
    pub sum: f64,
    /// Which beginning.
    pub of: usize,
    pub id: u32,
}

/// The best steps, best first; of equal ones the first that came.
pub(super) struct Best {
    pub steps: Vec<Step>,
    room: usize,
}

impl Best {
    pub(super) fn new(room: usize) -> Self {
        Self { steps: Vec::with_capacity(room + 1), room }
    }

    /// Offers every step from a beginning whose sum so far is `base`.
    pub(super) fn offer(&mut self, of: usize, base: f64, scores: &[f32]) {
        let mut bar = self.bar();
        for (id, &score) in scores.iter().enumerate() {
            let sum = base + f64::from(score);
            if sum <= bar {
                continue;
            }
            let at = self.steps.partition_point(|step| step.sum >= sum);
            self.steps.insert(at, Step { sum, of, id: id as u32 });
            self.steps.truncate(self.room);
            bar = self.bar();
        }
    }

    /// What a step has to be above.
    fn bar(&self) -> f64 {
        match self.steps.last() {
            Some(last) if self.steps.len() == self.room => last.sum,
            _ => f64::NEG_INFINITY,
        }
    }
}
