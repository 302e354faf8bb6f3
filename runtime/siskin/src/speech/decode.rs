//! Decoding of one window: greedy or beam search, with temperature fallback if the result is repetitive or unlikely.

use super::{SURE, TranscribeOptions, Transcriber};
use crate::Result;
use crate::beam_search::{BeamEarlyStopping, SearchOptions};
use crate::logits_processors::{LogitsProcessorList, ProcessorContext};
use crate::sample::random::SamplerRandom;

/// The sampling temperatures of the attempts, in order.
const TEMPERATURES: &[f32] = &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
/// The maximum period of a repetition that is detected, in tokens.
const MAX_PERIOD: usize = 32;
/// How often a group must repeat consecutively, and how many tokens the repetitions must span, to count as a loop.
const TIMES: usize = 4;
const MIN_TOKENS: usize = 24;

/// The decoded tokens of a window.
pub(super) struct DecodedWindow {
    pub ids: Vec<u32>,
    /// The mean log-probability of the tokens.
    pub log_probability: f32,
    /// The probability of no speech.
    pub no_speech_probability: f32,
    /// Whether the text ended in a repetition loop.
    is_repetitive: bool,
}

impl Transcriber {
    /// Decodes the window that was encoded last, after `before`. Sampling is deterministic for a given `seed`.
    pub(super) fn write(
        &mut self,
        before: &[u32],
        language: Option<u32>,
        with_times: bool,
        options: &TranscribeOptions,
        seed: u64,
    ) -> Result<DecodedWindow> {
        let silence = self.special.silence;
        let silence = silence.map_or(0.0, |id| super::rules::probability(self.session.logits(), id, &[]));
        let task = if options.translate { self.special.translate } else { self.special.transcribe };
        let times = (!with_times).then_some(self.special.no_times);
        let rest: Vec<u32> = [language, language.and(task), times].into_iter().flatten().collect();
        let half = self.session.model().config().context / 2;
        match self.special.previous.filter(|_| !before.is_empty()) {
            Some(previous) => {
                let kept = before.len().saturating_sub(half.saturating_sub(1));
                let tokens = [&[previous], &before[kept..], &[self.special.start], &*rest].concat();
                self.session.truncate(0)?;
                self.session.prefill(&tokens)?;
            }
            None => self.session.prefill(&rest)?,
        }
        let begin = (self.session.position(), self.session.logits().to_vec());
        let max = options.max_tokens.min(half);
        let rules = super::rules::of(&self.special, with_times)?;
        let mut random = SamplerRandom::new(seed);
        let mut best: Option<DecodedWindow> = None;
        for &temperature in if options.temperature_fallback { TEMPERATURES } else { &TEMPERATURES[..1] } {
            let mut written = match options.beams {
                2.. if temperature == 0.0 => self.search(&rules, max, options)?,
                _ => self.attempt(&begin, &rules, max, (temperature, &mut random))?,
            };
            written.no_speech_probability = silence;
            let is_silent = silence > options.no_speech_threshold;
            if !written.is_repetitive && (is_silent || written.log_probability >= SURE) {
                return Ok(written);
            }
            let rank = |written: &DecodedWindow| (!written.is_repetitive, written.log_probability);
            if best.as_ref().is_none_or(|best| rank(best) < rank(&written)) {
                best = Some(written);
            }
        }
        Ok(best.unwrap_or(DecodedWindow {
            ids: Vec::new(),
            log_probability: 0.0,
            no_speech_probability: silence,
            is_repetitive: false,
        }))
    }

    /// Decodes after the prompt, whose length and logits are given.
    fn attempt(
        &mut self,
        begin: &(usize, Vec<f32>),
        rules: &LogitsProcessorList,
        max: usize,
        (temperature, random): (f32, &mut SamplerRandom),
    ) -> Result<DecodedWindow> {
        self.session.truncate(begin.0)?;
        self.scores.copy_from_slice(&begin.1);
        let (mut ids, mut sum, mut is_repetitive) = (Vec::with_capacity(max), 0.0, false);
        while ids.len() < max {
            let place = ProcessorContext { source: &[], text: &ids, prompt: 0, left: max - ids.len() };
            rules.apply(&mut self.scores, &place);
            let choice = super::rules::choose(&self.scores, &self.special, temperature, random);
            sum += choice.log_probability;
            if choice.id == self.special.end {
                break;
            }
            ids.push(choice.id);
            if let Some(first) = repetition(&ids) {
                // The first occurrence is kept, as it may be right.
                ids.truncate(first);
                is_repetitive = true;
                break;
            }
            if ids.len() < max {
                self.session.prefill(&[choice.id])?;
                self.scores.copy_from_slice(self.session.logits());
            }
        }
        let log_probability = sum / (ids.len() + 1) as f32;
        Ok(DecodedWindow { ids, log_probability, no_speech_probability: 0.0, is_repetitive })
    }

    /// Decodes by beam search.
    fn search(
        &mut self,
        rules: &LogitsProcessorList,
        max: usize,
        options: &TranscribeOptions,
    ) -> Result<DecodedWindow> {
        let search = SearchOptions {
            beams: options.beams,
            length_penalty: options.length_penalty,
            early_stopping: BeamEarlyStopping::Full,
            max_tokens: max,
            logits_processors: self.special.rules.clone(),
            ..SearchOptions::default()
        };
        let found = self.session.search_with(&search, rules.clone())?.into_iter().next();
        let (mut ids, score) = found.map_or((Vec::new(), 0.0), |found| (found.tokens, found.score));
        ids.pop_if(|last| *last == self.special.end);
        let sum = score * libm::pow(ids.len().max(1) as f64, f64::from(options.length_penalty));
        let log_probability = (sum / (ids.len() + 1) as f64) as f32;
        let first = repetition(&ids);
        ids.truncate(first.unwrap_or(ids.len()));
        Ok(DecodedWindow { ids, log_probability, no_speech_probability: 0.0, is_repetitive: first.is_some() })
    }
}

/// Returns where the first of the repeated groups ends if the list ends in a repetition loop.
pub(super) fn repetition(ids: &[u32]) -> Option<usize> {
    let equal = |at: usize, group: usize| ids.get(at) == ids.get(at - group);
    (1..=MAX_PERIOD).find_map(|group| {
        let least = (group * TIMES).max(MIN_TOKENS);
        let from = ids.len().checked_sub(least)? + group;
        if !(from..ids.len()).all(|at| equal(at, group)) {
            return None;
        }
        let odd = (group..from).rfind(|&at| !equal(at, group));
        Some(odd.map_or(group, |odd| odd + 1))
    })
}
