//! The running and finished hypotheses of one prompt.

use std::sync::Arc;

use siskin_kernels::ops::Kernels;

use super::scores::{BeamCandidate, Best, Scorer, When, apply_length_penalty};
use super::{BeamEarlyStopping, FinishedHypothesis, SearchOptions};
use crate::Result;
use crate::logits_processors::{LogitsProcessorList, ProcessorContext};

/// A running hypothesis.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    /// The sequence of the context that holds all tokens but the last.
    pub sequence: usize,
    /// Prompt and text.
    pub text: Vec<u32>,
    /// The sum of the log-probabilities of its tokens.
    sum: f64,
    /// The index of its row of logits.
    row: usize,
}

/// A group of diverse beam search, independent of other groups except for the diversity penalty.
#[derive(Clone, Debug, Default)]
struct Group {
    begun: Vec<Begun>,
    /// Finished hypotheses, best first.
    done: Vec<FinishedHypothesis>,
}

/// Settings that all prompts of a search share.
pub(crate) struct BeamSettings {
    options: SearchOptions,
    scorer: Scorer,
    /// The number of tokens that can be generated; logits beyond are padding.
    choices: usize,
    /// Whether the end token counts toward the length.
    counts_end: bool,
}

impl BeamSettings {
    /// Creates the settings of a beam search.
    pub(crate) fn new(options: &SearchOptions, choices: usize, kernels: Kernels) -> Result<Arc<Self>> {
        options.validate()?;
        options.logits_processors.validate_for(choices)?;
        let scorer = Scorer {
            rules: LogitsProcessorList::new(&options.logits_processors)?,
            when: When::After,
            kernels,
        };
        Ok(Arc::new(Self { options: options.clone(), scorer, choices, counts_end: true }))
    }

    /// Creates the settings with logits processors given by the caller, which are applied to logits instead of
    /// log-probabilities. The end token does not count toward the length.
    pub(crate) fn with_rules(
        options: &SearchOptions,
        choices: usize,
        rules: LogitsProcessorList,
        kernels: Kernels,
    ) -> Result<Arc<Self>> {
        options.validate()?;
        let scorer = Scorer { rules, when: When::Before, kernels };
        Ok(Arc::new(Self { options: options.clone(), scorer, choices, counts_end: false }))
    }

    /// Returns the number of beams per group.
    fn size(&self) -> usize {
        self.options.beams / self.options.num_beam_groups
    }

    /// Returns the number of candidate steps that are kept, so that enough of them continue even if others end.
    fn steps(&self) -> usize {
        self.size() * (1 + self.options.logits_processors.eos_token_ids.len()).max(2)
    }
}

/// The hypotheses of one prompt.
pub(crate) struct Beams {
    settings: Arc<BeamSettings>,
    groups: Vec<Group>,
    source: Arc<[u32]>,
    prompt: usize,
    max_tokens: usize,
}

impl Beams {
    /// Starts after `prompt`, which `sequence` holds, with up to `max_tokens` tokens.
    pub(crate) fn new(
        settings: &Arc<BeamSettings>,
        sequence: usize,
        prompt: &[u32],
        source: Arc<[u32]>,
        max_tokens: usize,
    ) -> Self {
        let begun = vec![Begun { sequence, text: prompt.to_vec(), sum: 0.0, row: 0 }];
        let group = Group { begun, done: Vec::new() };
        Self {
            groups: vec![group; settings.options.num_beam_groups],
            settings: Arc::clone(settings),
            source,
            prompt: prompt.len(),
            max_tokens: max_tokens.min(settings.options.max_tokens),
        }
    }

    /// Returns the running hypotheses.
    pub(super) fn begun(&self) -> impl Iterator<Item = &Begun> {
        self.groups.iter().flat_map(|group| &group.begun)
    }

    /// Returns the running hypotheses, mutable.
    pub(super) fn begun_mut(&mut self) -> impl Iterator<Item = &mut Begun> {
        self.groups.iter_mut().flat_map(|group| &mut group.begun)
    }

