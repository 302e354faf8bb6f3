//! Texts that are decoded greedily or sampled, several per prompt.

use std::sync::Arc;

use super::{FinishedHypothesis, apply_length_penalty};
use crate::Result;
use crate::sample::{Sampler, SamplerOptions};
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_graph::AdapterSlot;

/// Settings that all prompts share.
pub(crate) struct SamplingSettings {
    /// One per text of a prompt, alike except for their seeds. They report log-probabilities.
    pub samplers: Vec<Sampler>,
    pub ends: Vec<u32>,
    pub length_penalty: f32,
}

impl SamplingSettings {
    /// Creates the settings for `count` texts per prompt.
    pub(crate) fn new(
        options: &SamplerOptions,
        count: usize,
        choices: usize,
        length_penalty: f32,
    ) -> Result<Arc<Self>> {
        let sampler = |index: usize| {
            let seed = options.seed.wrapping_add(index as u64);
            Sampler::new(&SamplerOptions { seed, log_probabilities: true, ..options.clone() }, choices)
        };
        let samplers = (0..count).map(sampler).collect::<Result<_>>()?;
        Ok(Arc::new(Self { samplers, ends: options.logits_processors.eos_token_ids.clone(), length_penalty }))
    }
}

/// A running or finished text.
struct SampledText {
    sampler: Sampler,
    sequence: usize,
    tokens: Vec<u32>,
    sum: f64,
    goes_on: bool,
}

/// The texts of one prompt.
pub(crate) struct SampledTexts {
    drawing: Arc<SamplingSettings>,
    draws: Vec<SampledText>,
    max_tokens: usize,
}

impl SampledTexts {
    /// Starts after `prompt`, which `sequence` holds and whose last token gave these logits, with up to `max_tokens` tokens.
    /// Call [`settle`](Self::settle) before the next step.
    pub(crate) fn begin(
        drawing: &Arc<SamplingSettings>,
        sequence: usize,
        (prompt, source, max_tokens): (&[u32], &[u32], usize),
        logits: &[f32],
    ) -> Result<Self> {
        let draw = |sampler: &Sampler| {
            let mut sampler = sampler.clone();
            sampler.set_history(prompt);
            sampler.begin(source, max_tokens);
            SampledText { sampler, sequence, tokens: Vec::new(), sum: 0.0, goes_on: true }
        };
        let mut draws: Vec<SampledText> = drawing.samplers.iter().map(draw).collect();
        draws.iter_mut().try_for_each(|draw| draw.take(logits, drawing, max_tokens))?;
        Ok(Self { drawing: Arc::clone(drawing), draws, max_tokens })
    }

    /// Returns the number of running sequences.
    pub(crate) fn width(&self) -> usize {
        self.draws.iter().filter(|draw| draw.goes_on).count()
    }

    /// Returns the last tokens, which must go through the model.
    pub(crate) fn pieces(&self, adapter: AdapterSlot) -> impl Iterator<Item = BatchEntry<'_>> {
        let piece = |draw: &SampledText| (draw.sequence, draw.tokens.len() - 1);
        self.draws.iter().filter(|draw| draw.goes_on).map(move |draw| {
            let (sequence, last) = piece(draw);
            BatchEntry { adapter, ..BatchEntry::new(sequence, &draw.tokens[last..], OutputRows::Last) }
        })
    }

    /// Samples the next tokens from the logits of the last ones, which are in the context's outputs from row `first`
    /// on.
    pub(crate) fn step(&mut self, context: &Context, first: usize) -> Result<()> {
        let goes_on = self.draws.iter_mut().filter(|draw| draw.goes_on);
        goes_on.enumerate().try_for_each(|(row, draw)| {
            draw.take(context.output(first + row), &self.drawing, self.max_tokens)
        })
    }

    /// Forks the prompt's sequence so that each text has its own.
    pub(crate) fn settle(&mut self, context: &mut Context) -> Result<()> {
        for index in 1..self.draws.len() {
            let (before, rest) = self.draws.split_at_mut(index);
            if rest[0].sequence == before[0].sequence {
                rest[0].sequence = context.fork(before[0].sequence)?;
            }
        }
        Ok(())
    }

    /// Releases the sequences and returns the texts, ordered by seed.
    pub(crate) fn finish(self, context: &mut Context) -> Vec<FinishedHypothesis> {
        let power = self.drawing.length_penalty;
        self.draws.iter().for_each(|draw| context.remove(draw.sequence));
        let found = |draw: SampledText| FinishedHypothesis {
            score: apply_length_penalty(draw.sum, draw.tokens.len(), power),
            tokens: draw.tokens,
        };
        self.draws.into_iter().map(found).collect()
    }
}

impl SampledText {
    fn take(&mut self, logits: &[f32], drawing: &SamplingSettings, max_tokens: usize) -> Result<()> {
        let choice = self.sampler.sample(&logits[..logits.len().min(self.sampler.vocabulary_size())])?;
        self.sampler.accept(choice.id);
        self.tokens.push(choice.id);
        self.sum += f64::from(choice.log_probability);
        self.goes_on = self.tokens.len() < max_tokens && !drawing.ends.contains(&choice.id);
        Ok(())
    }
}
