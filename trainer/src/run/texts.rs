//! The texts of a run: read once, and made examples of.

use std::path::PathBuf;
use std::sync::Arc;

use siskin::file::Bytes;
use siskin::tokenizer::Tokenizer;
use siskin::{Error, Result};

use super::config::Config;
use crate::data::source::Cut;
use crate::data::task::{self, TASKS};
use crate::data::{
    Divider, Kind, Made, Memory, Reading, Record, Records, Settings, Sink, Split, Task, Tokenising, documents,
};
use crate::program::{Program, Side};
use crate::random::Random;

/// What texts are read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To train.
    Training,
    /// To look at a model: the texts that are trained on are not kept.
    Measuring,
}

/// The texts of a run as tokens.
pub(super) struct Texts {
    pub(super) tokenizer: Tokenizer,
    kind: &'static Kind,
    training: Option<Arc<Memory>>,
    validation: Arc<Memory>,
}

impl Texts {
    /// Reads what a config names with the tokenizer of this section.
    pub(super) fn read(config: &Config, tokenizer: Vec<u8>, purpose: Purpose) -> Result<Self> {
        let tokenizer = Tokenizer::open(Bytes::new(tokenizer))?;
        let kind = kind(config)?;
        let memory = || Memory::new(tokenizer.vocabulary_size(), kind.fields.len());
        let (mut training, mut validation) = (memory()?, memory()?);
        let data = &config.data;
        let trains = purpose == Purpose::Training;
        if trains || data.share > 0.0 {
            let sink: &mut dyn Sink = if trains { &mut training } else { &mut Forget };
            let split = Split { share: data.share, seed: config.seed };
            let mut divider = Divider { split, training: sink, validation: &mut validation };
            fill(config, &tokenizer, &data.training, &mut divider)?;
        }
        if !data.validation.is_empty() {
            fill(config, &tokenizer, &data.validation, &mut validation)?;
        }
        let training = trains.then(|| Arc::new(training));
        Ok(Self { tokenizer, kind, training, validation: Arc::new(validation) })
    }

    /// What is trained on; where nothing is, no examples.
    pub(super) fn training(&self, config: &Config) -> Result<Arc<dyn Task>> {
        self.training_with(&config.data.settings)
    }

    /// The same with other settings of the task.
    pub(super) fn training_with(&self, settings: &Settings) -> Result<Arc<dyn Task>> {
        match &self.training {
            Some(records) => (self.kind.make)(settings, &self.tokenizer, records.clone()),
            None => Ok(Arc::new(Nothing)),
        }
    }

    /// What is looked at.
    pub(super) fn validation(&self, config: &Config) -> Result<Option<Arc<dyn Task>>> {
        let make = || (self.kind.make)(&config.data.settings, &self.tokenizer, self.validation.clone());
        (self.validation.count() > 0).then(make).transpose()
    }
}

fn kind(config: &Config) -> Result<&'static Kind> {
    Kind::of(&config.data.task).map_err(|error| error.within("data"))
}

/// Refuses a task that wants of rows what the model does not say of them.
pub(super) fn check_task(config: &Config, program: &Program) -> Result<()> {
    let kind = kind(config)?;
    let sides = [Side::Reader, Side::Writer].map(|side| program.has(side));
    if kind.fits(program.head, sides) {
        return Ok(());
    }
    let fitting: Vec<_> =
        TASKS.iter().filter(|kind| kind.fits(program.head, sides)).map(|kind| kind.name).collect();
    let fitting = if fitting.is_empty() { "no task does".to_owned() } else { fitting.join(", ") };
    let message = format!(
        "{} does not fit the model, whose rows are {}; what fits: {fitting}",
        kind.name,
        task::rows_of(program.head)
    );
    Err(Error::argument("data.task", message))
}

/// What a config wants of its sources.
pub(super) fn reading(config: &Config) -> Result<Reading> {
    let mut reading = kind(config)?.reading();
    if let Some(cut) = &config.data.cut {
        reading.cut = match cut.as_str() {
            "blank_lines" => Cut::Blank,
            "files" => Cut::Whole,
            separator => Cut::Separator(separator.to_owned()),
        };
    }
    Ok(reading)
}

/// The paths of texts that are trained on.
pub(super) fn paths(names: &[String]) -> Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Err(Error::argument("data.training", "names no file"));
    }
    Ok(names.iter().map(PathBuf::from).collect())
}

fn fill(config: &Config, tokenizer: &Tokenizer, names: &[String], sink: &mut dyn Sink) -> Result<()> {
    let tokenising = Tokenising { tokenizer, threads: 0, parse_special: false };
    tokenising.run(documents(&paths(names)?, &reading(config)?)?, sink)?;
    Ok(())
}

/// Keeps nothing.
struct Forget;

impl Sink for Forget {
    fn push(&mut self, _: &Record) -> Result<()> {
        Ok(())
    }
}

/// No examples.
struct Nothing;

impl Task for Nothing {
    fn count(&self) -> usize {
        0
    }

    fn rows(&self, _: usize) -> usize {
        0
    }

    fn add(&self, _: usize, _: &mut Random, _: &mut Made) -> Result<()> {
        Err(Error::argument("data", "the texts that are trained on were not kept"))
    }
}
