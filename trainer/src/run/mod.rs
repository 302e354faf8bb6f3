//! A training run: data to steps, steps to a model, and resuming from checkpoints.

mod callbacks;
mod check;
mod checkpoint_thread;
mod config;
mod dataset;
mod device_trainer;
mod evaluation;
mod fingerprint;
pub(crate) mod host_trainer;
mod inputs;
mod loss_pooling;
mod memory;
mod packing;
mod report_options;
mod result;
mod samples;
mod setup;
mod step;
mod teacher;
mod trained_tokenizer;
mod validation;

pub use crate::report::Sample;
pub use crate::run_folder::prepare as prepare_folder;
pub use callbacks::{RunCallbacks, RunEnd, StepReport, Validation};
pub use check::{Check, Depth, Outcome};
pub use config::{
    BatchOptions, CheckpointOptions, DataOptions, ModelOrigin, RunConfig, RunExports, StatisticsOptions,
    TeacherOptions, ValidationOptions,
};
pub use device_trainer::DeviceArguments;
pub use evaluation::{evaluate, evaluate_with_device};
pub use inputs::inputs;
pub use packing::{PackedFile, pack};
pub use report_options::ReportOptions;
pub use setup::{OpenedBase, RunSetup};
pub use trained_tokenizer::trained_tokenizer;

use std::iter::Peekable;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use siskin_format::{Error, ErrorKind, Result};

use self::check::RunChecker;
use self::checkpoint_thread::CheckpointWriter;
use self::device_trainer::DeviceTrainer;
use self::host_trainer::HostTrainer;
use self::validation::ModelSelection;
use crate::adapters;
use crate::checkpoint::{Checkpoint, CheckpointFolder};
use crate::cuda::DeviceRunner;
use crate::data::{Position, Prefetch};
use crate::early_stopping::EarlyStopping;
use crate::loss::LossSum;
use crate::parameters::Parameters;
use crate::profile::{ProfiledThread, Recorder, timed};
use crate::schedule::LearningRateSchedule;
use crate::state::{self, Checkpointed};

