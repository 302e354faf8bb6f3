//! The data of a run: read and tokenized once, and made into examples.

use std::path::PathBuf;
use std::sync::Arc;

use siskin::file::Bytes;
use siskin::tokenizer::Tokenizer;
use siskin::{Error, Result};

use super::config::RunConfig;
use crate::data::source::{Cut, files, packed_records};
use crate::data::task::{self, TASKS};
use crate::data::{
    self, Divider, Gathering, PackedTokenFile, Reading, Records, Sink, Split, Subset, TaskBatch, TaskEntry,
    TaskSettings, TokenizedDocument, Tokenizing, TrainingTask, documents, packed,
};
use crate::program::{Program, Side};
use crate::random::Random;

/// What the data is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Training.
    Training,
    /// Evaluation: training documents are not kept.
    Measuring,
}

/// The tokenized data of a run.
pub(super) struct TokenizedData {
    pub(super) tokenizer: Tokenizer,
    kind: &'static TaskEntry,
    training: Option<Arc<dyn Records>>,
    validation: Arc<dyn Records>,
}

impl TokenizedData {
    /// Reads the data of a config with the tokenizer in this section.
    pub(super) fn read(config: &RunConfig, tokenizer: Vec<u8>, purpose: Purpose) -> Result<Self> {
        let tokenizer = Tokenizer::open(Bytes::new(tokenizer))?;
        let (kind, lists) = (kind(config)?, reading(config)?.fields.len());
        let gathering = || Gathering::new(tokenizer.vocabulary_size(), lists);
        let (mut training, mut validation) = (gathering()?, gathering()?);
        let data = &config.data;
        let trains = purpose == Purpose::Training;
        let source = Sources { config, tokenizer: &tokenizer };
        if trains || data.share > 0.0 {
            source.divide(trains.then_some(&mut training), &mut validation)?;
        }
        if !data.validation.is_empty() {
            source.all(&data.validation, &mut validation)?;
        }
        let training = trains.then(|| training.finish()).transpose()?;
        let validation = validation.finish()?;
        Ok(Self { tokenizer, kind, training, validation })
    }

    /// Returns the training task; empty without training data.
    pub(super) fn training(&self, config: &RunConfig) -> Result<Arc<dyn TrainingTask>> {
        self.training_with(&config.data.settings)
    }

    /// Like [`Self::training`], with other settings of the task.
    pub(super) fn training_with(&self, settings: &TaskSettings) -> Result<Arc<dyn TrainingTask>> {
        match &self.training {
            Some(records) => (self.kind.make)(settings, &self.tokenizer, records.clone()),
            None => Ok(Arc::new(Nothing)),
        }
    }

    /// Returns the fingerprint of the training records; 0 if they were not kept.
    pub(super) fn fingerprint(&self) -> u64 {
        self.training.as_ref().map_or(0, |records| records.fingerprint())
    }

    /// Returns the validation task.
    pub(super) fn validation(&self, config: &RunConfig) -> Result<Option<Arc<dyn TrainingTask>>> {
        let make = || (self.kind.make)(&config.data.settings, &self.tokenizer, self.validation.clone());
        (self.validation.count() > 0).then(make).transpose()
    }
}

fn kind(config: &RunConfig) -> Result<&'static TaskEntry> {
    TaskEntry::of(&config.data.task).map_err(|error| error.within("data"))
}

/// Refuses a task that needs another kind of output rows than the model has.
pub(super) fn check_task(config: &RunConfig, program: &Program) -> Result<()> {
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

/// Returns what a config reads from its sources.
pub(super) fn reading(config: &RunConfig) -> Result<Reading> {
    let mut reading = kind(config)?.reading();
    if let Some(cut) = &config.data.cut {
        reading.cut = match cut.as_str() {
            "blank_lines" => Cut::Blank,
            "files" => Cut::Whole,
            separator => Cut::Separator(separator.to_owned()),
        };
    }
    fields(config, &mut reading)?;
    Ok(reading)
}

/// Applies the config's names of fields and classes.
fn fields(config: &RunConfig, reading: &mut Reading) -> Result<()> {
    let (data, task) = (&config.data, kind(config)?);
    let refuse = |key: &str, message: String| Err(Error::argument(format!("data.{key}"), message));
    if !data.fields.is_empty() {
        let least = task.fields.iter().filter(|(_, optional)| !optional).count();
        if !(least..=task.fields.len()).contains(&data.fields.len()) {
            let own: Vec<&str> = task.fields.iter().map(|(name, _)| *name).collect();
            let message = format!(
                "names {}, where {} has {}; name one for each",
                data.fields.len(),
                task.name,
                own.join(", ")
            );
            return refuse("fields", message);
        }
        reading.fields.truncate(data.fields.len());
        reading.fields.iter_mut().zip(&data.fields).for_each(|(field, name)| field.name.clone_from(name));
    }
    if task.label.is_none() {
        let given = [("label", data.label.is_some()), ("classes", !data.classes.is_empty())];
        return match given.iter().find(|(_, given)| *given) {
            Some((key, _)) => {
                refuse(key, format!("the texts of {} have no classes; leave it out", task.name))
            }
            None => Ok(()),
        };
    }
    if let Some(name) = &data.label {
        reading.label = Some(name.clone());
    }
    let (classes, said) = (&data.classes, data.settings.classes as usize);
    let twice = |&place: &usize| classes[..place].contains(&classes[place]);
    if let Some(place) = (0..classes.len()).find(twice) {
        return refuse("classes", format!("names {:?} twice; each class has one number", classes[place]));
    }
    if !classes.is_empty() && said > 0 && said != classes.len() {
        let message =
            format!("names {}, where data.settings.classes says {said}; leave that out", classes.len());
        return refuse("classes", message);
    }
    reading.classes.clone_from(classes);
    Ok(())
}

/// Returns the paths of training files.
pub(super) fn paths(names: &[String]) -> Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Err(Error::argument("data.training", "names no file"));
    }
    Ok(names.iter().map(PathBuf::from).collect())
}

