//! A training run: data to steps, steps to a model, and resuming from checkpoints.

mod check;
mod checkpoint_thread;
mod config;
mod dataset;
mod evaluation;
mod fingerprint;
pub(crate) mod folder;
mod inputs;
mod loss_pooling;
mod memory;
mod on_device;
mod packing;
mod samples;
mod setup;
mod step;
mod teacher;
mod trained_tokenizer;
mod validation;

pub use check::{Check, Depth, Outcome};
pub use config::{
    BatchOptions, CheckpointOptions, DataOptions, ModelOrigin, RunConfig, RunExports, StatisticsOptions,
    TeacherOptions, ValidationOptions,
};
pub use evaluation::{evaluate, evaluate_with_device};
pub use folder::prepare as prepare_folder;
pub use inputs::inputs;
pub use on_device::DeviceArguments;
pub use packing::{PackedFile, pack};
pub use samples::{ReportOptions, Sample};
pub use setup::{OpenedBase, RunSetup};
pub use trained_tokenizer::trained_tokenizer;

use std::iter::Peekable;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use siskin::{Error, Result};

use self::checkpoint_thread::CheckpointWriter;
use self::on_device::OnDevice;
use crate::adapters;
use crate::checkpoint::{Checkpoint, CheckpointFolder};
use crate::cuda::DeviceRunner;
use crate::data::{Position, Prefetch};
use crate::early_stopping::EarlyStopping;
use crate::ema::ExponentialMovingAverage;
use crate::loss::{self, Loss};
use crate::optimizer::Optimizer;
use crate::parameters::{Gradients, Parameters};
use crate::profile::{Event, Recorder};
use crate::qat::QuantizationAware;
use crate::runner::Runner;
use crate::schedule::LearningRateSchedule;
use crate::settings::fits;
use crate::state::{self, Checkpointed};
use crate::statistics::StepStatistics;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepReport {
    /// Steps so far.
    pub step: u64,
    /// The total number of steps.
    pub steps: u64,
    /// The mean loss of the step.
    pub loss: f64,
    /// The accuracy: the fraction of targets with the highest score.
    pub accuracy: f64,
    /// The auxiliary loss of the routers, not included in `loss`.
    pub router_loss: f64,
    /// The gradient norm.
    pub grad_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// The loss scale; other than 1 only in fp16.
    pub loss_scale: f64,
    /// Steps of this process that were skipped because the scaled gradients were not finite.
    pub skipped_steps: u64,
    /// Rows processed.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// The number of completed epochs.
    pub epoch: u64,
    /// The FLOPs of its matmuls.
    pub flops: f64,
}

