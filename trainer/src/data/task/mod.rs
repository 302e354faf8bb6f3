//! What is learnt from records: one file for each task, and one list.
//!
//! A task makes examples of records, each with a number. An example is a function of its number and of a stream of
//! random numbers, so that any example can be made at any time. Some of them make a batch: their texts stand side by
//! side, and no text sees another.

mod causal;
mod classes;
mod contrast;
mod frame;
mod masked;
mod seq2seq;
mod spans;

pub use causal::{Causal, Packing};
pub use classes::Classes;
pub use contrast::Contrast;
pub use frame::Frame;
pub use masked::Masked;
pub use seq2seq::Seq2Seq;
pub use spans::{Sentinels, Spans};

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siskin::graph::Head;
use siskin::tokenizer::Tokenizer;
use siskin::{Error, ErrorKind, Result};

use super::records::Records;
use super::source::{Field, Reading};
use crate::batch::{Batch, Texts};
use crate::loss::Targets;
use crate::random::Random;
use crate::settings::unknown;

/// A batch, and what its wanted rows should be.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// What goes through the model.
    pub batch: Batch,
    /// An id and a weight for each wanted row, unless the task says otherwise.
    pub targets: Targets,
}

impl Made {
    fn target(&mut self, id: u32, weight: f32) {
        self.targets.ids.push(id);
        self.targets.weights.push(weight);
    }

    /// Appends a text that is written to say `labels`: each row sees the label before, the first `start`.
    fn write(&mut self, start: u32, labels: &[u32]) {
        let mut tokens = vec![start];
        tokens.extend(&labels[..labels.len().saturating_sub(1)]);
        tokens.truncate(labels.len());
        push_wanted(&mut self.batch.writer, &tokens);
        labels.iter().for_each(|&label| self.target(label, 1.0));
    }
}

/// Appends a text all of whose rows are wanted.
fn push_wanted(texts: &mut Texts, tokens: &[u32]) {
    let first = texts.rows.len();
    texts.push(tokens, &[]);
    texts.wanted.extend(first..texts.rows.len());
}

/// Makes examples of records.
pub trait Task: Send + Sync {
    /// How many examples there are.
    fn count(&self) -> usize;

    /// The rows that an example takes, of reader and writer together.
    fn rows(&self, example: usize) -> usize;

    /// Appends an example to what was made.
    fn add(&self, example: usize, random: &mut Random, made: &mut Made) -> Result<()>;
}

/// What may be said of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The most rows of a text.
    pub length: usize,
    /// The most rows of a text that is written from another; 0: as many as of the other.
    pub target_length: usize,
    /// For causal: whether texts run on from document to document, with the end token between.
    pub across: bool,
    /// The share of tokens that is hidden.
    pub rate: f64,
    /// For spans: the tokens of a hidden span, on average.
    pub span: f64,
    /// For classes: how many there are; 0: as many as the records name.
    pub classes: u32,
    /// The token that a written text starts with, for models that write what they read.
    pub decoder_start: Option<u32>,
}

impl Default for Settings {
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

impl Settings {
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

/// Makes a task of what is said of it.
pub type Maker = fn(&Settings, &Tokenizer, Arc<dyn Records>) -> Result<Arc<dyn Task>>;

/// A task as it is called for.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The fields of its documents, and whether they may be missing.
    pub fields: &'static [(&'static str, bool)],
    /// The field of their class.
    pub label: Option<&'static str>,
    /// What the rows of a model are that it fits.
    pub head: Head,
    /// Whether texts are read, and whether texts are written.
    pub sides: [bool; 2],
    /// Makes it.
    pub make: Maker,
}

/// Every task.
pub const TASKS: &[Kind] =
    &[causal::KIND, masked::KIND, spans::KIND, classes::KIND, contrast::KIND, seq2seq::KIND];

impl Kind {
    /// The task of this name.
    pub fn of(name: &str) -> Result<&'static Self> {
        TASKS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<&str> = TASKS.iter().map(|kind| kind.name).collect();
            unknown("task", "task", name, &names)
        })
    }

    /// Whether it fits a model with such rows that reads texts, writes texts, or both.
    pub fn fits(&self, head: Head, sides: [bool; 2]) -> bool {
        (self.head, self.sides) == (head, sides)
    }

    /// What it wants of sources.
    pub fn reading(&self) -> Reading {
        let field = |&(name, optional): &(&str, bool)| Field { name: name.to_owned(), optional };
        Reading {
            fields: self.fields.iter().map(field).collect(),
            label: self.label.map(str::to_owned),
            ..Reading::default()
        }
    }
}

/// What the rows of a model with this head are, in words.
pub(crate) fn rows_of(head: Head) -> &'static str {
    match head {
        Head::Hidden => "hidden states",
        Head::Next => "scores of the token that comes next",
        Head::Token => "scores of the token that stands there",
        Head::Class => "scores of classes",
        Head::Label => "scores of labels",
        Head::Span => "scores of answers",
    }
}

/// Refuses records of other than so many lists.
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

/// A list, or its beginning where it is longer than `most`.
fn beginning(records: &dyn Records, record: usize, part: usize, most: usize) -> Result<Vec<u32>> {
    let mut tokens = Vec::new();
    records.read(record, part, 0..records.length(record, part).min(most), &mut tokens)?;
    Ok(tokens)
}