/// The sources of a run's records.
pub(super) struct Sources<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) tokenizer: &'a Tokenizer,
}

/// Files of one kind: one file of packed tokens, or several of text.
enum Source {
    Packed(Arc<PackedTokenFile>),
    Texts(Vec<PathBuf>),
}

impl Sources<'_> {
    /// Returns what is read from files.
    pub(super) fn reading(&self) -> Result<Reading> {
        Ok(Reading { identity: packed::identity(self.tokenizer)?, ..reading(self.config)? })
    }

    /// Opens the named files, in their order.
    fn open(&self, names: &[String]) -> Result<(Vec<Source>, Reading)> {
        let reading = self.reading()?;
        let mut sources = Vec::new();
        for path in files(&paths(names)?)? {
            let packed = packed_records(&path, &reading)?;
            let (most, own) =
                (self.tokenizer.vocabulary_size(), packed.as_ref().map_or(0, PackedTokenFile::vocabulary));
            if own > most {
                let message = format!(
                    "its tokens lie below {own}, those of the model below {most}; pack the texts again with the \
                     model's tokenizer"
                );
                return Err(Error::argument(path.display().to_string(), message));
            }
            match (packed, sources.last_mut()) {
                (Some(packed), _) => sources.push(Source::Packed(Arc::new(packed))),
                (None, Some(Source::Texts(before))) => before.push(path),
                (None, _) => sources.push(Source::Texts(vec![path])),
            }
        }
        Ok((sources, reading))
    }

    /// Tokenizes all documents into `sink`, in order.
    pub(super) fn tokenize(&self, texts: &[PathBuf], reading: &Reading, sink: &mut dyn Sink) -> Result<()> {
        let tokenizing = Tokenizing { tokenizer: self.tokenizer, threads: 0, parse_special: false };
        tokenizing.run(documents(texts, reading)?, sink)?;
        Ok(())
    }

    /// Reads all records of the named files.
    fn all(&self, names: &[String], to: &mut Gathering) -> Result<()> {
        let (sources, reading) = self.open(names)?;
        for source in sources {
            match source {
                Source::Packed(packed) => to.add(packed)?,
                Source::Texts(texts) => self.tokenize(&texts, &reading, to)?,
            }
        }
        Ok(())
    }

    /// Splits the records of the training files into training and validation.
    fn divide(&self, mut training: Option<&mut Gathering>, validation: &mut Gathering) -> Result<()> {
        let RunConfig { data, seed, .. } = self.config;
        let split = Split { share: data.share, seed: *seed };
        if split.share <= 0.0 {
            return training.map_or(Ok(()), |training| self.all(&data.training, training));
        }
        let (sources, reading) = self.open(&data.training)?;
        for source in sources {
            match source {
                Source::Packed(packed) => {
                    let trains = |hash| split.side(hash) == data::SplitSide::Training;
                    let [trained, kept] = Subset::both(packed, trains)?;
                    training.as_mut().map_or(Ok(()), |training| training.add(Arc::new(trained)))?;
                    validation.add(Arc::new(kept))?;
                }
                Source::Texts(texts) => {
                    let mut forget = Forget;
                    let training: &mut dyn Sink = match &mut training {
                        Some(training) => *training,
                        None => &mut forget,
                    };
                    let mut divider = Divider { split, training, validation: &mut *validation };
                    self.tokenize(&texts, &reading, &mut divider)?;
                }
            }
        }
        Ok(())
    }
}

/// A sink that discards all records.
struct Forget;

impl Sink for Forget {
    fn push(&mut self, _: &TokenizedDocument) -> Result<()> {
        Ok(())
    }
}

/// A task without examples.
struct Nothing;

impl TrainingTask for Nothing {
    fn count(&self) -> usize {
        0
    }

    fn rows(&self, _: usize) -> usize {
        0
    }

    fn add(&self, _: usize, _: &mut Random, _: &mut TaskBatch) -> Result<()> {
        Err(Error::argument("data", "the texts that are trained on were not kept"))
    }
}
