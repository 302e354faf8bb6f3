//! The data of a run: read and tokenized once, and made into examples.

use std::path::PathBuf;
use std::sync::Arc;

use siskin_format::file::Bytes;
use siskin_format::{Error, Result};
use siskin_tokenizer::Tokenizer;

use super::config::RunConfig;
use crate::data::source::{DocumentSeparator, files, packed_records};
use crate::data::task::{self, TASKS};
use crate::data::{
    self, Divider, DocumentTokenizer, PackedTokenFile, ReadOptions, RecordList, Records, Sink, Split, Subset,
    TaskBatch, TaskEntry, TaskSettings, TokenizedDocument, TrainingTask, documents, packed,
};
use crate::program::{Program, Side};
use crate::random::Random;

/// What the data is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DataPurpose {
    /// Training.
    Training,
    /// Evaluation: training documents are not kept.
    Evaluation,
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
    pub(super) fn read(config: &RunConfig, tokenizer: Vec<u8>, purpose: DataPurpose) -> Result<Self> {
        let tokenizer = Tokenizer::open(Bytes::new(tokenizer))?;
        let (kind, lists) = (kind(config)?, reading(config)?.fields.len());
        let gathering = || RecordList::new(tokenizer.vocabulary_size(), lists);
        let (mut training, mut validation) = (gathering()?, gathering()?);
        let data = &config.data;
        let trains = purpose == DataPurpose::Training;
        let source = Sources { config, tokenizer: &tokenizer };
        if trains || data.validation_split > 0.0 {
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
    pub(super) fn training(&self, settings: &TaskSettings) -> Result<Arc<dyn TrainingTask>> {
        match &self.training {
            Some(records) => (self.kind.make)(settings, &self.tokenizer, records.clone()),
            None => Ok(Arc::new(NoTrainingData)),
        }
    }

    /// Returns the fingerprint of the training records; 0 if they were not kept.
    pub(super) fn fingerprint(&self) -> u64 {
        self.training.as_ref().map_or(0, |records| records.fingerprint())
    }

    /// Returns the validation task.
    pub(super) fn validation(&self, settings: &TaskSettings) -> Result<Option<Arc<dyn TrainingTask>>> {
        let make = || (self.kind.make)(settings, &self.tokenizer, self.validation.clone());
        (self.validation.count() > 0).then(make).transpose()
    }
}

fn kind(config: &RunConfig) -> Result<&'static TaskEntry> {
    TaskEntry::of(&config.data.task).map_err(|error| error.within("data"))
}

/// Rejects a task that needs another kind of output rows than the model has.
pub(super) fn check_task(config: &RunConfig, program: &Program) -> Result<()> {
    let kind = kind(config)?;
    let sides = [Side::Encoder, Side::Decoder].map(|side| program.has(side));
    if kind.fits(program.graph.head, sides) {
        return Ok(());
    }
    let fitting: Vec<_> =
        TASKS.iter().filter(|kind| kind.fits(program.graph.head, sides)).map(|kind| kind.name).collect();
    let fitting = if fitting.is_empty() { "none".to_owned() } else { fitting.join(", ") };
    let message = format!(
        "{} does not fit a model whose outputs are {}; tasks that fit: {fitting}",
        kind.name,
        task::rows_of(program.graph.head)
    );
    Err(Error::argument("data.task", message))
}

/// Returns what a config reads from its sources.
pub(super) fn reading(config: &RunConfig) -> Result<ReadOptions> {
    let mut reading = kind(config)?.reading();
    if let Some(cut) = &config.data.document_separator {
        reading.separator = match cut.as_str() {
            "blank_lines" => DocumentSeparator::BlankLines,
            "files" => DocumentSeparator::Files,
            separator => DocumentSeparator::Text(separator.to_owned()),
        };
    }
    fields(config, &mut reading)?;
    Ok(reading)
}

