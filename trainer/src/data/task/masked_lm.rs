//! Masked language modeling (BERT, arXiv:1810.04805).

use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;
use siskin_tokenizer::Tokenizer;

use super::{
    SpecialTokens, TaskBatch, TaskEntry, TrainingTask, check_mlm_probability, check_parts, in_vocabulary,
    missing,
};
use crate::data::records::Records;
use crate::data::windows::Windows;
use crate::random::Random;

/// The fraction of chosen tokens that are replaced by the mask token.
const MASKED: f64 = 0.8;
/// The fraction of chosen tokens that are replaced by a random token.
const SWAPPED: f64 = 0.1;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "masked_lm",
    fields: &[("text", false)],
    label: None,
    head: OutputHead::Token,
    sides: [true, false],
    make: |settings, tokenizer, records| {
        let mask = tokenizer
            .mask()
            .ok_or_else(|| missing("mask", "use a model with a mask token, or another task"))?;
        let task = MaskedLm::new(
            records,
            SpecialTokens::of(tokenizer)?,
            settings.max_length,
            mask,
            ordinary(tokenizer),
        )?;
        Ok(Arc::new(task.with_mlm_probability(settings.mlm_probability)?))
    },
};

/// Returns for each id whether it is an ordinary token.
fn ordinary(tokenizer: &Tokenizer) -> Vec<bool> {
    (0..tokenizer.vocabulary_size()).map(|id| !tokenizer.is_special(id)).collect()
}

/// Sequences of the encoder. Some tokens are chosen, each with the same probability, and never special ones. Of the
/// chosen, 80% are replaced by the mask token, 10% by a random ordinary token, and 10% stay. They are the output
/// rows, with the original tokens as targets.
///
/// At least one token of a sequence is chosen if it has an ordinary token.
pub struct MaskedLm {
    records: Arc<dyn Records>,
    frame: SpecialTokens,
    windows: Windows,
    mask: u32,
    ordinary: Vec<bool>,
    /// The ids of ordinary tokens.
    others: Vec<u32>,
    mlm_probability: f64,
}

impl MaskedLm {
    /// Creates the task with sequences of at most `length` rows. `ordinary` says for each id whether it is not a
    /// special token.
    pub fn new(
        records: Arc<dyn Records>,
        frame: SpecialTokens,
        length: usize,
        mask: u32,
        ordinary: Vec<bool>,
    ) -> Result<Self> {
        check_parts(&*records, 1..=1, "one")?;
        in_vocabulary("mask", mask, records.vocabulary())?;
        let others: Vec<u32> = (0..records.vocabulary())
            .filter(|&id| id != mask && ordinary.get(id as usize).is_some_and(|&ordinary| ordinary))
            .collect();
        if others.is_empty() {
            return Err(Error::argument("tokenizer", "all its tokens are special; none can be masked"));
        }
        let windows = Windows::new(&*records, frame.max_content(length)?, |record| records.length(record, 0));
        Ok(Self { records, frame, windows, mask, ordinary, others, mlm_probability: 0.15 })
    }

    /// Sets the probability that a token is chosen.
    pub fn with_mlm_probability(self, rate: f64) -> Result<Self> {
        check_mlm_probability(rate)?;
        Ok(Self { mlm_probability: rate, ..self })
    }

    fn part(&self, example: usize) -> (usize, std::ops::Range<usize>) {
        let (record, start) = self.windows.place(example);
        (record, start..self.records.length(record, 0).min(start.saturating_add(self.windows.size())))
    }

    fn is_maskable(&self, id: u32) -> bool {
        id != self.mask && self.ordinary.get(id as usize).is_some_and(|&ordinary| ordinary)
    }
}

impl TrainingTask for MaskedLm {
    fn count(&self) -> usize {
        self.windows.count()
    }

    fn rows(&self, example: usize) -> usize {
        self.part(example).1.len() + self.frame.len()
    }

    fn add(&self, example: usize, random: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let (record, part) = self.part(example);
        let mut text = Vec::new();
        self.records.read(record, 0, part, &mut text)?;
        let places: Vec<usize> = (0..text.len()).filter(|&place| self.is_maskable(text[place])).collect();
        let mut chosen: Vec<usize> =
            places.iter().copied().filter(|_| random.unit() < self.mlm_probability).collect();
        if chosen.is_empty() && !places.is_empty() {
            chosen.push(places[random.below(places.len() as u64) as usize]);
        }
        let first = made.batch.encoder.rows.len() + self.frame.before.len();
        for place in chosen {
            made.batch.encoder.output_rows.push(first + place);
            made.target(text[place], 1.0);
            let draw = random.unit();
            if draw < MASKED {
                text[place] = self.mask;
            } else if draw < MASKED + SWAPPED {
                text[place] = self.others[random.below(self.others.len() as u64) as usize];
            }
        }
        made.batch.encoder.push(&self.frame.around(&text), &[]);
        Ok(())
    }
}
