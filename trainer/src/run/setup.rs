//! The inputs of a run: a model, its tokenizer, and tasks over its data.

use std::iter::Take;
use std::sync::Arc;

use serde_json::{Map, Value};
use siskin_format::file::{File, SectionKind};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::Weight;

use super::config::RunConfig;
use super::dataset::{DataPurpose, TokenizedData, check_task};
use super::teacher::Teacher;
use crate::adapters::{self, AdapterOptions, TrainedAdapter};
use crate::data::{LoadedBatch, Loader, LoaderOptions, Position, TaskSettings, TrainingTask};
use crate::export::FileContents;
use crate::initialization::{InitialModel, check_dropout, dropout};
use crate::parameters::Parameters;
use crate::program::{self, Program, Side};

/// The model or tokenizer that the caller opened for a run.
pub enum OpenedBase {
    /// A model.
    File(Box<File>),
    /// The tokenizer section of a randomly initialized model, and a chat template.
    New {
        /// The tokenizer, as a `.siskin` file holds it.
        tokenizer: Vec<u8>,
        /// The template.
        template: Option<String>,
    },
}

enum ParameterSource {
    File(Box<File>),
    New(Box<InitialModel>),
}

/// The inputs of a run.
pub struct RunSetup {
    /// The program to train.
    pub program: Program,
    /// The training task.
    pub training: Arc<dyn TrainingTask>,
    /// The validation task.
    pub validation: Option<Arc<dyn TrainingTask>>,
    /// The settings of the task; the maximum length defaults to the model's context.
    pub(super) settings: TaskSettings,
    /// The tokenized text of both.
    pub(super) texts: TokenizedData,
    /// What goes into the exported file besides the tensors.
    pub file_contents: FileContents,
    pub(super) adapters: Vec<TrainedAdapter>,
    pub(super) options: AdapterOptions,
    /// The number of tensors of the program without adapters.
    pub(super) base_weights: usize,
    origin: ParameterSource,
    teacher: Option<Arc<Teacher>>,
}

impl RunSetup {
    /// Builds the program and reads the data.
    pub fn new(config: &RunConfig, base: OpenedBase) -> Result<Self> {
        Self::of(config, base, DataPurpose::Training)
    }

    /// Like [`Self::new`], for evaluation only: training data is not kept.
    pub fn for_evaluation(config: &RunConfig, base: OpenedBase) -> Result<Self> {
        Self::of(config, base, DataPurpose::Evaluation)
    }

    fn of(config: &RunConfig, base: OpenedBase, purpose: DataPurpose) -> Result<Self> {
        let (origin, mut program, frame, context) = match base {
            OpenedBase::File(file) => {
                check_dropout("model.config", &config.model.config)?;
                let (model_config, graphs) = program::graphs_of(&file)?;
                let (program, frame) = (Program::new(&graphs)?, frame_of(&file, config));
                (ParameterSource::File(file), program, frame, model_config.context)
            }
            OpenedBase::New { tokenizer, template } => {
                let family = config.model.family.as_deref().unwrap_or_default();
                let beginning =
                    InitialModel::new(family, config.model.head.as_deref(), config.model.config.clone())?;
                let program = Program::new(&beginning.graphs)?;
                let frame = FileContents {
                    architecture: beginning.architecture.clone(),
                    config: beginning.config.clone(),
                    name: config.model.name.clone(),
                    license: None,
                    provenance: provenance(config),
                    tokenizer: Some(tokenizer),
                    template,
                    vectors: Vec::new(),
                };
                let context = beginning.context();
                (ParameterSource::New(Box::new(beginning)), program, frame, context)
            }
        };
        check_task(config, &program)?;
        let section = frame.tokenizer.clone().ok_or_else(|| {
            Error::new(ErrorKind::Missing, "model", "no tokenizer; use a model that has one")
        })?;
        let texts = TokenizedData::read(config, section, purpose)?;
        // A longer sequence would be a batch by itself.
        let positions =
            [Side::Encoder, Side::Decoder].into_iter().filter_map(|side| program.max_positions(side));
        let context = positions.min().unwrap_or(context).min(config.batch.max_tokens.max(1));
        let settings = config.data.settings.clone().with_context(context);
        let (training, validation) = (texts.training(&settings)?, texts.validation(&settings)?);
        let own = program.graph.weights.len();
        let adapters =
            config.adapters.as_ref().map(|options| adapters::insert_adapters(&mut program, options));
        let adapters = adapters.transpose()?.unwrap_or_default();
        let options = config.adapters.clone().unwrap_or_default();
        Ok(Self {
            program,
            training,
            validation,
            settings,
            texts,
            file_contents: frame,
            adapters,
            options,
            base_weights: own,
            origin,
            teacher: None,
        })
    }

    /// Adds a teacher model, which computes the scores of each batch for distillation losses.
    ///
    /// # Errors
    /// If the teacher has a different head, number of logits, or tokenizer.
    pub fn with_teacher(mut self, file: &File) -> Result<Self> {
        self.teacher =
            Some(Arc::new(Teacher::new(file, &self.program, self.file_contents.tokenizer.as_deref())?));
        Ok(self)
    }

    /// Returns true if there is a teacher model.
    pub(super) fn has_teacher(&self) -> bool {
        self.teacher.is_some()
    }

    /// Returns the initial parameters of the run.
    pub fn parameters(&self, seed: u64) -> Result<Parameters<f32>> {
        self.parameters_with_packed(seed, |_| false)
    }

