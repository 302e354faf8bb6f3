//! A training run: data to steps, steps to a model, and back to where it was after a stop.

mod config;
mod material;
mod on_device;
mod saving;

pub use config::{BatchOptions, CheckpointOptions, Config, DataOptions, EvaluateOptions, ModelOptions};
pub use material::{Base, Material};

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use siskin::{Error, ErrorKind, Result};

use self::on_device::OnDevice;
use self::saving::Saving;
use crate::adapters;
use crate::average::Average;
use crate::checkpoint::{Checkpoint, Folder};
use crate::clip::Norm;
use crate::cuda::Engine;
use crate::data::{Loader, Position, Prefetch, Step};
use crate::loss::{self, Loss, Sum};
use crate::optimiser::{Optimiser, StepArguments};
use crate::parameters::{Gradients, Parameters};
use crate::patience::{Look, Patience};
use crate::program::{Parts, Program};
use crate::runner::{Goal, Runner};
use crate::schedule::Schedule;
use crate::settings::fits;
use crate::state::{self, State};

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Steps so far.
    pub step: u64,
    /// Of so many.
    pub steps: u64,
    /// The mean loss of the step.
    pub loss: f64,
    /// The share of targets that was likeliest.
    pub right: f64,
    /// The length of the gradient.
    pub norm: f64,
    /// The rate.
    pub rate: f64,
    /// Rows that went through.
    pub rows: usize,
    /// How long it took.
    pub seconds: f64,
    /// How often all examples have come.
    pub epoch: u64,
}

impl Progress {
    /// As a line of a log.
    pub fn json(&self) -> Value {
        json!({
            "step": self.step, "loss": self.loss, "right": self.right, "norm": self.norm, "rate": self.rate,
            "rows": self.rows, "seconds": self.seconds, "epoch": self.epoch,
        })
    }
}

/// What a look at the validation texts showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// After so many steps.
    pub step: u64,
    /// The mean loss.
    pub loss: f64,
    /// The share of targets that was likeliest.
    pub right: f64,
    /// Whether it was the best so far.
    pub best: bool,
}

/// Is told how a run goes.
pub trait Watcher {
    /// After each step.
    fn step(&mut self, _: &Progress) {}
    /// After each look.
    fn look(&mut self, _: &Seen) {}
    /// Something that should be known, but ends nothing.
    fn note(&mut self, _: &str) {}
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were done.
    Done,
    /// Nothing got better any more.
    NoBetter,
    /// Somebody stopped it; it can go on from its last checkpoint.
    Stopped,
}

/// A run.
pub struct Run {
    config: Config,
    material: Material,
    parameters: Parameters<f32>,
    gradients: Gradients<f32>,
    runner: Runner<f32>,
    optimiser: Optimiser,
    schedule: Schedule,
    loss: Box<dyn Loss<f32>>,
    average: Option<Average>,
    patience: Option<Patience>,
    folder: Option<Folder>,
    device: Option<OnDevice>,
    step: u64,
    position: Position,
    best: Option<f64>,
}

/// Makes a device ready to train a program: with its config, its parameters, which of them have gradients, and what the
/// optimiser knows of them.
pub type MakeEngine<'a> = &'a dyn Fn(
    &Config,
    &Program,
    &Parameters<f32>,
    &Gradients<f32>,
    &Optimiser,
) -> Result<Option<Box<dyn Engine>>>;

impl Run {
    /// A run that begins, with its checkpoints in `folder`.
    pub fn new(config: Config, material: Material, folder: Option<&Path>) -> Result<Self> {
        Self::with_engine(config, material, folder, &on_device::open)
    }