impl StepReport {
    /// Returns the progress as a line of a log.
    pub fn json(&self) -> Value {
        json!({
            "step": self.step, "loss": self.loss, "accuracy": self.accuracy, "grad_norm": self.grad_norm,
            "learning_rate": self.learning_rate, "tokens": self.tokens, "seconds": self.seconds, "epoch": self.epoch,
            "router_loss": self.router_loss, "flops": self.flops, "loss_scale": self.loss_scale,
            "skipped_steps": self.skipped_steps,
        })
    }
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Validation {
    /// The step it was made after.
    pub step: u64,
    /// The mean loss.
    pub loss: f64,
    /// The accuracy: the fraction of targets with the highest score.
    pub accuracy: f64,
    /// Whether it was the best so far.
    pub best: bool,
}

/// Callbacks of a run.
pub trait RunCallbacks {
    /// Called after each step.
    fn step(&mut self, _: &StepReport) {}
    /// Called after each validation.
    fn validation(&mut self, _: &Validation) {}
    /// Called with the sample generations after each validation.
    fn samples(&mut self, _step: u64, _: &[Sample]) {}
    /// Called with tensor statistics after each step in which they were computed.
    fn statistics(&mut self, _: &StepStatistics) {}
    /// Called with the recorded events after the last profiled step.
    fn profile(&mut self, _: &[Event]) {}
    /// Called with warnings that do not end the run.
    fn warning(&mut self, _: &str) {}
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps were done.
    Completed,
    /// Early stopping.
    EarlyStopped,
    /// Stopped by the caller; it can resume from its last checkpoint.
    Interrupted,
}

impl RunEnd {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::EarlyStopped => "early_stopping",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A training run.
pub struct Run {
    config: RunConfig,
    setup: RunSetup,
    parameters: Parameters<f32>,
    gradients: Gradients<f32>,
    runner: Runner<f32>,
    optimizer: Optimizer,
    schedule: LearningRateSchedule,
    loss: Box<dyn Loss<f32>>,
    qat: Option<QuantizationAware>,
    ema: Option<ExponentialMovingAverage>,
    early_stopping: Option<EarlyStopping>,
    folder: Option<CheckpointFolder>,
    device: Option<OnDevice>,
    step: u64,
    skipped_steps: u64,
    position: Position,
    best: Option<f64>,
    profiled: Option<Profiled>,
}

/// The profiled steps (the first, and the one after the last) and their recorder.
struct Profiled {
    steps: [u64; 2],
    recorder: Recorder,
}

/// Prepares a device for training a program; `None`: the CPU trains it.
pub type OpenDevice<'a> = &'a dyn Fn(&DeviceArguments<'_>) -> Result<Option<DeviceRunner>>;

impl Run {
    /// Starts a run that keeps its checkpoints in `folder`.
    pub fn new(config: RunConfig, setup: RunSetup, folder: Option<&Path>) -> Result<Self> {
        Self::with_device(config, setup, folder, &on_device::open)
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
        let patterns = &config.model.trainable;
        let usual = |name: &str| setup.adapters.is_empty() || adapters::is_trained(name);
        let chosen =
            |name: &str| patterns.iter().any(|pattern| fits(pattern, name)) || adapters::is_trained(name);
        let trains = |name: &str| if patterns.is_empty() { usual(name) } else { chosen(name) };
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
        if config.export.adapter {
            check_adapter_export(&config, &setup)?;
        }
        let mut parameters = setup.parameters_with_packed(config.seed, |name| !trains(name))?;
        let gradients = Gradients::zeros(&parameters, |parameter| trains(&parameter.name));
        if gradients.list.iter().all(Option::is_none) {
            return Err(Error::argument("model.trainable", "no tensor matches; nothing would be trained"));
        }
        let rounding = config.qat.as_ref();
        let rounding = rounding.map(|options| QuantizationAware::new(options, &setup.program)).transpose()?;
        if let Some(rounding) = &rounding {
            rounding.round_weights(&mut parameters);
        }
        let program = setup.program.clone();
        let optimizer = Optimizer::new(&config.optimizer, &parameters, &gradients)?;
        let average = config.ema.as_ref();
        let average = average
            .map(|settings| ExponentialMovingAverage::from_settings(settings, &parameters, &gradients))
            .transpose()?;
        let device = open(&DeviceArguments {
            config: &config,
            program: &program,
            parameters: &parameters,
            gradients: &gradients,
            optimizer: &optimizer,
            ema: average.as_ref(),
            adapters: &setup.adapters,
            qat: rounding.as_ref(),
        })?;
        let device = device.map(|runner| OnDevice::new(&config, runner)).transpose()?;
        let runner = Runner::new(program, config.recompute()?, |weight| gradients.has(weight))?
            .with_routers(config.router);
        let schedule = LearningRateSchedule::new(&config.schedule, config.steps)?;
        let loss = loss::named(&config.loss)?;
        let patience = config.early_stopping.as_ref().map(EarlyStopping::from_settings).transpose()?;
        if setup.validation.is_none() {
            validation::check_validation_data(&config)?;
        }
        config.report.check(runner.program())?;
        let profiled = config.profile.window()?.map(Profiled::new);
        let folder =
            folder.map(|path| CheckpointFolder::new(path, config.checkpoint.keep_last)).transpose()?;
        Ok(Self {
            config,
            setup,
            parameters,
            gradients,
            runner,
            optimizer,
            schedule,
            loss,
            qat: rounding,
            ema: average,
            early_stopping: patience,
            folder,
            device,
            step: 0,
            skipped_steps: 0,
            position: Position::default(),
            best: None,
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

    /// Trains to the end, or until `stop` is set. A checkpoint that cannot be written is reported to `callbacks`; it is
    /// an error only if the run could not be resumed without it.
    pub fn train(&mut self, stop: &AtomicBool, callbacks: &mut dyn RunCallbacks) -> Result<RunEnd> {
        let loader = self.setup.batches(&self.config, self.position)?;
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let ahead = 2 * self.config.batch.gradient_accumulation_steps;
        let mut batches = Prefetch::recorded(loader, ahead, recorder.clone())?.peekable();
        let mut writer = CheckpointWriter::recorded(recorder);
        let ended = self.training_loop(stop, &mut batches, &mut writer, callbacks)?;
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
        stop: &AtomicBool,
        batches: &mut Peekable<Prefetch>,
        writer: &mut CheckpointWriter,
        callbacks: &mut dyn RunCallbacks,
    ) -> Result<RunEnd> {
        let mut validated_step = None;
        while self.step < self.config.steps {
            if stop.load(Ordering::Relaxed) {
                self.save(false, writer)?;
                return Ok(RunEnd::Interrupted);
            }
            writer.report_failure(callbacks);
            let (progress, statistics) = self.step(batches)?;
            callbacks.step(&progress);
            if let Some(statistics) = statistics {
                callbacks.statistics(&statistics);
            }
            let due = |every: u64| every > 0 && self.step.is_multiple_of(every);
            let (validate, save) =
                (due(self.config.validation.every_n_steps), due(self.config.checkpoint.every_n_steps));
            let mut best = false;
            if validate {
                let (validation, ends) = self.validate_and_sample(callbacks)?;
                (best, validated_step) = (validation.best, Some(self.step));
                if ends {
                    self.save(best, writer)?;
                    return Ok(RunEnd::EarlyStopped);
                }
            }
            if save || best {
                self.save(best, writer)?;
            }
            if self.profiled.as_ref().is_some_and(|profiled| profiled.is_over(self.step)) {
                self.report_profile(callbacks);
            }
        }
        let best = validated_step != Some(self.step) && self.validate_and_sample(callbacks)?.0.best;
        self.save(best, writer)?;
        Ok(RunEnd::Completed)
    }

    /// Recomputes what is derived from the parameters after they changed.
    fn update_derived_weights(&mut self) {
        if let Some(options) = &self.config.adapters {
            adapters::update_norms(&mut self.parameters, &self.setup.adapters, options);
        }
        if let Some(rounding) = &self.qat {
            rounding.round_weights(&mut self.parameters);
        }
    }

    /// Swaps the averaged and the current parameters.
    fn swap_ema(&mut self) -> Result<()> {
        if let Some(ema) = &mut self.ema {
            ema.swap(&mut self.parameters)?;
            self.update_derived_weights();
        }
        Ok(())
    }

    /// Calls `work` with the averaged parameters, if weights are averaged.
    fn with_ema<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R> {
        self.swap_ema()?;
        let done = work(self);
        self.swap_ema()?;
        Ok(done)
    }

    /// Returns the parameters for inference: averaged if weights are averaged.
    pub fn parameters(&mut self) -> Result<Parameters<f32>> {
        self.copy_from_device()?;
        self.with_ema(|run| run.parameters.clone())
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
    pub fn adapter(&mut self) -> Result<Option<siskin::Adapter>> {
        let (true, Some(options)) = (self.config.export.adapter, self.config.adapters.clone()) else {
            return Ok(None);
        };
        let parameters = self.parameters()?;
        let base = self.setup.base();
        Ok(base.map(|base| adapters::extract(&parameters, &self.setup.adapters, &options, base)))
    }

    /// Loads adapters of another run with the same config.
    pub fn load_adapter(&mut self, adapter: &siskin::Adapter) -> Result<()> {
        let options = self.config.adapters.clone().unwrap_or_default();
        adapters::load(&mut self.parameters, &self.setup.adapters, &options, adapter)
    }

    /// Returns the inputs of the run.
    pub fn setup(&self) -> &RunSetup {
        &self.setup
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    fn states(&self) -> Vec<&dyn Checkpointed> {
        let optional = [
            self.ema.as_ref().map(|average| average as &dyn Checkpointed),
            self.early_stopping.as_ref().map(|patience| patience as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.grad_scaler.as_ref())
                .map(|scaler| scaler as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.device_tables.as_ref())
                .map(|kept| kept as &dyn Checkpointed),
        ];
        [Some(&self.optimizer as &dyn Checkpointed)].into_iter().chain(optional).flatten().collect()
    }

    /// Copies parameters and states back from a device.
    fn copy_from_device(&mut self) -> Result<()> {
        let Some(device) = &mut self.device else { return Ok(()) };
        device.copy_from_device(&mut self.parameters, &mut self.optimizer, self.ema.as_mut())?;
        if let Some(rounding) = &self.qat {
            rounding.round_weights(&mut self.parameters);
        }
        Ok(())
    }

    /// Returns the state of the run; on a device, the state when it was last saved or restored.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut tables = state::save(&self.states());
        for (parameter, gradient) in self.parameters.list.iter().zip(&self.gradients.list) {
            if gradient.is_some() {
                let numbers = state::TableData::Numbers(parameter.numbers.clone());
                tables.insert(format!("parameter.{}", parameter.name), numbers);
            }
        }
        let state = json!({
            "step": self.step,
            "position": {"epoch": self.position.epoch, "batch": self.position.batch},
            "best": self.best.map(f64::to_bits),
            "metric": self.metric(),
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
        let trained = self.parameters.list.iter_mut().zip(&self.gradients.list);
        for (parameter, _) in trained.filter(|(_, gradient)| gradient.is_some()) {
            let name = format!("parameter.{}", parameter.name);
            parameter.numbers = checkpoint.numbers(&name, parameter.numbers.len())?;
        }
        state::restore(&mut self.optimizer, &checkpoint.tables)?;
        if let Some(average) = &mut self.ema {
            state::restore(average, &checkpoint.tables)?;
        }
        // The best value of another metric is not comparable.
        let same = checkpoint.state.get("metric").is_none_or(|metric| *metric == self.metric());
        let kept = |state: &dyn Checkpointed| state::is_in(state, &checkpoint.tables);
        if let Some(patience) = self.early_stopping.as_mut().filter(|patience| same && kept(*patience)) {
            state::restore(patience, &checkpoint.tables)?;
        }
        self.update_derived_weights();
        if let Some(device) = &mut self.device {
            if let Some(scaler) = device.grad_scaler.as_mut().filter(|scaler| kept(*scaler)) {
                state::restore(scaler, &checkpoint.tables)?;
            }
            device.copy_to_device(
                &self.parameters,
                &self.optimizer,
                self.ema.as_ref(),
                &checkpoint.tables,
            )?;
        }
        self.step = step;
        self.position = Position { epoch, batch };
        let best = checkpoint.state.get("best").filter(|_| same);
        self.best = best.and_then(Value::as_u64).map(f64::from_bits);
        Ok(())
    }

    fn save(&mut self, best: bool, saving: &mut CheckpointWriter) -> Result<()> {
        if self.folder.is_some() {
            self.copy_from_device()?;
        }
        match &self.folder {
            Some(folder) => saving.start(folder.clone(), self.step, best, self.checkpoint()),
            None => Ok(()),
        }
    }
}

/// Refuses configs whose adapters would not contain all trained tensors.
fn check_adapter_export(config: &RunConfig, setup: &RunSetup) -> Result<()> {
    let refuse = |message: &str| Err(Error::argument("export.adapter", message));
    if config.adapters.is_none() {
        return refuse("there are no [adapters] to export");
    }
    if !config.model.trainable.is_empty() {
        return refuse(
            "model.trainable selects tensors besides adapters, which an adapter file does not contain",
        );
    }
    match setup.base() {
        Some(_) => Ok(()),
        None => refuse("an adapter file needs a base model; set model.from"),
    }
}