/// Applies the config's names of fields and classes.
fn fields(config: &RunConfig, reading: &mut ReadOptions) -> Result<()> {
    let (data, task) = (&config.data, kind(config)?);
    let reject = |key: &str, message: String| Err(Error::argument(format!("data.{key}"), message));
    if !data.text_fields.is_empty() {
        let least = task.fields.iter().filter(|(_, optional)| !optional).count();
        if !(least..=task.fields.len()).contains(&data.text_fields.len()) {
            let own: Vec<&str> = task.fields.iter().map(|(name, _)| *name).collect();
            let message = format!(
                "{} names, but {} has the fields {}; set one name for each",
                data.text_fields.len(),
                task.name,
                own.join(", ")
            );
            return reject("text_fields", message);
        }
        reading.fields.truncate(data.text_fields.len());
        reading
            .fields
            .iter_mut()
            .zip(&data.text_fields)
            .for_each(|(field, name)| field.name.clone_from(name));
    }
    if task.label.is_none() {
        let given =
            [("label_field", data.label_field.is_some()), ("class_names", !data.class_names.is_empty())];
        return match given.iter().find(|(_, given)| *given) {
            Some((key, _)) => {
                reject(key, format!("the task {} has no classes; remove the setting", task.name))
            }
            None => Ok(()),
        };
    }
    if let Some(name) = &data.label_field {
        reading.label = Some(name.clone());
    }
    let (classes, declared) = (&data.class_names, data.settings.num_classes as usize);
    let twice = |&place: &usize| classes[..place].contains(&classes[place]);
    if let Some(place) = (0..classes.len()).find(twice) {
        return reject("class_names", format!("contains {:?} twice", classes[place]));
    }
    if !classes.is_empty() && declared > 0 && declared != classes.len() {
        let message = format!(
            "{} names, but data.settings.num_classes is {declared}; remove that setting",
            classes.len()
        );
        return reject("class_names", message);
    }
    reading.classes.clone_from(classes);
    Ok(())
}

/// Returns the paths of training files.
pub(super) fn paths(names: &[String]) -> Result<Vec<PathBuf>> {
    if names.is_empty() {
        return Err(Error::argument("data.train", "empty; list at least one file or folder"));
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
    pub(super) fn reading(&self) -> Result<ReadOptions> {
        Ok(ReadOptions { identity: packed::identity(self.tokenizer)?, ..reading(self.config)? })
    }

    /// Opens the named files, in their order.
    fn open(&self, names: &[String]) -> Result<(Vec<Source>, ReadOptions)> {
        let reading = self.reading()?;
        let mut sources = Vec::new();
        for path in files(&paths(names)?)? {
            let packed = packed_records(&path, &reading)?;
            let (vocabulary, own) =
                (self.tokenizer.vocabulary_size(), packed.as_ref().map_or(0, PackedTokenFile::vocabulary));
            if own > vocabulary {
                let message = format!(
                    "its vocabulary of {own} tokens is larger than the model's of {vocabulary}; pack the texts again with \
                     the model's tokenizer"
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
    pub(super) fn tokenize(
        &self,
        texts: &[PathBuf],
        reading: &ReadOptions,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let tokenizing = DocumentTokenizer { tokenizer: self.tokenizer, threads: 0, parse_special: false };
        tokenizing.run(documents(texts, reading)?, sink)?;
        Ok(())
    }

    /// Reads all records of the named files.
    fn all(&self, names: &[String], to: &mut RecordList) -> Result<()> {
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
    fn divide(&self, mut training: Option<&mut RecordList>, validation: &mut RecordList) -> Result<()> {
        let RunConfig { data, seed, .. } = self.config;
        let split = Split { validation_split: data.validation_split, seed: *seed };
        if split.validation_split <= 0.0 {
            return training.map_or(Ok(()), |training| self.all(&data.train, training));
        }
        let (sources, reading) = self.open(&data.train)?;
        for source in sources {
            match source {
                Source::Packed(packed) => {
                    let trains = |hash| split.side(hash) == data::SplitSide::Training;
                    let [trained, kept] = Subset::both(packed, trains)?;
                    training.as_mut().map_or(Ok(()), |training| training.add(Arc::new(trained)))?;
                    validation.add(Arc::new(kept))?;
                }
                Source::Texts(texts) => {
                    let mut discard = DiscardRecords;
                    let training: &mut dyn Sink = match &mut training {
                        Some(training) => *training,
                        None => &mut discard,
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
struct DiscardRecords;

impl Sink for DiscardRecords {
    fn push(&mut self, _: &TokenizedDocument) -> Result<()> {
        Ok(())
    }
}

/// A task without examples.
struct NoTrainingData;

impl TrainingTask for NoTrainingData {
    fn count(&self) -> usize {
        0
    }

    fn rows(&self, _: usize) -> usize {
        0
    }

    fn add(&self, _: usize, _: &mut Random, _: &mut TaskBatch) -> Result<()> {
        Err(Error::argument("data", "the training data was not loaded"))
    }
}