    /// The same on another device than the config names.
    pub fn with_engine(
        config: Config,
        material: Material,
        folder: Option<&Path>,
        engine: MakeEngine<'_>,
    ) -> Result<Self> {
        let parameters = material.parameters(config.seed)?;
        let patterns = &config.model.train;
        let small = |name: &str| name.contains(".adapter_");
        let usual = |name: &str| material.adapters.is_empty() || small(name);
        let chosen = |name: &str| patterns.iter().any(|pattern| fits(pattern, name)) || small(name);
        let trains = |name: &str| if patterns.is_empty() { usual(name) } else { chosen(name) };
        let gradients = Gradients::zeros(&parameters, |parameter| trains(&parameter.name));
        if gradients.list.iter().all(Option::is_none) {
            return Err(Error::argument(
                "model.train",
                "no tensor has such a name; nothing would be trained",
            ));
        }
        let program = material.program.clone();
        let optimiser = Optimiser::new(&config.optimiser, &parameters, &gradients)?;
        let device = engine(&config, &program, &parameters, &gradients, &optimiser)?;
        let device = device.map(|engine| OnDevice::new(&config, engine)).transpose()?;
        let runner = Runner::new(program, config.recompute()?, |weight| gradients.has(weight))?;
        let schedule = Schedule::new(&config.schedule, config.steps)?;
        let loss = loss::named(&config.loss)?;
        let average = config.average.as_ref();
        let average =
            average.map(|settings| Average::from_settings(settings, &parameters, &gradients)).transpose()?;
        let patience = config.patience.as_ref().map(Patience::from_settings).transpose()?;
        let folder = folder.map(|path| Folder::new(path, config.checkpoint.keep)).transpose()?;
        Ok(Self {
            config,
            material,
            parameters,
            gradients,
            runner,
            optimiser,
            schedule,
            loss,
            average,
            patience,
            folder,
            device,
            step: 0,
            position: Position::default(),
            best: None,
        })
    }

    /// Goes on where the newest checkpoint stands; whether there was one. What was wrong with newer ones is told.
    pub fn resume(&mut self, watcher: &mut dyn Watcher) -> Result<bool> {
        let Some(folder) = &self.folder else { return Ok(false) };
        let (newest, wrong) = folder.newest()?;
        wrong.iter().for_each(|error| watcher.note(&format!("a checkpoint cannot be read: {error}")));
        let Some(checkpoint) = newest else { return Ok(false) };
        self.restore(&checkpoint)?;
        Ok(true)
    }

    /// The memory that the run takes, by part, for its longest batches.
    pub fn memory(&self) -> Result<Parts> {
        self.memory_with(self.config.batch.rows)
    }

    /// The same with other `batch.rows`.
    pub fn memory_with(&self, rows: usize) -> Result<Parts> {
        let numbers = |list: &mut dyn Iterator<Item = usize>| list.sum::<usize>() * size_of::<f32>();
        let batch = self.material.longest(&self.config, rows)?;
        let [activations, scratch] = match &self.device {
            Some(device) => [device.engine.memory(&batch)?, 0],
            None => self.runner.memory(&batch, &self.parameters)?,
        };
        Ok(Parts {
            parameters: numbers(&mut self.parameters.list.iter().map(|parameter| parameter.numbers.len())),
            gradients: numbers(&mut self.gradients.list.iter().flatten().map(Vec::len)),
            optimiser: self.optimiser.bytes() + self.average.as_ref().map_or(0, Average::bytes),
            activations,
            scratch,
        })
    }

    /// Trains to the end, or until `stop` is set.
    pub fn train(&mut self, stop: &AtomicBool, watcher: &mut dyn Watcher) -> Result<Ended> {
        let loader = Loader::new(
            self.material.training.clone(),
            self.material.loader(&self.config, true),
            self.position,
        )?;
        let mut batches = Prefetch::new(loader, 2 * self.config.batch.accumulate)?;
        let mut saving = Saving::default();
        let mut looked = None;
        while self.step < self.config.steps {
            if stop.load(Ordering::Relaxed) {
                self.save(false, &mut saving)?;
                saving.finish()?;
                return Ok(Ended::Stopped);
            }
            let progress = self.step(&mut batches)?;
            watcher.step(&progress);
            let due = |every: u64| every > 0 && self.step.is_multiple_of(every);
            let (look, keep) = (due(self.config.evaluate.every), due(self.config.checkpoint.every));
            let mut best = false;
            if look {
                let (seen, ends) = self.look(watcher)?;
                (best, looked) = (seen.best, Some(self.step));
                if ends {
                    self.save(best, &mut saving)?;
                    saving.finish()?;
                    return Ok(Ended::NoBetter);
                }
            }
            if keep || best {
                self.save(best, &mut saving)?;
            }
        }
        let best = looked != Some(self.step) && self.look(watcher)?.0.best;
        self.save(best, &mut saving)?;
        saving.finish()?;
        Ok(Ended::Done)
    }

