//! The sampler chain: from the logits of one step to the next token.
//!
//! The chain works in place in buffers allocated at its creation and allocates nothing per token. Its order is
//!
//! 1. edits of the logits of the whole vocabulary, in `EDITS`: logit bias, penalties, DRY, logits processors; then the
//!    constraint, if there is one, which may also force the token and end the chain;
//! 2. greedy choice if the temperature is 0, which ends the chain;
//! 3. the candidates: top-k;
//! 4. the filters in `FILTERS`: typical, top-p, min-p, XTC, temperature, Mirostat 2 (which turns the other truncations
//!    off);
//! 5. the draw.
//!
//! It uses only this crate's own arithmetic and no function of the platform's math library, so that a seed gives the
//! same tokens on every machine. Of equal logits the lowest id comes first.
//!
//! To add a step, add a file with a `build` function and a line in one of the two lists.

mod bias;
mod candidates;
mod dry;
mod history;
mod min_p;
mod mirostat;
mod options;
pub(crate) mod random;
mod repetition_penalties;
mod rules;
mod temperature;
mod top_k;
mod top_p;
mod typical;
mod xtc;

#[cfg(test)]
mod tests;

use candidates::{Candidates, TokenCandidate};
pub use options::SamplerOptions;
use random::SamplerRandom;

use crate::constraint::{ConstraintState, TokenConstraint};
use crate::{Error, ErrorKind, Result};

/// A step that changes logits of the whole vocabulary.
///
/// Scores are below infinity and never NaN, before and after; negative infinity means masked.
trait Edit: Send + Sync {
    /// Changes `scores`, one per token of the vocabulary.
    fn apply(&mut self, scores: &mut [f32]);
    /// Records a token that was appended to the text.
    fn accept(&mut self, _id: u32) {}
    /// Marks the end of the prompt: up to `max_tokens` tokens follow. `source` is the encoder input, if there is one.
    fn begin(&mut self, _source: &[u32], _max_tokens: usize) {}
    /// Resets the history.
    fn reset(&mut self) {}
    /// Returns a copy with the same state and capacity.
    fn fork(&self) -> Box<dyn Edit>;
}

/// A step that truncates or reweighs the candidates; it keeps at least one.
trait Filter: Send + Sync {
    /// Changes the candidates.
    fn apply(&mut self, candidates: &mut Candidates, random: &mut SamplerRandom);
    /// Records the draw of a candidate that had `probability` among the last ones.
    fn drawn(&mut self, _probability: f32) {}
    /// Restores the initial state.
    fn reset(&mut self) {}
    /// Returns a copy with the same state and capacity.
    fn fork(&self) -> Box<dyn Filter>;
}

type Build<Step> = fn(&SamplerOptions, usize) -> Option<Box<Step>>;

const EDITS: &[Build<dyn Edit>] = &[bias::build, repetition_penalties::build, dry::build, rules::build];

const FILTERS: &[Build<dyn Filter>] =
    &[typical::build, top_p::build, min_p::build, xtc::build, temperature::build, mirostat::build];

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledToken {
    /// The token.
    pub id: u32,
    /// Its natural log-probability under the softmax of the logits as given, before any step; NaN unless
    /// [`SamplerOptions::log_probabilities`] is set.
    pub log_probability: f32,
}

/// Samples tokens.
///
/// ```
/// use siskin::sample::{Sampler, SamplerOptions};
///
/// let options = SamplerOptions { repetition_penalty: 2.0, ..SamplerOptions::greedy() };
/// let mut sampler = Sampler::new(&options, 3)?;
/// let logits = [1.0, 3.0, 2.0];
///
/// let choice = sampler.sample(&logits)?;
/// assert_eq!(choice.id, 1);
///
/// sampler.accept(choice.id);
/// assert_eq!(sampler.sample(&logits)?.id, 2, "3.0 / 2 is below 2.0");
/// # Ok::<(), siskin::Error>(())
/// ```
pub struct Sampler {
    options: SamplerOptions,
    vocabulary_size: usize,
    edits: Vec<Box<dyn Edit>>,
    filters: Vec<Box<dyn Filter>>,
    constraint: Option<ConstraintState>,
    random: SamplerRandom,
    scores: Vec<f32>,
    candidates: Candidates,
    best: Vec<TokenCandidate>,
    top: Vec<SampledToken>,
}

/// Returns the `count` most likely tokens, best first.
pub(crate) fn most_likely(log_probabilities: &[f32], count: usize) -> Vec<SampledToken> {
    let mut best = Vec::new();
    top_k::best(&mut best, log_probabilities, count.min(log_probabilities.len()));
    best.iter().map(|best| SampledToken { id: best.id, log_probability: best.logit }).collect()
}

