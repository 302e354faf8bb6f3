//! Training tasks: one file for each task, and one list.
//!
//! A task makes numbered examples of records. An example is a function of its index and of a random stream, so that
//! any example can be made at any time. Several examples form a batch: their sequences are concatenated, and no
//! sequence attends to another.

mod causal;
mod classes;
mod contrast;
mod frame;
mod masked;
mod seq2seq;
mod spans;

pub use causal::{Causal, Packing};
pub use classes::ClassificationTask;
pub use contrast::Contrast;
pub use frame::SpecialTokens;
pub use masked::Masked;
pub use seq2seq::Seq2Seq;
pub use spans::{Sentinels, Spans};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siskin::graph::OutputHead;
use siskin::tokenizer::Tokenizer;
use siskin::{Error, ErrorKind, Result};

use super::records::Records;
use super::source::{Field, Reading};
use crate::batch::{BatchSequences, TrainingBatch};
use crate::loss::Targets;
use crate::random::Random;
use crate::settings::unknown;

/// A batch, and the targets of its output rows.
#[derive(Clone, Debug, Default)]
pub struct TaskBatch {
    /// The batch.
    pub batch: TrainingBatch,
    /// An id and a weight for each output row, unless the task says otherwise.
    pub targets: Targets,
}

impl TaskBatch {
    fn target(&mut self, id: u32, weight: f32) {
        self.targets.ids.push(id);
        self.targets.weights.push(weight);
    }

    /// Appends a decoder sequence with the targets `labels` (teacher forcing): each row is the previous label, the
    /// first is `start`.
    fn write(&mut self, start: u32, labels: &[u32]) {
        let mut tokens = vec![start];
        tokens.extend(&labels[..labels.len().saturating_sub(1)]);
        tokens.truncate(labels.len());
        push_wanted(&mut self.batch.writer, &tokens);
        labels.iter().for_each(|&label| self.target(label, 1.0));
    }
}

/// Appends a sequence all of whose rows are output rows.
fn push_wanted(texts: &mut BatchSequences, tokens: &[u32]) {
    let first = texts.rows.len();
    texts.push(tokens, &[]);
    texts.wanted.extend(first..texts.rows.len());
}

/// Makes examples of records.
pub trait TrainingTask: Send + Sync {
    /// Returns the number of examples.
    fn count(&self) -> usize;

    /// Returns the rows of an example, of encoder and decoder together.
    fn rows(&self, example: usize) -> usize;

    /// Appends an example to `made`.
    fn add(&self, example: usize, random: &mut Random, made: &mut TaskBatch) -> Result<()>;
}

/// The settings of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskSettings {
    /// The maximum number of rows of a sequence.
    pub length: usize,
    /// The maximum number of rows of a decoder sequence with an encoder; 0: the same as `length`.
    pub target_length: usize,
    /// For causal: whether sequences continue across documents, with the end token between.
    pub across: bool,
    /// The fraction of tokens that is masked.
    pub rate: f64,
    /// For spans: the mean number of tokens of a masked span.
    pub span: f64,
    /// For classes: the number of classes; 0: as many as the records name.
    pub classes: u32,
    /// The token that a decoder sequence starts with, for encoder–decoders.
    pub decoder_start: Option<u32>,
}

impl Default for TaskSettings {
    fn default() -> Self {
        Self {
            length: 512,
            target_length: 0,
            across: false,
            rate: 0.15,
            span: 3.0,
            classes: 0,
            decoder_start: None,
        }
    }
}

impl TaskSettings {
    fn target_length(&self) -> usize {
        if self.target_length == 0 { self.length } else { self.target_length }
    }

    fn decoder_start(&self, vocabulary: u32) -> Result<u32> {
        let start = self.decoder_start.ok_or_else(|| {
            let message = "is missing; name the token that the model's written texts start with";
            Error::new(ErrorKind::Missing, "decoder_start", message)
        })?;
        in_vocabulary("decoder_start", start, vocabulary)
    }
}

/// Makes a task from its settings.
pub type Maker = fn(&TaskSettings, &Tokenizer, Arc<dyn Records>) -> Result<Arc<dyn TrainingTask>>;

/// A task in the list of tasks.
pub struct TaskEntry {
    /// Its name.
    pub name: &'static str,
    /// The fields of its documents, and whether they may be missing.
    pub fields: &'static [(&'static str, bool)],
    /// The field of the class.
    pub label: Option<&'static str>,
    /// The kind of output rows that it needs from a model.
    pub head: OutputHead,
    /// Whether it has encoder sequences, and decoder sequences.
    pub sides: [bool; 2],
    /// Its constructor.
    pub make: Maker,
}

/// Every task.
pub const TASKS: &[TaskEntry] =
    &[causal::KIND, masked::KIND, spans::KIND, classes::KIND, contrast::KIND, seq2seq::KIND];

impl TaskEntry {
    /// Returns the task of this name.
    pub fn of(name: &str) -> Result<&'static Self> {
        TASKS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<&str> = TASKS.iter().map(|kind| kind.name).collect();
            unknown("task", "task", name, &names)
        })
    }

    /// Returns true if it fits a model with such output rows that has an encoder, a decoder, or both.
    pub fn fits(&self, head: OutputHead, sides: [bool; 2]) -> bool {
        (self.head, self.sides) == (head, sides)
    }

    /// Returns how its sources are read.
    pub fn reading(&self) -> Reading {
        let field = |&(name, optional): &(&str, bool)| Field { name: name.to_owned(), optional };
        Reading {
            fields: self.fields.iter().map(field).collect(),
            label: self.label.map(str::to_owned),
            ..Reading::default()
        }
    }
}

/// Describes the output rows of a model with this head.
pub(crate) fn rows_of(head: OutputHead) -> &'static str {
    match head {
        OutputHead::Hidden => "hidden states",
        OutputHead::Next => "scores of the token that comes next",
        OutputHead::Token => "scores of the token that stands there",
        OutputHead::Class => "scores of classes",
        OutputHead::Label => "scores of labels",
        OutputHead::Span => "scores of answers",
    }
}

/// Refuses records with another number of token lists.
fn check_parts(records: &dyn Records, wanted: std::ops::RangeInclusive<usize>, what: &str) -> Result<()> {
    if wanted.contains(&records.parts()) {
        return Ok(());
    }
    let message = format!("have {} lists of tokens each, the task wants {what}", records.parts());
    Err(Error::argument("records", message))
}

fn in_vocabulary(name: &str, id: u32, vocabulary: u32) -> Result<u32> {
    if id < vocabulary {
        return Ok(id);
    }
    Err(Error::argument(name, format!("token {id} is beyond the vocabulary of {vocabulary}")))
}

fn check_rate(rate: f64) -> Result<()> {
    if rate > 0.0 && rate < 1.0 {
        return Ok(());
    }
    Err(Error::argument("rate", format!("{rate}, the share of hidden tokens lies between 0 and 1")))
}

fn missing(token: &str, why: &str) -> Error {
    Error::new(ErrorKind::Missing, "tokenizer", format!("it has no {token} token; {why}"))
}

/// Returns a list, truncated to `most` tokens.
fn beginning(records: &dyn Records, record: usize, part: usize, most: usize) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    records.read(record, part, 0..records.length(record, part).min(most), &mut tokens)?;
    Ok(tokens)
}