/// A training run.
pub struct Run {
    config: RunConfig,
    setup: RunSetup,
    host: HostTrainer,
    device: Option<DeviceTrainer>,
    schedule: LearningRateSchedule,
    progress: RunProgress,
    selection: ModelSelection,
    folder: Option<CheckpointFolder>,
    profiled: Option<Profiled>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RunProgress {
    /// Steps so far.
    step: u64,
    /// Steps of this process that were skipped because the scaled gradients were not finite.
    skipped_steps: u64,
    /// Where the data of the next step begins.
    position: Position,
}

/// The profiled steps, counted from 1, and their recorder.
struct Profiled {
    steps: Range<u64>,
    recorder: Recorder,
}

/// Prepares a device for training a program; `None`: the CPU trains it.
pub type OpenDevice<'a> = &'a dyn Fn(&DeviceArguments<'_>) -> Result<Option<DeviceRunner>>;

impl Run {
    /// Starts a run that keeps its checkpoints in `folder`.
    pub fn new(config: RunConfig, setup: RunSetup, folder: Option<&Path>) -> Result<Self> {
        Self::with_device(config, setup, folder, &device_trainer::open)
    }

    /// Like [`Self::new`], on another device than the config names.
    pub fn with_device(
        config: RunConfig,
        setup: RunSetup,
        folder: Option<&Path>,
        open: OpenDevice<'_>,
    ) -> Result<Self> {
        let config =
            RunConfig { loss: loss_pooling::loss(&config.loss, &setup.file_contents.config)?, ..config };
        check_options(&config, &setup)?;
        let host = HostTrainer::new(&config, &setup)?;
        let device = open(&DeviceArguments {
            config: &config,
            program: host.runner.program(),
            parameters: &host.parameters,
            gradients: &host.gradients,
            optimizer: &host.optimizer,
            ema: host.ema.as_ref(),
            adapters: &setup.adapters,
            qat: host.qat.as_ref(),
        })?;
        let device = device.map(|runner| DeviceTrainer::new(&config, runner)).transpose()?;
        let schedule = LearningRateSchedule::new(&config.schedule, config.steps)?;
        let early_stopping = config.early_stopping.as_ref().map(EarlyStopping::from_settings).transpose()?;
        if setup.validation.is_none() {
            validation::check_validation_data(&config)?;
        }
        config.report.check(host.runner.program())?;
        let profiled = config.profile.window()?.map(Profiled::new);
        let folder =
            folder.map(|path| CheckpointFolder::new(path, config.checkpoint.keep_last)).transpose()?;
        Ok(Self {
            config,
            setup,
            host,
            device,
            schedule,
            progress: RunProgress::default(),
            selection: ModelSelection { early_stopping, best: None },
            folder,
            profiled,
        })
    }

    /// Resumes from the newest readable checkpoint, and returns whether there was one. Errors of newer checkpoints
    /// are reported to `callbacks`.
    pub fn resume(&mut self, callbacks: &mut dyn RunCallbacks) -> Result<bool> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let (newest, wrong) = folder.newest()?;
        wrong.iter().for_each(|error| callbacks.warning(&format!("a checkpoint cannot be read: {error}")));
        let Some(checkpoint) = newest else { return Ok(false) };
        self.restore(&checkpoint)?;
        Ok(true)
    }

    /// Trains to the end, or until `cancel` is set. A checkpoint that cannot be written is reported to `callbacks`; it is
    /// an error only if the run could not be resumed without it.
    pub fn train(&mut self, cancel: &AtomicBool, callbacks: &mut dyn RunCallbacks) -> Result<RunEnd> {
        let loader = self.setup.batches(&self.config, self.progress.position)?;
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let ahead = 2 * self.config.batch.gradient_accumulation_steps;
        let mut batches = Prefetch::recorded(loader, ahead, recorder.clone())?.peekable();
        let mut writer = CheckpointWriter::recorded(recorder);
        let ended = self.training_loop(cancel, &mut batches, &mut writer, callbacks)?;
        let last = writer.finish();
        writer.report_failure(callbacks);
        match last {
            Err(error) if ended == RunEnd::Interrupted => return Err(error),
            Err(error) => callbacks.warning(&format!("the last checkpoint could not be written: {error}")),
            Ok(()) => {}
        }
        self.report_profile(callbacks);
        Ok(ended)
    }

    fn training_loop(
        &mut self,
        cancel: &AtomicBool,
        batches: &mut Peekable<Prefetch>,
        writer: &mut CheckpointWriter,
        callbacks: &mut dyn RunCallbacks,
    ) -> Result<RunEnd> {
        let mut validated_step = None;
        while self.progress.step < self.config.steps {
            if cancel.load(Ordering::Relaxed) {
                self.save(false, writer)?;
                return Ok(RunEnd::Interrupted);
            }
            writer.report_failure(callbacks);
            let (progress, statistics) = self.step(batches)?;
            callbacks.step(&progress);
            if let Some(statistics) = statistics {
                callbacks.statistics(&statistics);
            }
            let due = |every: u64| every > 0 && self.progress.step.is_multiple_of(every);
            let (validate, save) =
                (due(self.config.validation.every_n_steps), due(self.config.checkpoint.every_n_steps));
            let mut best = false;
            if validate {
                let (validation, ends) = self.validate_and_sample(callbacks)?;
                (best, validated_step) = (validation.best, Some(self.progress.step));
                if ends {
                    self.save(best, writer)?;
                    return Ok(RunEnd::EarlyStopped);
                }
            }
            if save || best {
                self.save(best, writer)?;
            }
            if self.profiled.as_ref().is_some_and(|profiled| profiled.is_over(self.progress.step)) {
                self.report_profile(callbacks);
            }
        }
        let best = validated_step != Some(self.progress.step) && self.validate_and_sample(callbacks)?.0.best;
        self.save(best, writer)?;
        Ok(RunEnd::Completed)
    }

    /// Validates, and returns whether the run ends.
    fn validate_and_sample(&mut self, callbacks: &mut dyn RunCallbacks) -> Result<(Validation, bool)> {
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let result =
            timed(recorder.as_ref(), "validation", ProfiledThread::Steps, || self.validate(callbacks))?;
        match self.samples() {
            Ok(samples) if samples.is_empty() => {}
            Ok(samples) => callbacks.samples(self.progress.step, &samples),
            Err(error) => callbacks.warning(&format!("cannot generate samples: {error}")),
        }
        Ok(result)
    }

    fn validate(&mut self, callbacks: &mut dyn RunCallbacks) -> Result<(Validation, bool)> {
        let Some(sum) = self.evaluate()? else { return Ok((Validation::default(), false)) };
        let result = self.selection.judge(self.progress.step, &sum);
        callbacks.validation(&result);
        Ok((result, self.selection.stops(&result)))
    }

    /// Returns the validation loss, with the averaged parameters if weights are averaged.
    pub fn evaluate(&mut self) -> Result<Option<LossSum>> {
        if let Some(device) = &mut self.device {
            return device.evaluate(&self.config, &self.setup);
        }
        let (config, setup) = (&self.config, &self.setup);
        self.host.with_ema(|host| {
            let loss = host.loss.as_ref();
            evaluation::evaluate_batches(config, setup, &mut host.runner, loss, &host.parameters)
        })?
    }

    /// Loads the weights that the config exports, and returns the step that they are from.
    ///
    /// # Errors
    /// If the weights of the best validation are to be exported and the folder has no readable checkpoint of them.
    pub fn load_export_weights(&mut self) -> Result<u64> {
        if self.config.exports_best()? {
            let folder = self.folder.as_ref();
            let best = folder.map(CheckpointFolder::best).transpose()?.flatten().ok_or_else(|| {
                let message = "there is no checkpoint of a best validation; continue training, or export \
                               the last weights";
                Error::new(ErrorKind::Missing, "export.weights", message)
            })?;
            self.restore(&best)?;
        }
        Ok(self.progress.step)
    }

    /// Generates the samples of the report, with averaged weights if weights are averaged.
    pub fn samples(&mut self) -> Result<Vec<Sample>> {
        if self.config.report.prompts.is_empty() {
            return Ok(Vec::new());
        }
        self.copy_from_device()?;
        let (config, step) = (&self.config, self.progress.step);
        let tokenizer = &self.setup.texts.tokenizer;
        self.host.with_ema(|host| samples::generate(host, config, tokenizer, step))?
    }

    /// Checks whether the run can be expected to learn. The state of the run does not change.
    pub fn check(&mut self, depth: Depth) -> Result<Vec<Check>> {
        let mut checker = RunChecker {
            config: &self.config,
            setup: &self.setup,
            host: &mut self.host,
            device: self.device.as_mut(),
            step: self.progress.step,
        };
        checker.check(depth)
    }

    /// Returns the parameters for inference: averaged if weights are averaged.
    pub fn parameters(&mut self) -> Result<Parameters<f32>> {
        self.copy_from_device()?;
        self.host.with_ema(|host| host.parameters.clone())
    }

    /// Returns the parameters of the exported model, with adapters merged into their matrices.
    pub fn result(&mut self) -> Result<Parameters<f32>> {
        let parameters = self.parameters()?;
        let RunSetup { adapters, base_weights: own, .. } = &self.setup;
        Ok(match &self.config.adapters {
            Some(options) => adapters::merge(&parameters, *own, adapters, options),
            None => parameters,
        })
    }

    /// Returns the adapters alone, if the config exports them separately.
    pub fn adapter(&mut self) -> Result<Option<siskin_graph::adapter::Adapter>> {
        let (true, Some(options)) = (self.config.export.adapter, self.config.adapters.clone()) else {
            return Ok(None);
        };
        let parameters = self.parameters()?;
        let base = self.setup.base();
        Ok(base.map(|base| adapters::extract(&parameters, &self.setup.adapters, &options, base)))
    }

    /// Loads adapters of another run with the same config.
    pub fn load_adapter(&mut self, adapter: &siskin_graph::adapter::Adapter) -> Result<()> {
        let options = self.config.adapters.clone().unwrap_or_default();
        adapters::load(&mut self.host.parameters, &self.setup.adapters, &options, adapter)
    }

    /// Returns the inputs of the run.
    pub fn setup(&self) -> &RunSetup {
        &self.setup
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.progress.step
    }

    fn states(&self) -> Vec<&dyn Checkpointed> {
        let optional = [
            self.host.ema.as_ref().map(|average| average as &dyn Checkpointed),
            self.selection.early_stopping.as_ref().map(|patience| patience as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.grad_scaler.as_ref())
                .map(|scaler| scaler as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.device_tables.as_ref())
                .map(|kept| kept as &dyn Checkpointed),
        ];
        [Some(&self.host.optimizer as &dyn Checkpointed)].into_iter().chain(optional).flatten().collect()
    }

    /// Copies parameters and states back from a device.
    fn copy_from_device(&mut self) -> Result<()> {
        let Some(device) = &mut self.device else { return Ok(()) };
        device.copy_from_device(
            &mut self.host.parameters,
            &mut self.host.optimizer,
            self.host.ema.as_mut(),
        )?;
        if let Some(rounding) = &self.host.qat {
            rounding.round_weights(&mut self.host.parameters);
        }
        Ok(())
    }

    /// Returns the state of the run; on a device, the state when it was last saved or restored.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut tables = state::save(&self.states());
        for (parameter, gradient) in self.host.parameters.list.iter().zip(&self.host.gradients.list) {
            if gradient.is_some() {
                let numbers = state::TableData::Numbers(parameter.numbers.clone());
                tables.insert(format!("parameter.{}", parameter.name), numbers);
            }
        }
        let state = json!({
            "step": self.progress.step,
            "position": {"epoch": self.progress.position.epoch, "batch": self.progress.position.batch},
            "best": self.selection.best.map(f64::to_bits),
            "metric": self.selection.metric(),
            "seed": self.config.seed,
            "data": fingerprint::describe(&self.config, &self.setup),
        });
        Checkpoint { state, tables }
    }