impl Sampler {
    /// Creates a chain for a vocabulary and allocates all of its memory.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if an option is out of its range or names a token outside the vocabulary.
    pub fn new(options: &SamplerOptions, vocabulary_size: usize) -> Result<Self> {
        options.validate()?;
        if vocabulary_size == 0 || u32::try_from(vocabulary_size).is_err() {
            let message = format!("expected the number of logits of the model, got {vocabulary_size}");
            return Err(Error::argument("vocabulary_size", message));
        }
        if let Some((id, _)) = options.logit_bias.iter().find(|(id, _)| *id as usize >= vocabulary_size) {
            let message = format!("token {id} does not exist; the vocabulary has {vocabulary_size} tokens");
            return Err(Error::argument("logit_bias", message));
        }
        options.logits_processors.validate_for(vocabulary_size)?;
        let edits: Vec<_> = EDITS.iter().filter_map(|build| build(options, vocabulary_size)).collect();
        let greedy = options.temperature == 0.0;
        let filters = if greedy { &[] } else { FILTERS };
        let room = if greedy { 0 } else { top_k::room_for(options, vocabulary_size) };
        let reported = options.top_log_probabilities.min(vocabulary_size);
        let reported_room = if reported == 0 { 0 } else { top_k::room(vocabulary_size, reported) };
        Ok(Self {
            vocabulary_size,
            scores: vec![0.0; if edits.is_empty() { 0 } else { vocabulary_size }],
            edits,
            filters: filters.iter().filter_map(|build| build(options, vocabulary_size)).collect(),
            constraint: None,
            random: SamplerRandom::new(options.seed),
            candidates: Candidates::new(room),
            best: Vec::with_capacity(reported_room),
            top: Vec::with_capacity(reported),
            options: options.clone(),
        })
    }

    /// Samples the next token from `logits`. The history is not changed: call [`accept`](Self::accept) to append the
    /// token. A constraint is: the token that it allows is a part of its text.
    ///
    /// A logit of negative infinity masks its token.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the number of logits is not the vocabulary size; [`ErrorKind::Numeric`] if a logit is
    /// NaN or positive infinity, or if all tokens are masked; those of the constraint.
    pub fn sample(&mut self, logits: &[f32]) -> Result<SampledToken> {
        if logits.len() != self.vocabulary_size {
            let message = format!("expected {} logits, found {}", self.vocabulary_size, logits.len());
            return Err(Error::argument("logits", message));
        }
        let raw_highest = highest(logits)?;
        let forced = self.constraint.as_mut().map_or(Ok(None), ConstraintState::forced)?;
        let id = match forced {
            Some(forced) => forced,
            None => self.choose(logits, raw_highest)?.ok_or_else(all_masked)?,
        };
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
        }
        Ok(SampledToken { id, log_probability: self.report(logits, raw_highest, id) })
    }

    /// Chooses a token that the constraint does not force; `None` if all are masked.
    fn choose(&mut self, logits: &[f32], raw_highest: f32) -> Result<Option<u32>> {
        let is_greedy = self.options.temperature == 0.0;
        let is_edited = !self.edits.is_empty() || self.constraint.is_some();
        if is_edited {
            self.scores.copy_from_slice(logits);
            for edit in &mut self.edits {
                edit.apply(&mut self.scores);
            }
        }
        match &mut self.constraint {
            Some(constraint) if is_greedy => return constraint.greedy(&mut self.scores),
            Some(constraint) => constraint.apply(&mut self.scores)?,
            None => {}
        }
        let scores = if is_edited { &self.scores } else { logits };
        if is_greedy {
            let bar = if is_edited { highest(scores)? } else { raw_highest };
            return Ok(scores.iter().position(|score| *score == bar).map(|id| id as u32));
        }
        let keep = if self.options.mirostat { 0 } else { self.options.top_k };
        top_k::fill(&mut self.candidates, scores, keep);
        Ok(self.draw())
    }

    /// Sets the constraint of the text after the prompt; `None`: no constraint.
    pub fn set_constraint(&mut self, constraint: Option<Box<dyn TokenConstraint>>) {
        let room = if self.edits.is_empty() && constraint.is_none() { 0 } else { self.vocabulary_size };
        self.scores.resize(room, 0.0);
        self.constraint = constraint.map(|constraint| ConstraintState::new(constraint, self.vocabulary_size));
    }

    /// Returns whether a constraint allows nothing but the end of the text. False without a constraint.
    pub fn is_complete(&mut self) -> Result<bool> {
        self.constraint.as_mut().map_or(Ok(false), ConstraintState::is_complete)
    }

    /// Returns the token that a constraint forces next, if there is one, and makes it a part of the constraint's text: the
    /// model's logits are not needed. As after [`sample`](Self::sample), call [`accept`](Self::accept).
    pub fn next_forced(&mut self) -> Result<Option<u32>> {
        let Some(constraint) = &mut self.constraint else { return Ok(None) };
        let forced = constraint.forced()?;
        forced.map(|token| constraint.accept(token).map(|()| token)).transpose()
    }

    fn draw(&mut self) -> Option<u32> {
        if self.candidates.items.is_empty() {
            return None;
        }
        for filter in &mut self.filters {
            filter.apply(&mut self.candidates, &mut self.random);
        }
        let chosen = self.candidates.draw(&mut self.random)?;
        for filter in &mut self.filters {
            filter.drawn(chosen.probability);
        }
        Some(chosen.id)
    }

    /// Returns the log-probability of `id`; fills `top`.
    fn report(&mut self, logits: &[f32], highest: f32, id: u32) -> f32 {
        let count = self.options.top_log_probabilities.min(self.vocabulary_size);
        if !self.options.log_probabilities && count == 0 {
            return f32::NAN;
        }
        let sum: f64 = logits.iter().map(|logit| f64::from(libm::expf(logit - highest))).sum();
        let scale = f64::from(highest) + libm::log(sum);
        let log_probability = |logit: f32| (f64::from(logit) - scale) as f32;
        top_k::best(&mut self.best, logits, count);
        self.top.clear();
        self.top.extend(
            self.best
                .iter()
                .map(|best| SampledToken { id: best.id, log_probability: log_probability(best.logit) }),
        );
        logits.get(id as usize).map_or(f32::NAN, |logit| log_probability(*logit))
    }

    /// Returns the most likely tokens of the last sampling step, best first, under the softmax of the logits as given:
    /// [`SamplerOptions::top_log_probabilities`] tokens, or fewer if the others are masked.
    pub fn top(&self) -> &[SampledToken] {
        &self.top
    }

    /// Appends a token to the history, of the prompt or sampled.
    pub fn accept(&mut self, id: u32) {
        for edit in &mut self.edits {
            edit.accept(id);
        }
    }

    /// Marks the end of the prompt: up to `max_tokens` tokens follow. `source` is the encoder input, if there is one. Without
    /// this call, logits processors treat the tokens accepted before the first sampling step as the prompt.
    ///
    /// A constraint begins with the next token.
    pub fn begin(&mut self, source: &[u32], max_tokens: usize) {
        self.constraint.iter_mut().for_each(ConstraintState::reset);
        self.edits.iter_mut().for_each(|edit| edit.begin(source, max_tokens));
    }

    /// Replaces the history by `text`.
    pub fn set_history(&mut self, text: &[u32]) {
        for edit in &mut self.edits {
            edit.reset();
            text.iter().for_each(|&id| edit.accept(id));
        }
    }

    /// Returns the state of the random number generator, for another sampler to continue from.
    pub(crate) fn chance(&self) -> [u64; 4] {
        self.random.state()
    }

    /// Sets the state of the random number generator.
    pub(crate) fn set_chance(&mut self, state: [u64; 4]) {
        self.random = SamplerRandom::of_state(state);
    }

    /// Clears the history, reseeds the random number generator and begins the constraint again.
    pub fn reset(&mut self) {
        self.random = SamplerRandom::new(self.options.seed);
        self.edits.iter_mut().for_each(|edit| edit.reset());
        self.filters.iter_mut().for_each(|filter| filter.reset());
        self.constraint.iter_mut().for_each(ConstraintState::reset);
        self.top.clear();
    }

    /// Returns the options given at creation.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// Returns the number of logits that [`sample`](Self::sample) expects.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }
}