    /// One step over as many batches as are accumulated.
    fn step(&mut self, batches: &mut Prefetch) -> Result<Progress> {
        let begin = Instant::now();
        let mut steps: Vec<Step> = Vec::with_capacity(self.config.batch.accumulate);
        while steps.len() < self.config.batch.accumulate.max(1) {
            let ended = || Error::new(ErrorKind::State, "data", "there are no more batches");
            steps.push(batches.next().ok_or_else(ended)??);
        }
        let weight: f64 = steps.iter().map(|step| self.loss.weight(&step.batch, &step.targets)).sum();
        if weight <= 0.0 {
            return Err(Error::argument("data", "a step has no targets; see the settings of the task"));
        }
        let rate = self.schedule.rate(self.step);
        let (sum, length) = match &mut self.device {
            Some(device) => device.step(&steps, weight, rate, self.config.clip),
            None => self.step_here(&steps, weight, rate),
        }
        .map_err(|error| error.within(&format!("step {}", self.step + 1)))?;
        self.step += 1;
        self.position = steps.last().map_or(self.position, |step| step.next);
        let rows = |step: &Step| step.batch.reader.rows.len() + step.batch.writer.rows.len();
        Ok(Progress {
            step: self.step,
            steps: self.config.steps,
            loss: sum.mean(),
            right: sum.right / sum.weight.max(f64::MIN_POSITIVE),
            norm: length,
            rate,
            rows: steps.iter().map(rows).sum(),
            seconds: begin.elapsed().as_secs_f64(),
            epoch: self.position.epoch,
        })
    }

    /// A step on the CPU: how far off the batches were, and the length of their gradient.
    fn step_here(&mut self, steps: &[Step], weight: f64, rate: f64) -> Result<(Sum, f64)> {
        self.gradients.clear();
        let mut sum = Sum::default();
        for step in steps {
            let goal = Goal { loss: self.loss.as_ref(), targets: &step.targets, scale: 1.0 / weight };
            sum.add(&self.runner.run(&self.parameters, &step.batch, goal, &mut self.gradients)?);
        }
        let norm = Norm::of(&self.gradients);
        if let Some(error) = norm.error(&self.parameters) {
            return Err(error);
        }
        let arguments = StepArguments { rate, factor: norm.factor(1.0, self.config.clip) };
        self.optimiser.step(&mut self.parameters, &self.gradients, arguments)?;
        if let Some(average) = &mut self.average {
            average.update(&self.parameters)?;
        }
        Ok((sum, norm.length))
    }

    /// Looks at the validation texts, and whether that ends the run.
    fn look(&mut self, watcher: &mut dyn Watcher) -> Result<(Seen, bool)> {
        let Some(sum) = self.evaluate()? else { return Ok((Seen::default(), false)) };
        let loss = sum.mean();
        let best = self.best.is_none_or(|best| loss < best);
        if best {
            self.best = Some(loss);
        }
        let right = sum.right / sum.weight.max(f64::MIN_POSITIVE);
        let seen = Seen { step: self.step, loss, right, best };
        watcher.look(&seen);
        let ends = match &mut self.patience {
            Some(patience) => patience.look(loss) == Look::Stop,
            None => false,
        };
        Ok((seen, ends))
    }

    /// How far off the validation texts are, with the averaged parameters where there are some.
    pub fn evaluate(&mut self) -> Result<Option<Sum>> {
        let Some(task) = self.material.validation.clone() else { return Ok(None) };
        if let Some(average) = &mut self.average {
            average.swap(&mut self.parameters)?;
        }
        let loader = Loader::new(task, self.material.loader(&self.config, false), Position::default());
        let mut sum = Sum::default();
        let result = loader.and_then(|mut loader| {
            let most =
                if self.config.evaluate.batches == 0 { usize::MAX } else { self.config.evaluate.batches };
            loader.by_ref().take(most).try_for_each(|step| {
                let step = step?;
                if let Some(device) = &mut self.device {
                    return device.evaluate(&step);
                }
                let goal = Goal { loss: self.loss.as_ref(), targets: &step.targets, scale: 1.0 };
                sum.add(&self.runner.evaluate(&self.parameters, &step.batch, goal, None)?);
                Ok(())
            })
        });
        if let Some(average) = &mut self.average {
            average.swap(&mut self.parameters)?;
        }
        result?;
        if let Some(device) = &mut self.device {
            sum = device.engine.take_sum()?;
        }
        Ok(Some(sum))
    }