    /// Chooses the next tokens. `row` returns the row of logits with the given index; `scratch` is reused for one row.
    pub(crate) fn step<'a>(&mut self, row: impl Fn(usize) -> &'a [f32], scratch: &mut Vec<f32>) {
        let settings = Arc::clone(&self.settings);
        let mut chosen: Vec<u32> = Vec::new();
        for index in 0..self.groups.len() {
            if self.groups[index].begun.is_empty() {
                continue;
            }
            let best = self.best_steps(index, &chosen, &row, scratch);
            let written = self.groups[index].begun[0].text.len() + 1 - self.prompt;
            let group = &mut self.groups[index];
            chosen.extend(group.take(&best, written, self.max_tokens, self.prompt, &settings));
        }
        self.begun_mut().enumerate().for_each(|(row, begun)| begun.row = row);
    }

    /// Returns the best steps of a group, given the tokens that earlier groups chose.
    fn best_steps<'a>(
        &self,
        group: usize,
        chosen: &[u32],
        row: &impl Fn(usize) -> &'a [f32],
        scratch: &mut Vec<f32>,
    ) -> Vec<BeamCandidate> {
        let BeamSettings { options, scorer, choices, .. } = &*self.settings;
        let taken: Vec<(u32, f32)> = chosen.iter().map(|&id| (id, options.diversity_penalty)).collect();
        let mut best = Best::new(self.settings.steps());
        for (of, begun) in self.groups[group].begun.iter().enumerate() {
            let logits = row(begun.row);
            scratch.clear();
            scratch.extend_from_slice(&logits[..logits.len().min(*choices)]);
            let left = self.max_tokens.saturating_sub(begun.text.len() - self.prompt);
            let place =
                ProcessorContext { source: &self.source, text: &begun.text, prompt: self.prompt, left };
            scorer.score(scratch, &place, &taken);
            best.offer(of, begun.sum, scratch);
        }
        best.steps
    }

    /// Returns the finished hypotheses, best first.
    pub(crate) fn finish(self) -> Vec<FinishedHypothesis> {
        let mut found: Vec<FinishedHypothesis> =
            self.groups.into_iter().flat_map(|group| group.done).collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(self.settings.options.num_return_sequences);
        found
    }
}

impl Group {
    /// Applies the best steps: those with an end token finish their hypothesis, others continue, up to the number of
    /// beams. Returns the tokens of the latter, also if the maximum length is reached.
    fn take(
        &mut self,
        best: &[BeamCandidate],
        written: usize,
        max_tokens: usize,
        prompt: usize,
        settings: &BeamSettings,
    ) -> Vec<u32> {
        let BeamSettings { options, counts_end, .. } = settings;
        let size = settings.size();
        let before = std::mem::take(&mut self.begun);
        let text = |step: &BeamCandidate| {
            let mut text = Vec::with_capacity(before[step.of].text.len() + 1);
            text.extend_from_slice(&before[step.of].text);
            text.push(step.id);
            text
        };
        let found = |step: &BeamCandidate, length: usize| FinishedHypothesis {
            tokens: text(step).split_off(prompt),
            score: apply_length_penalty(step.sum, length.max(1), options.length_penalty),
        };
        let ends = |step: &&BeamCandidate| options.logits_processors.eos_token_ids.contains(&step.id);
        let goes_on = |step: &&BeamCandidate| !ends(step);
        // Steps that rank below the number of beams only replace those that end.
        let first = &best[..size.min(best.len())];
        let length = if *counts_end { written } else { written - 1 };
        first.iter().filter(ends).for_each(|step| self.add(found(step, length), size));
        let chosen = best.iter().filter(goes_on).take(size).map(|step| step.id).collect();
        if written < max_tokens {
            let begun = |step: &BeamCandidate| {
                let Begun { sequence, row, .. } = before[step.of];
                Begun { sequence, text: text(step), sum: step.sum, row }
            };
            self.begun = best.iter().filter(goes_on).take(size).map(begun).collect();
        } else if options.num_beam_groups == 1 || !self.is_full(size, options) {
            first.iter().filter(goes_on).for_each(|step| self.add(found(step, written), size));
        }
        if self.is_full(size, options) || !self.may_improve(best, written, max_tokens, settings) {
            self.begun.clear();
        }
        chosen
    }

    fn add(&mut self, found: FinishedHypothesis, size: usize) {
        let at = self.done.partition_point(|done| done.score >= found.score);
        self.done.insert(at, found);
        self.done.truncate(size);
    }

    /// Returns whether enough hypotheses are finished.
    fn is_full(&self, size: usize, options: &SearchOptions) -> bool {
        options.early_stopping == BeamEarlyStopping::Full && self.done.len() >= size
    }

    /// Returns whether a running hypothesis could still beat the worst finished one.
    fn may_improve(
        &self,
        best: &[BeamCandidate],
        written: usize,
        max_tokens: usize,
        settings: &BeamSettings,
    ) -> bool {
        let BeamSettings { options, .. } = settings;
        let worst = match self.done.last() {
            Some(worst) if self.done.len() >= settings.size() => worst.score,
            _ => return true,
        };
        let highest = match (options.num_beam_groups, self.begun.first(), best.first()) {
            (1, Some(begun), _) => begun.sum,
            // With several groups the best step counts even if it ended its hypothesis.
            (2.., _, Some(step)) => step.sum,
            _ => return false,
        };
        let may_grow = options.early_stopping == BeamEarlyStopping::Never && options.length_penalty > 0.0;
        apply_length_penalty(highest, if may_grow { max_tokens } else { written }, options.length_penalty)
            > worst
    }
}
