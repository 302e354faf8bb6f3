//! What a run works with: a model, its tokenizer, and tasks over its texts.

use std::iter::Take;
use std::sync::Arc;

use serde_json::{Map, Value};
use siskin::file::{File, SectionKind};
use siskin::graph::Weight;
use siskin::{Error, ErrorKind, Result};

use super::config::Config;
use super::teacher::Teacher;
use super::texts::{Purpose, Texts, check_task};
use crate::adapters::{self, Adapter, AdapterOptions};
use crate::data::{Loader, LoaderOptions, Position, Step, Task};
use crate::export::Frame;
use crate::initial::Beginning;
use crate::parameters::Parameters;
use crate::program::Program;

/// What the caller opened for a run.
pub enum Base {
    /// A model.
    File(Box<File>),
    /// The tokenizer's section of a model that begins with random numbers, and a chat template.
    New {
        /// The tokenizer as a `.siskin` file holds it.
        tokenizer: Vec<u8>,
        /// The template.
        template: Option<String>,
    },
}

enum Origin {
    File(Box<File>),
    New(Box<Beginning>),
}

/// All that a run works with.
pub struct Material {
    /// What is trained.
    pub program: Program,
    /// What is trained on.
    pub training: Arc<dyn Task>,
    /// What is looked at.
    pub validation: Option<Arc<dyn Task>>,
    /// What both are made of.
    pub(super) texts: Texts,
    /// What goes into the file beside the tensors.
    pub frame: Frame,
    pub(super) adapters: Vec<Adapter>,
    pub(super) options: AdapterOptions,
    /// How many tensors the program has without adapters.
    pub(super) own: usize,
    origin: Origin,
    teacher: Option<Arc<Teacher>>,
}

impl Material {
    /// Builds the program and reads the texts.
    pub fn new(config: &Config, base: Base) -> Result<Self> {
        Self::of(config, base, Purpose::Training)
    }

    /// The same, to be looked at alone: nothing is kept of the texts that are trained on.
    pub fn to_measure(config: &Config, base: Base) -> Result<Self> {
        Self::of(config, base, Purpose::Measuring)
    }

    fn of(config: &Config, base: Base, purpose: Purpose) -> Result<Self> {
        let (origin, mut program, frame) = match base {
            Base::File(file) => {
                let (program, frame) = (Program::of_file(&file)?, frame_of(&file, config));
                (Origin::File(file), program, frame)
            }
            Base::New { tokenizer, template } => {
                let family = config.model.family.as_deref().unwrap_or_default();
                let beginning =
                    Beginning::new(family, config.model.head.as_deref(), config.model.config.clone())?;
                let program = Program::new(&beginning.graphs)?;
                let frame = Frame {
                    architecture: beginning.architecture.clone(),
                    config: beginning.config.clone(),
                    name: config.model.name.clone(),
                    licence: None,
                    provenance: provenance(config),
                    tokenizer: Some(tokenizer),
                    template,
                    lists: Vec::new(),
                };
                (Origin::New(Box::new(beginning)), program, frame)
            }
        };
        check_task(config, &program)?;
        let section = frame.tokenizer.clone().ok_or_else(|| {
            Error::new(ErrorKind::Missing, "model", "it has no tokenizer; train a model that has one")
        })?;
        let texts = Texts::read(config, section, purpose)?;
        let (training, validation) = (texts.training(config)?, texts.validation(config)?);
        let own = program.weights.len();
        let adapters = config.adapters.as_ref().map(|options| adapters::adapt(&mut program, options));
        let adapters = adapters.transpose()?.unwrap_or_default();
        let options = config.adapters.clone().unwrap_or_default();
        Ok(Self {
            program,
            training,
            validation,
            texts,
            frame,
            adapters,
            options,
            own,
            origin,
            teacher: None,
        })
    }

    /// Lets a model say of each batch what it makes of it, for losses that hold scores against those of another.
    ///
    /// # Errors
    /// Where it does not say of the same rows the same kind of scores, or reads texts by another tokenizer.
    pub fn taught_by(mut self, file: &File) -> Result<Self> {
        self.teacher = Some(Arc::new(Teacher::new(file, &self)?));
        Ok(self)
    }

    /// Whether another model says what it makes of batches.
    pub(super) fn is_taught(&self) -> bool {
        self.teacher.is_some()
    }

    /// The numbers that the run begins with.
    pub fn parameters(&self, seed: u64) -> Result<Parameters<f32>> {
        self.parameters_but(seed, |_| false)
    }

