//! Training tasks: one file for each task, and one list.
//!
//! A task makes numbered examples of records. An example is a function of its index and of a random stream, so that
//! any example can be made at any time. Several examples form a batch: their sequences are concatenated, and no
//! sequence attends to another.

mod causal_lm;
mod classification;
mod contrastive;
mod masked_lm;
mod seq2seq;
mod span_corruption;
mod special_tokens;

pub use causal_lm::{CausalLm, Packing};
pub use classification::ClassificationTask;
pub use contrastive::ContrastiveTask;
pub use masked_lm::MaskedLm;
pub use seq2seq::Seq2SeqTask;
pub use span_corruption::{Sentinels, SpanCorruption};
pub use special_tokens::SpecialTokens;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::OutputHead;
use siskin_tokenizer::Tokenizer;

use super::records::Records;
use super::source::{Field, ReadOptions};
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
        push_with_outputs(&mut self.batch.decoder, &tokens);
        labels.iter().for_each(|&label| self.target(label, 1.0));
    }
}

/// Appends a sequence all of whose rows are output rows.
fn push_with_outputs(texts: &mut BatchSequences, tokens: &[u32]) {
    let first = texts.rows.len();
    texts.push(tokens, &[]);
    texts.output_rows.extend(first..texts.rows.len());
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
    /// The maximum number of tokens of a sequence; 0: the model's context, see [`Self::with_context`].
    pub max_length: usize,
    /// The maximum number of tokens of a decoder sequence with an encoder; 0: the same as `max_length`.
    pub max_target_length: usize,
    /// For `causal_lm`: whether sequences continue across documents, with the end-of-text token between.
    pub packing: bool,
    /// For `masked_lm` and `span_corruption`: the fraction of tokens that is masked.
    pub mlm_probability: f64,
    /// For `span_corruption`: the mean number of tokens of a masked span.
    pub mean_noise_span_length: f64,
    /// For `sequence_classification`: the number of classes; 0: as many as the records have.
    pub num_classes: u32,
    /// For encoder–decoders: the id of the token that a decoder sequence starts with.
    pub decoder_start_token_id: Option<u32>,
}

impl Default for TaskSettings {
    fn default() -> Self {
        Self {
            max_length: 0,
            max_target_length: 0,
            packing: false,
            mlm_probability: 0.15,
            mean_noise_span_length: 3.0,
            num_classes: 0,
            decoder_start_token_id: None,
        }
    }
}

impl TaskSettings {
    /// Returns the settings with `context` as the maximum length if none is set.
    #[must_use]
    pub fn with_context(self, context: usize) -> Self {
        Self { max_length: if self.max_length == 0 { context } else { self.max_length }, ..self }
    }

    /// Returns the maximum number of tokens of a decoder sequence with an encoder.
    pub fn max_target_length(&self) -> usize {
        if self.max_target_length == 0 { self.max_length } else { self.max_target_length }
    }

    fn decoder_start_token_id(&self, vocabulary: u32) -> Result<u32> {
        let start = self.decoder_start_token_id.ok_or_else(|| {
            let message = "missing; set the id of the token that decoder sequences start with";
            Error::new(ErrorKind::Missing, "decoder_start_token_id", message)
        })?;
        in_vocabulary("decoder_start_token_id", start, vocabulary)
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
pub const TASKS: &[TaskEntry] = &[
    causal_lm::KIND,
    masked_lm::KIND,
    span_corruption::KIND,
    classification::KIND,
    contrastive::KIND,
    seq2seq::KIND,
];

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
    pub fn reading(&self) -> ReadOptions {
        let field = |&(name, optional): &(&str, bool)| Field { name: name.to_owned(), optional };
        ReadOptions {
            fields: self.fields.iter().map(field).collect(),
            label: self.label.map(str::to_owned),
            ..ReadOptions::default()
        }
    }
}

/// Describes the output rows of a model with this head.
pub(crate) fn rows_of(head: OutputHead) -> &'static str {
    match head {
        OutputHead::Hidden => "hidden states",
        OutputHead::Next => "next-token logits",
        OutputHead::Token => "masked-token logits",
        OutputHead::Class => "sequence classes",
        OutputHead::Label => "token labels",
        OutputHead::Span => "answer spans",
    }
}

/// Refuses records with another number of token lists.
fn check_parts(records: &dyn Records, wanted: std::ops::RangeInclusive<usize>, what: &str) -> Result<()> {
    if wanted.contains(&records.parts()) {
        return Ok(());
    }
    let message = format!("{} token lists each, but the task needs {what}", records.parts());
    Err(Error::argument("records", message))
}

fn in_vocabulary(name: &str, id: u32, vocabulary: u32) -> Result<u32> {
    if id < vocabulary {
        return Ok(id);
    }
    Err(Error::argument(name, format!("token {id} is out of range for a vocabulary of {vocabulary} tokens")))
}

fn check_mlm_probability(probability: f64) -> Result<()> {
    if probability > 0.0 && probability < 1.0 {
        return Ok(());
    }
    Err(Error::argument("mlm_probability", format!("expected a number between 0 and 1, got {probability}")))
}

fn missing(token: &str, why: &str) -> Error {
    Error::new(ErrorKind::Missing, "tokenizer", format!("no {token} token; {why}"))
}

/// Returns a list, truncated to `most` tokens.
fn beginning(records: &dyn Records, record: usize, part: usize, most: usize) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    records.read(record, part, 0..records.length(record, part).min(most), &mut tokens)?;
    Ok(tokens)
}
