//! Sequence-to-sequence: translation, summarization.

use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;

use super::{SpecialTokens, TaskBatch, TaskEntry, TaskSettings, TrainingTask, beginning, check_parts};
use crate::data::records::Records;
use crate::random::Random;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "seq2seq",
    fields: &[("source", false), ("target", false)],
    label: None,
    head: OutputHead::Next,
    sides: [true, true],
    make: |settings, tokenizer, records| {
        let frame = SpecialTokens::of(tokenizer)?;
        Ok(Arc::new(Seq2SeqTask::new(records, settings, [frame.clone(), frame])?))
    },
};

/// Encoder sequences, and decoder sequences for them. Every decoder row is an output row: its target is a token of
/// the framed target text, and its input is the previous target (teacher forcing); the first input is the decoder
/// start token.
///
/// Texts that are too long are truncated at the end; their special tokens stay.
pub struct Seq2SeqTask {
    records: Arc<dyn Records>,
    frames: [SpecialTokens; 2],
    max_content: [usize; 2],
    start: u32,
}

impl Seq2SeqTask {
    /// Creates the task with the lengths in `settings`, and the frames of sources and of targets.
    pub fn new(
        records: Arc<dyn Records>,
        settings: &TaskSettings,
        frames: [SpecialTokens; 2],
    ) -> Result<Self> {
        check_parts(&*records, 2..=2, "two")?;
        let max_content = [
            frames[0].max_content(settings.max_length)?,
            frames[1].max_content(settings.max_target_length())?,
        ];
        let empty =
            |record: &usize| (0..2).any(|part| records.length(*record, part) == 0 && frames[part].is_empty());
        if let Some(record) = (0..records.count()).find(empty) {
            return Err(Error::argument(format!("record {record}"), "empty text; leave it out"));
        }
        Ok(Self {
            start: settings.decoder_start_token_id(records.vocabulary())?,
            records,
            frames,
            max_content,
        })
    }

    fn text(&self, example: usize, part: usize) -> Result<Vec<u32>> {
        Ok(self.frames[part].around(&beginning(&*self.records, example, part, self.max_content[part])?))
    }
}

impl TrainingTask for Seq2SeqTask {
    fn count(&self) -> usize {
        self.records.count()
    }

    fn rows(&self, example: usize) -> usize {
        let rows = |part: usize| {
            self.records.length(example, part).min(self.max_content[part]) + self.frames[part].len()
        };
        rows(0) + rows(1)
    }

    fn add(&self, example: usize, _: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let (source, target) = (self.text(example, 0)?, self.text(example, 1)?);
        made.batch.encoder.push(&source, &[]);
        made.write(self.start, &target);
        Ok(())
    }
}
