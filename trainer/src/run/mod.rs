//! A training run: data to steps, steps to a model, and resuming from checkpoints.

mod check;
mod config;
mod fingerprint;
pub(crate) mod folder;
mod inputs;
mod measure;
mod memory;
mod on_device;
mod packing;
mod samples;
mod saving;
mod setup;
mod step;
mod teacher;
mod texts;
mod validation;
mod vectors;
mod vocabulary;

pub use check::{Check, Depth, Outcome};
pub use config::{
    BatchOptions, CheckpointOptions, DataOptions, EvaluateOptions, ModelOrigin, RunConfig, RunExports,
    StatisticsOptions, TeacherOptions,
};
pub use folder::prepare as prepare_folder;
pub use inputs::inputs;
pub use measure::{measure, measure_with_engine};
pub use on_device::Start;
pub use packing::{PackedFile, pack};
pub use samples::{ReportOptions, Sample};
pub use setup::{Material, OpenedBase};
pub use vocabulary::learned_tokenizer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use siskin::{Error, Result};

use self::on_device::OnDevice;
use self::saving::Saving;
use crate::adapters;
use crate::average::MovingAverage;
use crate::checkpoint::{Checkpoint, CheckpointFolder};
use crate::cuda::DeviceTraining;
use crate::data::{Position, Prefetch};
use crate::early_stopping::EarlyStopping;
use crate::loss::{self, Loss};
use crate::optimizer::Optimizer;
use crate::parameters::{Gradients, Parameters};
use crate::profile::{Event, Recorder};
use crate::quantize::QuantizedTraining;
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
    pub right: f64,
    /// The auxiliary loss of the routers, not included in `loss`.
    pub routers: f64,
    /// The gradient norm.
    pub norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// The loss scale; other than 1 only in fp16.
    pub scale: f64,
    /// Steps of this process that were skipped because the scaled gradients were not finite.
    pub skipped: u64,
    /// Rows processed.
    pub rows: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// The number of completed epochs.
    pub epoch: u64,
    /// The FLOPs of its matmuls.
    pub work: f64,
}

