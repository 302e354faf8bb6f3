//! From logits to the scores of candidate tokens.

use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::activation::ActivationFunction;

use crate::logits_processors::{LogitsProcessorList, ProcessorContext};

/// When logits processors are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// After log-softmax, to log-probabilities.
    After,
    /// Before log-softmax, to logits: the remaining probabilities sum to one.
    Before,
}

/// Values that are compared at once.
const LANES: usize = 16;
/// Values whose exponentials are computed at once.
const CHUNK: usize = 512;

/// Computes the log-softmax in place. Negative infinity stays; if all values are negative infinity, nothing changes.
pub(crate) fn log_softmax(kernels: &Kernels, scores: &mut [f32]) {
    let max = largest(scores);
    if max == f32::NEG_INFINITY {
        return;
    }
    let (mut below, mut powers, mut sums) = ([0.0; CHUNK], [0.0; CHUNK], [0.0_f64; LANES]);
    for chunk in scores.chunks(CHUNK) {
        let (below, powers) = (&mut below[..chunk.len()], &mut powers[..chunk.len()]);
        below.iter_mut().zip(chunk).for_each(|(below, score)| *below = score - max);
        // All inputs are at most zero, where ELU + 1 equals the exponential.
        kernels.activate()(ActivationFunction::EluPlusOne, below, powers);
        for powers in powers.chunks(LANES) {
            sums.iter_mut().zip(powers).for_each(|(sum, power)| *sum += f64::from(*power));
        }
    }
    let whole = f64::from(max) + libm::log(sums.iter().sum());
    scores.iter_mut().for_each(|score| *score = (f64::from(*score) - whole) as f32);
}

/// Returns the maximum, ignoring NaN.
fn largest(numbers: &[f32]) -> f32 {
    let mut max = [f32::NEG_INFINITY; LANES];
    for numbers in numbers.chunks(LANES) {
        max.iter_mut().zip(numbers).for_each(|(lane, number)| *lane = lane.max(*number));
    }
    max.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Returns a sum of log-probabilities of a text of `length` tokens, divided by a power of its length.
pub(crate) fn apply_length_penalty(sum: f64, length: usize, power: f32) -> f64 {
    sum / libm::pow(length as f64, f64::from(power))
}

/// The logits processors, and when they are applied.
#[derive(Clone)]
pub(super) struct Scorer {
    pub rules: LogitsProcessorList,
    pub when: When,
    pub kernels: Kernels,
}

impl Scorer {
    /// Turns logits into scores; the values in `taken` are subtracted from single tokens before processors are applied.
    pub(super) fn score(&self, scores: &mut [f32], place: &ProcessorContext<'_>, taken: &[(u32, f32)]) {
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

/// A candidate: a hypothesis extended by one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BeamCandidate {
    /// The sum of log-probabilities, this token included.
    pub sum: f64,
    /// The index of the hypothesis.
    pub of: usize,
    pub id: u32,
}

/// The best steps, best first; of equal ones the first that was offered.
pub(super) struct Best {
    pub steps: Vec<BeamCandidate>,
    room: usize,
}

impl Best {
    pub(super) fn new(room: usize) -> Self {
        Self { steps: Vec::with_capacity(room + 1), room }
    }

    /// Offers every extension of a hypothesis whose sum so far is `base`.
    pub(super) fn offer(&mut self, of: usize, base: f64, scores: &[f32]) {
        let mut bar = self.bar();
        for (chunk, scores) in scores.chunks(CHUNK).enumerate() {
            // Most of the vocabulary scores far below the threshold.
            if base + f64::from(largest(scores)) <= bar {
                continue;
            }
            for (index, &score) in scores.iter().enumerate() {
                let sum = base + f64::from(score);
                if sum <= bar {
                    continue;
                }
                let at = self.steps.partition_point(|step| step.sum >= sum);
                self.steps.insert(at, BeamCandidate { sum, of, id: (chunk * CHUNK + index) as u32 });
                self.steps.truncate(self.room);
                bar = self.bar();
            }
        }
    }

    /// Returns the threshold that a step must exceed.
    fn bar(&self) -> f64 {
        match self.steps.last() {
            Some(last) if self.steps.len() == self.room => last.sum,
            _ => f64::NEG_INFINITY,
        }
    }
}
