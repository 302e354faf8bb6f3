//! Sequence classification.

use std::sync::Arc;

use siskin_format::{Error, Result};
use siskin_graph::OutputHead;

use super::{SpecialTokens, TaskBatch, TaskEntry, TrainingTask, beginning, check_parts};
use crate::data::records::Records;
use crate::random::Random;

pub(super) const KIND: TaskEntry = TaskEntry {
    name: "sequence_classification",
    fields: &[("text", false)],
    label: Some("label"),
    head: OutputHead::Class,
    sides: [true, false],
    make: |settings, tokenizer, records| {
        let frame = SpecialTokens::of(tokenizer)?;
        Ok(Arc::new(ClassificationTask::new(records, frame, settings.max_length, settings.num_classes)?))
    },
};

/// Sequences of the encoder. The first row of each is an output row; its target is the class. Sequences that are too
/// long are truncated at the end.
pub struct ClassificationTask {
    records: Arc<dyn Records>,
    frame: SpecialTokens,
    max_content: usize,
}

impl ClassificationTask {
    /// Creates the task with sequences of at most `length` rows and `classes` classes; 0: as many as the records
    /// name.
    pub fn new(records: Arc<dyn Records>, frame: SpecialTokens, length: usize, classes: u32) -> Result<Self> {
        check_parts(&*records, 1..=1, "one")?;
        let max_content = frame.max_content(length)?;
        for record in 0..records.count() {
            let place = || format!("record {record}");
            let label = records
                .label(record)
                .ok_or_else(|| Error::argument(place(), "no class; every text needs one"))?;
            if classes > 0 && label >= classes {
                let message = format!("class {label}, but num_classes is {classes}");
                return Err(Error::argument(place(), message));
            }
            if frame.is_empty() && records.length(record, 0) == 0 {
                return Err(Error::argument(place(), "empty; leave it out"));
            }
        }
        Ok(Self { records, frame, max_content })
    }
}

impl TrainingTask for ClassificationTask {
    fn count(&self) -> usize {
        self.records.count()
    }

    fn rows(&self, example: usize) -> usize {
        self.records.length(example, 0).min(self.max_content) + self.frame.len()
    }

    fn add(&self, example: usize, _: &mut Random, made: &mut TaskBatch) -> Result<()> {
        let text = beginning(&*self.records, example, 0, self.max_content)?;
        made.batch.encoder.output_rows.push(made.batch.encoder.rows.len());
        made.batch.encoder.push(&self.frame.around(&text), &[]);
        made.target(self.records.label(example).unwrap_or(0), 1.0);
        Ok(())
    }
}