    /// The parameters as they would be used: averaged where there is an average.
    pub fn parameters(&mut self) -> Result<Parameters<f32>> {
        self.fetch()?;
        let Some(average) = &mut self.average else { return Ok(self.parameters.clone()) };
        average.swap(&mut self.parameters)?;
        let averaged = self.parameters.clone();
        average.swap(&mut self.parameters)?;
        Ok(averaged)
    }

    /// What a file of the trained model holds: adapters have become part of the matrices that they stand beside.
    pub fn result(&mut self) -> Result<Parameters<f32>> {
        let parameters = self.parameters()?;
        Ok(match &self.config.adapters {
            Some(options) => adapters::merge(&parameters, &self.material.adapters, options),
            None => parameters,
        })
    }

    /// What the run is made of.
    pub fn material(&self) -> &Material {
        &self.material
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.step
    }

    fn states(&self) -> Vec<&dyn State> {
        let optional = [
            self.average.as_ref().map(|average| average as &dyn State),
            self.patience.as_ref().map(|patience| patience as &dyn State),
            self.device.as_ref().and_then(|device| device.scaler.as_ref()).map(|scaler| scaler as &dyn State),
        ];
        [Some(&self.optimiser as &dyn State)].into_iter().chain(optional).flatten().collect()
    }

    /// Brings what a device has changed.
    fn fetch(&mut self) -> Result<()> {
        match &mut self.device {
            Some(device) => device.fetch(&mut self.parameters, &mut self.optimiser),
            None => Ok(()),
        }
    }

    /// The state of the run: on a device as it was when it was last saved or restored.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut tables = state::save(&self.states());
        for (parameter, gradient) in self.parameters.list.iter().zip(&self.gradients.list) {
            if gradient.is_some() {
                let numbers = state::Data::Numbers(parameter.numbers.clone());
                tables.insert(format!("parameter.{}", parameter.name), numbers);
            }
        }
        let state = json!({
            "step": self.step,
            "position": {"epoch": self.position.epoch, "batch": self.position.batch},
            "best": self.best.map(f64::to_bits),
            "seed": self.config.seed,
        });
        Checkpoint { state, tables }
    }

    /// Takes a state up.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let missing = |key: &str| Error::corrupt(format!("checkpoint.{key}"), "is missing or no number");
        let number =
            |key: &str| checkpoint.state.pointer(key).and_then(Value::as_u64).ok_or_else(|| missing(key));
        if number("/seed")? != self.config.seed {
            return Err(Error::argument("seed", "is not that of the run that the checkpoint belongs to"));
        }
        let (step, epoch, batch) = (number("/step")?, number("/position/epoch")?, number("/position/batch")?);
        let trained = self.parameters.list.iter_mut().zip(&self.gradients.list);
        for (parameter, _) in trained.filter(|(_, gradient)| gradient.is_some()) {
            let name = format!("parameter.{}", parameter.name);
            parameter.numbers = checkpoint.numbers(&name, parameter.numbers.len())?;
        }
        state::restore(&mut self.optimiser, &checkpoint.tables)?;
        if let Some(average) = &mut self.average {
            state::restore(average, &checkpoint.tables)?;
        }
        if let Some(patience) = &mut self.patience {
            state::restore(patience, &checkpoint.tables)?;
        }
        if let Some(device) = &mut self.device {
            if let Some(scaler) = &mut device.scaler {
                state::restore(scaler, &checkpoint.tables)?;
            }
            device.put(&self.parameters, &self.optimiser)?;
        }
        self.step = step;
        self.position = Position { epoch, batch };
        self.best = checkpoint.state.get("best").and_then(Value::as_u64).map(f64::from_bits);
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