impl StepReport {
    /// Returns the progress as a line of a log.
    pub fn json(&self) -> Value {
        json!({
            "step": self.step, "loss": self.loss, "right": self.right, "norm": self.norm, "rate": self.rate,
            "rows": self.rows, "seconds": self.seconds, "epoch": self.epoch, "routers": self.routers,
            "work": self.work, "scale": self.scale, "skipped": self.skipped,
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
    pub right: f64,
    /// Whether it was the best so far.
    pub best: bool,
}

/// Callbacks of a run.
pub trait Watcher {
    /// Called after each step.
    fn step(&mut self, _: &StepReport) {}
    /// Called after each validation.
    fn look(&mut self, _: &Validation) {}
    /// Called with the sample generations after each validation.
    fn samples(&mut self, _step: u64, _: &[Sample]) {}
    /// Called with tensor statistics after each step in which they were computed.
    fn statistics(&mut self, _: &StepStatistics) {}
    /// Called with the recorded events after the last profiled step.
    fn profile(&mut self, _: &[Event]) {}
    /// Called with warnings that do not end the run.
    fn note(&mut self, _: &str) {}
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps were done.
    Done,
    /// Early stopping.
    NoBetter,
    /// Stopped by the caller; it can resume from its last checkpoint.
    Stopped,
}

/// A training run.
pub struct Run {
    config: RunConfig,
    material: Material,
    parameters: Parameters<f32>,
    gradients: Gradients<f32>,
    runner: Runner<f32>,
    optimizer: Optimizer,
    schedule: LearningRateSchedule,
    loss: Box<dyn Loss<f32>>,
    rounding: Option<QuantizedTraining>,
    average: Option<MovingAverage>,
    patience: Option<EarlyStopping>,
    folder: Option<CheckpointFolder>,
    device: Option<OnDevice>,
    step: u64,
    skipped: u64,
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
pub type MakeEngine<'a> = &'a dyn Fn(&Start<'_>) -> Result<Option<Box<dyn DeviceTraining>>>;

impl Run {
    /// Starts a run that keeps its checkpoints in `folder`.
    pub fn new(config: RunConfig, material: Material, folder: Option<&Path>) -> Result<Self> {
        Self::with_engine(config, material, folder, &on_device::open)
    }

    /// Like [`Self::new`], on another device than the config names.
    pub fn with_engine(
        config: RunConfig,
        material: Material,
        folder: Option<&Path>,
        engine: MakeEngine<'_>,
    ) -> Result<Self> {
        let config = RunConfig { loss: vectors::loss(&config.loss, &material.frame.config)?, ..config };
        let patterns = &config.model.train;
        let usual = |name: &str| material.adapters.is_empty() || adapters::is_trained(name);
        let chosen =
            |name: &str| patterns.iter().any(|pattern| fits(pattern, name)) || adapters::is_trained(name);
        let trains = |name: &str| if patterns.is_empty() { usual(name) } else { chosen(name) };
        if config.adapters.is_some() && config.quantize.is_some() {
            let message = "rounds matrices that adapters leave as they are; name one of both sections";
            return Err(Error::argument("quantize", message));
        }
        match (config.loss.get("name").and_then(Value::as_str) == Some("distil"), material.is_taught()) {
            (true, false) => {
                let message = "learns the scores of another model; name it in [teacher] from";
                return Err(Error::argument("loss", message));
            }
            (false, true) => {
                let message = "has nothing to say to this loss; set [loss] name = \"distil\"";
                return Err(Error::argument("teacher", message));
            }
            _ => {}
        }
        if config.export.adapter {
            check_apart(&config, &material)?;
        }
        let mut parameters = material.parameters_but(config.seed, |name| !trains(name))?;
        let gradients = Gradients::zeros(&parameters, |parameter| trains(&parameter.name));
        if gradients.list.iter().all(Option::is_none) {
            return Err(Error::argument(
                "model.train",
                "no tensor has such a name; nothing would be trained",
            ));
        }
        let rounding = config.quantize.as_ref();
        let rounding =
            rounding.map(|options| QuantizedTraining::new(options, &material.program)).transpose()?;
        if let Some(rounding) = &rounding {
            rounding.renew(&mut parameters);
        }
        let program = material.program.clone();
        let optimizer = Optimizer::new(&config.optimizer, &parameters, &gradients)?;
        let average = config.average.as_ref();
        let average = average
            .map(|settings| MovingAverage::from_settings(settings, &parameters, &gradients))
            .transpose()?;
        let device = engine(&Start {
            config: &config,
            program: &program,
            parameters: &parameters,
            gradients: &gradients,
            optimizer: &optimizer,
            average: average.as_ref(),
            adapters: &material.adapters,
            rounding: rounding.as_ref(),
        })?;
        let device = device.map(|engine| OnDevice::new(&config, engine)).transpose()?;
        let runner = Runner::new(program, config.recompute()?, |weight| gradients.has(weight))?
            .with_routers(config.routers);
        let schedule = LearningRateSchedule::new(&config.schedule, config.steps)?;
        let loss = loss::named(&config.loss)?;
        let patience = config.patience.as_ref().map(EarlyStopping::from_settings).transpose()?;
        if material.validation.is_none() {
            validation::check_unseen(&config)?;
        }
        config.report.check(runner.program())?;
        let profiled = config.profile.window()?.map(Profiled::new);
        let folder = folder.map(|path| CheckpointFolder::new(path, config.checkpoint.keep)).transpose()?;
        Ok(Self {
            config,
            material,
            parameters,
            gradients,
            runner,
            optimizer,
            schedule,
            loss,
            rounding,
            average,
            patience,
            folder,
            device,
            step: 0,
            skipped: 0,
            position: Position::default(),
            best: None,
            profiled,
        })
    }

    /// Resumes from the newest readable checkpoint, and returns whether there was one. Errors of newer checkpoints
    /// are reported to `watcher`.
    pub fn resume(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let (newest, wrong) = folder.newest()?;
        wrong.iter().for_each(|error| watcher.note(&format!("a checkpoint cannot be read: {error}")));
        let Some(checkpoint) = newest else { return Ok(false) };
        self.restore(&checkpoint)?;
        Ok(true)
    }

    /// Trains to the end, or until `stop` is set. A checkpoint that cannot be written is reported to `watcher`; it is
    /// an error only if the run could not be resumed without it.
    pub fn train(&mut self, stop: &AtomicBool, watcher: &mut dyn Watcher) -> Result<RunEnd> {
        let loader = self.material.batches(&self.config, self.position)?;
        let recorder = self.profiled.as_ref().map(|profiled| profiled.recorder.clone());
        let mut batches = Prefetch::recorded(loader, 2 * self.config.batch.accumulate, recorder.clone())?;
        let mut saving = Saving::recorded(recorder);
        let ended = self.steps_to_the_end(stop, &mut batches, &mut saving, watcher)?;
        let last = saving.finish();
        saving.tell_failed(watcher);
        match last {
            Err(error) if ended == RunEnd::Stopped => return Err(error),
            Err(error) => watcher.note(&format!("the last checkpoint could not be written: {error}")),
            Ok(()) => {}
        }
        self.tell_profile(watcher);
        Ok(ended)
    }

    fn steps_to_the_end(
        &mut self,
        stop: &AtomicBool,
        batches: &mut Prefetch,
        saving: &mut Saving,
        watcher: &mut dyn Watcher,
    ) -> Result<RunEnd> {
        let mut looked = None;
        while self.step < self.config.steps {
            if stop.load(Ordering::Relaxed) {
                self.save(false, saving)?;
                return Ok(RunEnd::Stopped);
            }
            saving.tell_failed(watcher);
            let (progress, statistics) = self.step(batches)?;
            watcher.step(&progress);
            if let Some(statistics) = statistics {
                watcher.statistics(&statistics);
            }
            let due = |every: u64| every > 0 && self.step.is_multiple_of(every);
            let (look, keep) = (due(self.config.evaluate.every), due(self.config.checkpoint.every));
            let mut best = false;
            if look {
                let (seen, ends) = self.look(watcher)?;
                (best, looked) = (seen.best, Some(self.step));
                if ends {
                    self.save(best, saving)?;
                    return Ok(RunEnd::NoBetter);
                }
            }
            if keep || best {
                self.save(best, saving)?;
            }
            if self.profiled.as_ref().is_some_and(|profiled| profiled.is_over(self.step)) {
                self.tell_profile(watcher);
            }
        }
        let best = looked != Some(self.step) && self.look(watcher)?.0.best;
        self.save(best, saving)?;
        Ok(RunEnd::Done)
    }

    /// Recomputes what is derived from the parameters after they changed.
    fn renew(&mut self) {
        if let Some(options) = &self.config.adapters {
            adapters::renew(&mut self.parameters, &self.material.adapters, options);
        }
        if let Some(rounding) = &self.rounding {
            rounding.renew(&mut self.parameters);
        }
    }

    /// Swaps the averaged and the current parameters.
    fn swap(&mut self) -> Result<()> {
        if let Some(average) = &mut self.average {
            average.swap(&mut self.parameters)?;
            self.renew();
        }
        Ok(())
    }

    /// Calls `work` with the averaged parameters, if weights are averaged.
    fn averaged<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R> {
        self.swap()?;
        let done = work(self);
        self.swap()?;
        Ok(done)
    }

    /// Returns the parameters for inference: averaged if weights are averaged.
    pub fn parameters(&mut self) -> Result<Parameters<f32>> {
        self.fetch()?;
        self.averaged(|run| run.parameters.clone())
    }

    /// Returns the parameters of the exported model, with adapters merged into their matrices.
    pub fn result(&mut self) -> Result<Parameters<f32>> {
        let parameters = self.parameters()?;
        let Material { adapters, own, .. } = &self.material;
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
        let base = self.material.base();
        Ok(base.map(|base| adapters::apart(&parameters, &self.material.adapters, &options, base)))
    }

    /// Loads adapters of another run with the same config.
    pub fn take_adapter(&mut self, adapter: &siskin::Adapter) -> Result<()> {
        let options = self.config.adapters.clone().unwrap_or_default();
        adapters::take(&mut self.parameters, &self.material.adapters, &options, adapter)
    }

    /// Returns the inputs of the run.
    pub fn material(&self) -> &Material {
        &self.material
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    fn states(&self) -> Vec<&dyn Checkpointed> {
        let optional = [
            self.average.as_ref().map(|average| average as &dyn Checkpointed),
            self.patience.as_ref().map(|patience| patience as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.scaler.as_ref())
                .map(|scaler| scaler as &dyn Checkpointed),
            self.device
                .as_ref()
                .and_then(|device| device.kept.as_ref())
                .map(|kept| kept as &dyn Checkpointed),
        ];
        [Some(&self.optimizer as &dyn Checkpointed)].into_iter().chain(optional).flatten().collect()
    }

    /// Copies parameters and states back from a device.
    fn fetch(&mut self) -> Result<()> {
        let Some(device) = &mut self.device else { return Ok(()) };
        device.fetch(&mut self.parameters, &mut self.optimizer, self.average.as_mut())?;
        if let Some(rounding) = &self.rounding {
            rounding.renew(&mut self.parameters);
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
            "data": fingerprint::describe(&self.config, &self.material),
        });
        Checkpoint { state, tables }
    }

    /// Restores a state.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let missing = |key: &str| Error::corrupt(format!("checkpoint.{key}"), "is missing or no number");
        let number =
            |key: &str| checkpoint.state.pointer(key).and_then(Value::as_u64).ok_or_else(|| missing(key));
        if number("/seed")? != self.config.seed {
            return Err(Error::argument("seed", "is not that of the run that the checkpoint belongs to"));
        }
        if let Some(data) = checkpoint.state.get("data") {
            fingerprint::check(data, &fingerprint::describe(&self.config, &self.material))?;
        }
        let (step, epoch, batch) = (number("/step")?, number("/position/epoch")?, number("/position/batch")?);
        let trained = self.parameters.list.iter_mut().zip(&self.gradients.list);
        for (parameter, _) in trained.filter(|(_, gradient)| gradient.is_some()) {
            let name = format!("parameter.{}", parameter.name);
            parameter.numbers = checkpoint.numbers(&name, parameter.numbers.len())?;
        }
        state::restore(&mut self.optimizer, &checkpoint.tables)?;
        if let Some(average) = &mut self.average {
            state::restore(average, &checkpoint.tables)?;
        }
        // The best value of another metric is not comparable.
        let same = checkpoint.state.get("metric").is_none_or(|metric| *metric == self.metric());
        let kept = |state: &dyn Checkpointed| state::is_kept(state, &checkpoint.tables);
        if let Some(patience) = self.patience.as_mut().filter(|patience| same && kept(*patience)) {
            state::restore(patience, &checkpoint.tables)?;
        }
        self.renew();
        if let Some(device) = &mut self.device {
            if let Some(scaler) = device.scaler.as_mut().filter(|scaler| kept(*scaler)) {
                state::restore(scaler, &checkpoint.tables)?;
            }
            device.put(&self.parameters, &self.optimizer, self.average.as_ref(), &checkpoint.tables)?;
        }
        self.step = step;
        self.position = Position { epoch, batch };
        let best = checkpoint.state.get("best").filter(|_| same);
        self.best = best.and_then(Value::as_u64).map(f64::from_bits);
        Ok(())
    }

    fn save(&mut self, best: bool, saving: &mut Saving) -> Result<()> {
        if self.folder.is_some() {
            self.fetch()?;
        }
        match &self.folder {
            Some(folder) => saving.start(folder.clone(), self.step, best, self.checkpoint()),
            None => Ok(()),
        }
    }
}

/// Refuses configs whose adapters would not contain all trained tensors.
fn check_apart(config: &RunConfig, material: &Material) -> Result<()> {
    let refuse = |message: &str| Err(Error::argument("export.adapter", message));
    if config.adapters.is_none() {
        return refuse("there are no [adapters] that a file could hold");
    }
    if !config.model.train.is_empty() {
        return refuse("model.train names tensors besides adapters, which such a file does not hold");
    }
    match material.base() {
        Some(_) => Ok(()),
        None => refuse("adapters belong to a model that is there; begin with one by model.from"),
    }
}