    /// Restores a state.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let missing = |key: &str| Error::corrupt(format!("checkpoint.{key}"), "missing or not a number");
        let number =
            |key: &str| checkpoint.state.pointer(key).and_then(Value::as_u64).ok_or_else(|| missing(key));
        if number("/seed")? != self.config.seed {
            return Err(Error::argument(
                "seed",
                "differs from the seed of the run that wrote the checkpoint",
            ));
        }
        if let Some(data) = checkpoint.state.get("data") {
            fingerprint::check(data, &fingerprint::describe(&self.config, &self.setup))?;
        }
        let (step, epoch, batch) = (number("/step")?, number("/position/epoch")?, number("/position/batch")?);
        let trained = self.host.parameters.list.iter_mut().zip(&self.host.gradients.list);
        for (parameter, _) in trained.filter(|(_, gradient)| gradient.is_some()) {
            let name = format!("parameter.{}", parameter.name);
            parameter.numbers = checkpoint.numbers(&name, parameter.numbers.len())?;
        }
        state::restore(&mut self.host.optimizer, &checkpoint.tables)?;
        if let Some(average) = &mut self.host.ema {
            state::restore(average, &checkpoint.tables)?;
        }
        // The best value of another metric is not comparable.
        let same = checkpoint.state.get("metric").is_none_or(|metric| *metric == self.selection.metric());
        let kept = |state: &dyn Checkpointed| state::is_in(state, &checkpoint.tables);
        if let Some(patience) =
            self.selection.early_stopping.as_mut().filter(|patience| same && kept(*patience))
        {
            state::restore(patience, &checkpoint.tables)?;
        }
        self.host.update_derived_weights();
        if let Some(device) = &mut self.device {
            if let Some(scaler) = device.grad_scaler.as_mut().filter(|scaler| kept(*scaler)) {
                state::restore(scaler, &checkpoint.tables)?;
            }
            device.copy_to_device(
                &self.host.parameters,
                &self.host.optimizer,
                self.host.ema.as_ref(),
                &checkpoint.tables,
            )?;
        }
        self.progress.step = step;
        self.progress.position = Position { epoch, batch };
        let best = checkpoint.state.get("best").filter(|_| same);
        self.selection.best = best.and_then(Value::as_u64).map(f64::from_bits);
        Ok(())
    }

    fn save(&mut self, best: bool, saving: &mut CheckpointWriter) -> Result<()> {
        if self.folder.is_some() {
            self.copy_from_device()?;
        }
        match &self.folder {
            Some(folder) => saving.start(folder.clone(), self.progress.step, best, self.checkpoint()),
            None => Ok(()),
        }
    }
}