    /// The same, where matrices stay packed whose names `stays` says so of, as far as operations take them packed.
    pub fn parameters_but(&self, seed: u64, stays: impl Fn(&str) -> bool) -> Result<Parameters<f32>> {
        let weights: &[Weight] = &self.program.weights[..self.own];
        let mut parameters = match &self.origin {
            Origin::File(file) => {
                let takes = self.program.takes_packed();
                Parameters::read_but(weights, file, |weight| takes[weight] && stays(&weights[weight].name))?
            }
            Origin::New(beginning) => beginning.parameters(weights, seed),
        };
        adapters::begin(&self.program, &self.adapters, &self.options, &mut parameters, seed);
        Ok(parameters)
    }

    /// Whether the model begins with random numbers.
    pub(super) fn is_new(&self) -> bool {
        matches!(self.origin, Origin::New(_))
    }

    /// The file that the run began with, where there was one.
    pub(super) fn base(&self) -> Option<&File> {
        match &self.origin {
            Origin::File(file) => Some(file),
            Origin::New(_) => None,
        }
    }

    /// What is trained on, from `position` on.
    pub fn batches(&self, config: &Config, position: Position) -> Result<Loader> {
        self.training_batches(self.loader(config, true), position)
    }

    /// What a look looks at: some batches of all lengths, the same each time. Nothing where no text is kept for it.
    pub fn validation_batches(&self, config: &Config) -> Result<Option<Take<Loader>>> {
        let Some(task) = self.validation.clone() else { return Ok(None) };
        let most = if config.evaluate.batches == 0 { usize::MAX } else { config.evaluate.batches };
        let loader = Loader::new(task, self.loader(config, false), Position::default())?;
        Ok(Some(self.taught(loader).take(most)))
    }

    /// What is trained on, in other batches than the config says.
    pub(super) fn training_batches(&self, options: LoaderOptions, position: Position) -> Result<Loader> {
        Ok(self.taught(Loader::new(self.training.clone(), options, position)?))
    }

    fn taught(&self, loader: Loader) -> Loader {
        match self.teacher.clone() {
            Some(teacher) => loader.and_then(move |step| teacher.add(step)),
            None => loader,
        }
    }

    /// How examples become batches: of training, or of a look.
    pub(super) fn loader(&self, config: &Config, training: bool) -> LoaderOptions {
        LoaderOptions {
            seed: config.seed,
            rows: config.batch.rows,
            examples: config.batch.examples,
            pool: config.batch.pool,
            by_length: config.batch.by_length,
            // A look at some batches would else be one at the first texts, and of those at the shortest.
            shuffle: !training || config.batch.shuffle,
            epochs: u64::from(!training),
        }
    }

    /// The batch of the most rows of the first epoch, where batches have up to `rows`: with it comes the longest example.
    /// What a teacher makes of it are zeros.
    pub(super) fn longest(&self, config: &Config, rows: usize) -> Result<Step> {
        let options = LoaderOptions { rows, ..self.loader(config, true) };
        let loader = Loader::new(self.training.clone(), options, Position::default())?;
        let none = || Err(Error::argument("data", "there are no batches"));
        let mut step = loader.largest().unwrap_or_else(none)?;
        self.teacher.iter().for_each(|teacher| teacher.reserve(&mut step));
        Ok(step)
    }
}

/// What a trained file keeps of the one that it began with.
fn frame_of(file: &File, config: &Config) -> Frame {
    let metadata = file.metadata();
    let mut history = provenance(config);
    history.insert("base".to_owned(), Value::Object(metadata.provenance.clone()));
    Frame {
        architecture: metadata.architecture.clone(),
        config: metadata.config.clone(),
        name: config.model.name.clone().or_else(|| metadata.name.clone()),
        licence: metadata.licence.clone(),
        provenance: history,
        tokenizer: file.section(SectionKind::Tokenizer).map(|bytes| bytes.to_vec()),
        template: file.template().map(str::to_owned),
        lists: lists_of(file),
    }
}

/// The layers that a file has behind pooling.
fn lists_of(file: &File) -> Vec<(String, Vec<f32>)> {
    let lists = file.tensors().iter().filter(|tensor| tensor.name.starts_with("sentence."));
    lists.map(|tensor| (tensor.name.clone(), tensor.floats())).collect()
}

fn provenance(config: &Config) -> Map<String, Value> {
    let mut provenance = Map::new();
    provenance.insert("tool".to_owned(), concat!("siskin-trainer ", env!("CARGO_PKG_VERSION")).into());
    provenance.insert("seed".to_owned(), config.seed.into());
    provenance.insert("steps".to_owned(), config.steps.into());
    provenance.insert("task".to_owned(), config.data.task.clone().into());
    provenance
}
