//! From logits to the scores of what may come next.

use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::activation::Kind;

use crate::logits_processors::{Place, RuleList};

/// When rules change scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once they are logarithms of probabilities.
    After,
    /// Before: what they leave sums up to one.
    Before,
}

/// Numbers that are looked at together.
const LANES: usize = 16;
/// Numbers whose exponentials are computed at once.
const CHUNK: usize = 512;

/// Turns logits into logarithms of probabilities. Minus infinity stays; where nothing else is, all stays.
pub(super) fn log_softmax(kernels: &Kernels, scores: &mut [f32]) {
    let most = largest(scores);
    if most == f32::NEG_INFINITY {
        return;
    }
    let (mut below, mut powers, mut sums) = ([0.0; CHUNK], [0.0; CHUNK], [0.0_f64; LANES]);
    for chunk in scores.chunks(CHUNK) {
        let (below, powers) = (&mut below[..chunk.len()], &mut powers[..chunk.len()]);
        below.iter_mut().zip(chunk).for_each(|(below, score)| *below = score - most);
        // Nothing is above zero, and below the function is the exponential.
        kernels.activate()(Kind::EluPlusOne, below, powers);
        for powers in powers.chunks(LANES) {
            sums.iter_mut().zip(powers).for_each(|(sum, power)| *sum += f64::from(*power));
        }
    }
    let whole = f64::from(most) + libm::log(sums.iter().sum());
    scores.iter_mut().for_each(|score| *score = (f64::from(*score) - whole) as f32);
}

/// The largest number; what is no number is left out.
fn largest(numbers: &[f32]) -> f32 {
    let mut most = [f32::NEG_INFINITY; LANES];
    for numbers in numbers.chunks(LANES) {
        most.iter_mut().zip(numbers).for_each(|(most, number)| *most = most.max(*number));
    }
    most.into_iter().fold(f32::NEG_INFINITY, f32::max)
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
    pub kernels: Kernels,
}

impl Scorer {
    /// Turns logits into scores; `taken` is taken from single ones before rules come.
    pub(super) fn score(&self, scores: &mut [f32], place: &Place<'_>, taken: &[(u32, f32)]) {
        if self.when == When::Before {
            self.rules.apply(scores, place);
        }
        log_softmax(&self.kernels, scores);
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
        for (chunk, scores) in scores.chunks(CHUNK).enumerate() {
            // Most of a vocabulary is nowhere near.
            if base + f64::from(largest(scores)) <= bar {
                continue;
            }
            for (index, &score) in scores.iter().enumerate() {
                let sum = base + f64::from(score);
                if sum <= bar {
                    continue;
                }
                let at = self.steps.partition_point(|step| step.sum >= sum);
                self.steps.insert(at, Step { sum, of, id: (chunk * CHUNK + index) as u32 });
                self.steps.truncate(self.room);
                bar = self.bar();
            }
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