/// Rejects options that contradict each other.
fn check_options(config: &RunConfig, setup: &RunSetup) -> Result<()> {
    if config.adapters.is_some() && config.qat.is_some() {
        let message = "rounds matrices that adapters freeze; remove [qat] or [adapters]";
        return Err(Error::argument("qat", message));
    }
    match (config.loss.get("name").and_then(Value::as_str) == Some("distillation"), setup.has_teacher()) {
        (true, false) => {
            let message = "distillation needs a teacher model; set [teacher] from";
            return Err(Error::argument("loss", message));
        }
        (false, true) => {
            let message = "only used by the distillation loss; set [loss] name = \"distillation\", \
                           or remove [teacher]";
            return Err(Error::argument("teacher", message));
        }
        _ => {}
    }
    match config.export.adapter {
        true => check_adapter_export(config, setup),
        false => Ok(()),
    }
}

/// Rejects configs whose adapters would not contain all trained tensors.
fn check_adapter_export(config: &RunConfig, setup: &RunSetup) -> Result<()> {
    let reject = |message: &str| Err(Error::argument("export.adapter", message));
    if config.adapters.is_none() {
        return reject("there are no [adapters] to export");
    }
    if !config.model.trainable.is_empty() {
        return reject(
            "model.trainable selects tensors besides adapters, which an adapter file does not contain",
        );
    }
    match setup.base() {
        Some(_) => Ok(()),
        None => reject("an adapter file needs a base model; set model.from"),
    }
}
