//! Contrastive learning of embeddings.

use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;

use super::{SpecialTokens, TaskBatch, TaskEntry, TrainingTask, beginning, check_parts, push_with_outputs};
use crate::data::records::Records;
use crate::random::Random;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "contrastive",
    fields: &[("anchor", false), ("positive", false), ("negative", true)],
    label: None,
    head: OutputHead::Hidden,
    sides: [true, false],
    make: |settings, tokenizer, records| {
        Ok(Arc::new(ContrastiveTask::new(records, SpecialTokens::of(tokenizer)?, settings.max_length)?))
    },
};

/// Sequences of the encoder: of each example the anchor, its match (positive), and a hard negative if there is one.
/// All rows are output rows.
///
/// Targets are per sequence, not per row: the id of a sequence is the index of its example in the batch, and its
/// weight is 1 for an anchor and 0 for the others. Sequences that are too long are truncated at the end.
pub struct ContrastiveTask {
    records: Arc<dyn Records>,
    frame: SpecialTokens,
    max_content: usize,
}

impl ContrastiveTask {
    /// Creates the task with sequences of at most `length` rows.
    pub fn new(records: Arc<dyn Records>, frame: SpecialTokens, length: usize) -> Result<Self> {
        check_parts(&*records, 2..=3, "two or three")?;
        let max_content = frame.max_content(length)?;
        let empty = |record: &usize| (0..2).any(|part| records.length(*record, part) == 0);
        if let Some(record) = (0..records.count()).find(empty) {
            let message = "empty text; an example needs an anchor and a positive text";
            return Err(Error::argument(format!("record {record}"), message));
        }
        Ok(Self { records, frame, max_content })
    }

    /// Returns the texts of an example.
    fn parts(&self, example: usize) -> impl Iterator<Item = usize> {
        (0..self.records.parts()).filter(move |&part| self.records.length(example, part) > 0)
    }
}

impl TrainingTask for ContrastiveTask {
    fn count(&self) -> usize {
        self.records.count()
    }

    fn rows(&self, example: usize) -> usize {
        let rows = |part| self.records.length(example, part).min(self.max_content) + self.frame.len();
        self.parts(example).map(rows).sum()
    }

    fn add(&self, example: usize, _: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let number = made.targets.ids.last().map_or(0, |last| last + 1);
        for part in self.parts(example) {
            let text = beginning(&*self.records, example, part, self.max_content)?;
            push_with_outputs(&mut made.batch.encoder, &self.frame.around(&text));
            made.target(number, if part == 0 { 1.0 } else { 0.0 });
        }
        Ok(())
    }
}
