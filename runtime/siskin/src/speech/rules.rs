//! The timestamp rules of Whisper, as logits processors.

use std::sync::Arc;

use super::special::Special;
use crate::Result;
use crate::logits_processors::{LogitsProcessor, LogitsProcessorList, ProcessorContext};
use crate::sample::random::SamplerRandom;

/// The latest timestamp of the first segment of a window, in steps of 20 ms.
const LATEST_START: usize = 50;

/// A token and its log-probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoredToken {
    pub id: u32,
    pub log_probability: f32,
}

/// Forbids task and language tokens after the prompt, and timestamps where they do not belong.
pub(super) struct TimestampRules {
    pub end: usize,
    pub times: usize,
    pub wanted: bool,
}

/// Returns all logits processors of a window.
pub(super) fn of(special: &Special, with_times: bool) -> Result<LogitsProcessorList> {
    let mut list = LogitsProcessorList::new(&special.rules)?;
    list.push(Arc::new(TimestampRules {
        end: special.end as usize,
        times: special.times as usize,
        wanted: with_times,
    }));
    Ok(list)
}

impl LogitsProcessor for TimestampRules {
    fn apply(&self, scores: &mut [f32], place: &ProcessorContext<'_>) {
        let Self { end, times, wanted } = *self;
        fill(scores, end + 1, times);
        if wanted {
            let count = scores.len();
            forbid_times(scores, place.text.get(place.prompt..).unwrap_or_default(), (end, times, count));
            // If all timestamps together are more likely than any text token, the next token is a timestamp.
            let (text, stamps) = scores.split_at_mut(times.min(count));
            if log_sum(stamps) > max(text) {
                text.fill(f32::NEG_INFINITY);
            }
        }
    }
}

/// Timestamps come in pairs, except the first and the last, and never decrease; a segment has a positive duration.
fn forbid_times(scores: &mut [f32], written: &[u32], (end, times, count): (usize, usize, usize)) {
    let is_time = |id: &u32| *id as usize >= times;
    let Some(last) = written.last() else {
        fill(scores, 0, times);
        return fill(scores, times + LATEST_START + 1, count);
    };
    let second = written.len().checked_sub(2).and_then(|at| written.get(at));
    let opens = is_time(last) && second.is_none_or(is_time);
    let closes = is_time(last) && !opens;
    if opens {
        fill(scores, times, count);
    } else if closes {
        fill(scores, 0, end);
    }
    if let Some(latest) = written.iter().rfind(|id| is_time(id)) {
        fill(scores, times, *latest as usize + usize::from(!closes));
    }
}

fn fill(scores: &mut [f32], from: usize, to: usize) {
    let to = to.min(scores.len());
    if let Some(part) = scores.get_mut(from..to) {
        part.fill(f32::NEG_INFINITY);
    }
}

fn max(scores: &[f32]) -> f64 {
    f64::from(scores.iter().fold(f32::NEG_INFINITY, |max, score| max.max(*score)))
}

/// Returns log Σ exp; negative infinity for an empty list.
fn log_sum(scores: &[f32]) -> f64 {
    let max = max(scores);
    if max == f64::NEG_INFINITY {
        return max;
    }
    let sum: f64 = scores.iter().map(|score| libm::exp(f64::from(*score) - max)).sum();
    max + libm::log(sum)
}

/// Returns the token with the highest score, the first one of several, or a sampled token if `temperature` is positive;
/// the end token if all are forbidden.
pub(super) fn choose(
    scores: &[f32],
    special: &Special,
    temperature: f32,
    random: &mut SamplerRandom,
) -> ScoredToken {
    let highest = max(scores);
    if highest == f64::NEG_INFINITY {
        return ScoredToken { id: special.end, log_probability: 0.0 };
    }
    let at = match temperature > 0.0 {
        true => by_chance(scores, highest, f64::from(temperature), random),
        false => scores.iter().position(|score| f64::from(*score) == highest),
    };
    let at = at.unwrap_or(special.end as usize);
    let score = scores.get(at).copied().unwrap_or(f32::NEG_INFINITY);
    ScoredToken { id: at as u32, log_probability: (f64::from(score) - log_sum(scores)) as f32 }
}

fn by_chance(scores: &[f32], highest: f64, temperature: f64, random: &mut SamplerRandom) -> Option<usize> {
    let share = |score: &f32| libm::exp((f64::from(*score) - highest) / temperature);
    let mut rest = random.unit() * scores.iter().map(share).sum::<f64>();
    let found = scores.iter().position(|score| {
        rest -= share(score);
        rest < 0.0
    });
    found.or_else(|| scores.iter().rposition(|score| share(score) > 0.0))
}

/// Returns the probability of `id` among `ids`, or among all tokens if `ids` is empty.
pub(super) fn probability(scores: &[f32], id: u32, among: &[u32]) -> f32 {
    let score = |id: u32| scores.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let all = match among.is_empty() {
        true => log_sum(scores),
        false => log_sum(&among.iter().map(|&id| score(id)).collect::<Vec<_>>()),
    };
    libm::exp(f64::from(score(id)) - all) as f32
}