impl Clone for Sampler {
    /// Forks the chain: both continue from the same state, and neither allocates per token.
    fn clone(&self) -> Self {
        let mut top = Vec::with_capacity(self.top.capacity());
        top.extend_from_slice(&self.top);
        Self {
            options: self.options.clone(),
            vocabulary_size: self.vocabulary_size,
            edits: self.edits.iter().map(|edit| edit.fork()).collect(),
            filters: self.filters.iter().map(|filter| filter.fork()).collect(),
            constraint: self.constraint.clone(),
            random: self.random.clone(),
            scores: self.scores.clone(),
            candidates: self.candidates.clone(),
            best: Vec::with_capacity(self.best.capacity()),
            top,
        }
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler")
            .field("options", &self.options)
            .field("vocabulary_size", &self.vocabulary_size)
            .finish_non_exhaustive()
    }
}

/// Returns the highest logit.
fn highest(logits: &[f32]) -> Result<f32> {
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut wrong = [0_u32; LANES];
    let (groups, rest) = logits.as_chunks::<LANES>();
    let mut last = [f32::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    for values in groups.iter().chain([&last]) {
        for lane in 0..LANES {
            wrong[lane] |= u32::from(is_wrong(values[lane]));
            lanes[lane] = if values[lane] > lanes[lane] { values[lane] } else { lanes[lane] };
        }
    }
    if wrong != [0; LANES] {
        let index = logits.iter().position(|value| is_wrong(*value)).unwrap_or_default();
        let message = format!("the model produced NaN or infinity: {}", logits[index]);
        return Err(Error::new(ErrorKind::Numeric, format!("logits[{index}]"), message));
    }
    let highest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY { Err(all_masked()) } else { Ok(highest) }
}

fn is_wrong(logit: f32) -> bool {
    logit.is_nan() || logit == f32::INFINITY
}

fn all_masked() -> Error {
    Error::new(ErrorKind::Numeric, "logits", "every token is masked; allow at least one")
}