    /// Like [`Self::parameters`], but matrices for which `stays` returns true stay packed if every operation that
    /// reads them takes them packed.
    pub fn parameters_with_packed(&self, seed: u64, stays: impl Fn(&str) -> bool) -> Result<Parameters<f32>> {
        let weights: &[Weight] = &self.program.graph.weights[..self.base_weights];
        let mut parameters = match &self.origin {
            ParameterSource::File(file) => {
                let takes = self.program.takes_packed();
                Parameters::read_with_packed(weights, file, |weight| {
                    takes[weight] && stays(&weights[weight].name)
                })?
            }
            ParameterSource::New(beginning) => beginning.parameters(weights, seed),
        };
        adapters::initialize(&self.program, &self.adapters, &self.options, &mut parameters, seed);
        Ok(parameters)
    }

    /// Returns true if the model is randomly initialized.
    pub(super) fn is_random(&self) -> bool {
        matches!(self.origin, ParameterSource::New(_))
    }

    /// Returns the dropout settings of the model that the run started from, which the trainer does not apply.
    pub(super) fn ignored_dropout(&self) -> Vec<String> {
        match &self.origin {
            ParameterSource::File(file) => {
                dropout(&file.metadata().config).map(|(key, _)| key.clone()).collect()
            }
            ParameterSource::New(_) => Vec::new(),
        }
    }

    /// Returns the model file that the run started from, if any.
    pub(super) fn base(&self) -> Option<&File> {
        match &self.origin {
            ParameterSource::File(file) => Some(file),
            ParameterSource::New(_) => None,
        }
    }

    /// Returns the training batches from `position` on.
    pub fn batches(&self, config: &RunConfig, position: Position) -> Result<Loader> {
        self.training_batches(self.loader(config, true), position)
    }

    /// Returns the validation batches: some batches of all lengths, the same each time. `None` without validation
    /// data.
    pub fn validation_batches(&self, config: &RunConfig) -> Result<Option<Take<Loader>>> {
        let Some(task) = self.validation.clone() else { return Ok(None) };
        let max_batches = if config.validation.batches == 0 { usize::MAX } else { config.validation.batches };
        let loader = Loader::new(task, self.loader(config, false), Position::default())?;
        Ok(Some(self.with_teacher_scores(loader).take(max_batches)))
    }

    /// Returns the training batches with other loader options than the config's.
    pub(super) fn training_batches(&self, options: LoaderOptions, position: Position) -> Result<Loader> {
        Ok(self.with_teacher_scores(Loader::new(self.training.clone(), options, position)?))
    }

    fn with_teacher_scores(&self, loader: Loader) -> Loader {
        match self.teacher.clone() {
            Some(teacher) => loader.and_then(move |step| teacher.add(step)),
            None => loader,
        }
    }

    /// Returns the loader options of training or of validation.
    pub(super) fn loader(&self, config: &RunConfig, training: bool) -> LoaderOptions {
        LoaderOptions {
            seed: config.seed,
            max_tokens: config.batch.max_tokens,
            max_examples: config.batch.max_examples,
            pool_size: config.batch.pool_size,
            group_by_length: config.batch.group_by_length,
            // Without shuffling, a validation on some batches would only cover the first documents, and of these the
            // shortest.
            shuffle: !training || config.batch.shuffle,
            epochs: u64::from(!training),
        }
    }

    /// Returns the batch with the most rows of the first epoch, with batches of up to `rows` rows; it contains the
    /// longest example. Its teacher scores are zeros.
    pub(super) fn largest_batch(&self, config: &RunConfig, rows: usize) -> Result<LoadedBatch> {
        let options = LoaderOptions { max_tokens: rows, ..self.loader(config, true) };
        let loader = Loader::new(self.training.clone(), options, Position::default())?;
        let none = || Err(Error::argument("data", "there are no batches"));
        let mut step = loader.largest().unwrap_or_else(none)?;
        self.teacher.iter().for_each(|teacher| teacher.reserve(&mut step));
        Ok(step)
    }
}

/// Returns the metadata that a trained file keeps of the one that the run started from.
fn frame_of(file: &File, config: &RunConfig) -> FileContents {
    let metadata = file.metadata();
    let mut history = provenance(config);
    history.insert("base".to_owned(), Value::Object(metadata.provenance.clone()));
    FileContents {
        architecture: metadata.architecture.clone(),
        config: metadata.config.clone(),
        name: config.model.name.clone().or_else(|| metadata.name.clone()),
        license: metadata.license.clone(),
        provenance: history,
        tokenizer: file.section(SectionKind::Tokenizer).map(|bytes| bytes.to_vec()),
        template: file.template().map(str::to_owned),
        vectors: lists_of(file),
    }
}

/// Returns the layers after pooling that a file has.
fn lists_of(file: &File) -> Vec<(String, Vec<f32>)> {
    let lists = file.tensors().iter().filter(|tensor| tensor.name.starts_with("sentence."));
    lists.map(|tensor| (tensor.name.clone(), tensor.floats())).collect()
}

fn provenance(config: &RunConfig) -> Map<String, Value> {
    let mut provenance = Map::new();
    provenance.insert("tool".to_owned(), concat!("siskin-trainer ", env!("CARGO_PKG_VERSION")).into());
    provenance.insert("seed".to_owned(), config.seed.into());
    provenance.insert("steps".to_owned(), config.steps.into());
    provenance.insert("task".to_owned(), config.data.task.clone().into());
    provenance
}
