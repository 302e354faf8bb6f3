//! Steps that another device does than the CPU.

use siskin::{Error, Result};

use super::{Config, Material};
use crate::adapters::Adapter;
use crate::average::Average;
use crate::clip;
use crate::cuda::{Device, Engine, Objective, Precision, Runner, Show};
use crate::data::Step;
use crate::loss::Sum;
use crate::optimiser::Optimiser;
use crate::parameters::{Gradients, Parameters};
use crate::program::Program;
use crate::quantise::Rounding;
use crate::scaler::{Scaler, ScalerOptions};
use crate::settings::unknown;
use crate::state::{self, Data, State, Tables, View, fill};
use crate::statistics::Outputs;

/// What a device is made ready for.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// What the run should be like.
    pub config: &'a Config,
    /// What is trained.
    pub program: &'a Program,
    /// The numbers that it begins with.
    pub parameters: &'a Parameters<f32>,
    /// Those that are trained have some.
    pub gradients: &'a Gradients<f32>,
    /// The optimiser, as it is on the CPU.
    pub optimiser: &'a Optimiser,
    /// The average, where there is one.
    pub average: Option<&'a Average>,
    /// The adapters.
    pub adapters: &'a [Adapter],
    /// Which weights are rounded, where some are.
    pub rounding: Option<&'a Rounding>,
}

impl Start<'_> {
    /// Makes a device ready.
    ///
    /// # Errors
    /// Where something has no kernels, or the device no memory.
    pub fn on<D: Device + 'static>(&self, device: D) -> Result<Box<dyn Engine>> {
        let config = self.config;
        let (precision, recompute) = (precision(config)?, config.recompute()?);
        let trains = |weight| self.gradients.has(weight);
        let program = self.program.clone();
        let mut runner = Runner::new(device, precision, program, recompute, self.parameters, trains)?;
        runner.route(config.routers)?;
        if config.fp8 {
            runner.eights()?;
        }
        if let Some(rounding) = self.rounding {
            runner.quantise(rounding.clone())?;
        }
        runner.optimise(&config.optimiser, self.optimiser)?;
        if let Some(average) = self.average {
            runner.follow(average)?;
        }
        if let Some(options) = &config.adapters {
            runner.adapt(self.adapters, options)?;
        }
        Ok(Box::new(runner))
    }
}

/// A device, and what a run needs beside it.
pub(super) struct OnDevice {
    engine: Box<dyn Engine>,
    loss: Objective,
    /// Where gradients are halves.
    pub(super) scaler: Option<Scaler>,
    /// What the device alone keeps.
    pub(super) kept: Option<Kept>,
}

/// Tables of a checkpoint that a device alone keeps.
pub(super) struct Kept(Vec<(String, Data)>);

impl State for Kept {
    fn prefix(&self) -> &'static str {
        "eights."
    }

    fn tables(&self) -> Vec<(String, View<'_>)> {
        self.0.iter().map(|(name, data)| (name.clone(), data.view())).collect()
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        self.0.iter_mut().for_each(|(name, data)| fill(data, tables, name));
        Ok(())
    }
}

/// The precision that a config names.
fn precision(config: &Config) -> Result<Precision> {
    match config.precision.as_str() {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        "fp16" => Ok(Precision::Fp16),
        other => Err(unknown("precision", "precision", other, &["f32", "bf16", "fp16"])),
    }
}

/// The device that a config names; none: the CPU.
pub(super) fn open(start: &Start<'_>) -> Result<Option<Box<dyn Engine>>> {
    let precision = precision(start.config)?;
    if start.config.fp8 && (start.config.device.as_str(), precision) != ("cuda", Precision::Bf16) {
        let message = "goes with device = \"cuda\" and precision = \"bf16\" alone; set both, or leave it out";
        return Err(Error::argument("fp8", message));
    }
    match start.config.device.as_str() {
        "cpu" if precision == Precision::F32 => Ok(None),
        "cpu" => {
            Err(Error::argument("precision", "the CPU trains in f32; set device = \"cuda\", or leave it out"))
        }
        "cuda" => cuda(start).map(Some),
        other => Err(unknown("device", "device", other, &["cpu", "cuda"])),
    }
}

#[cfg(feature = "cuda")]
fn cuda(start: &Start<'_>) -> Result<Box<dyn Engine>> {
    start.on(crate::cuda::Cuda::new(0)?)
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &Start<'_>) -> Result<Box<dyn Engine>> {
    let message = "this build has no CUDA; build with --features cuda, or train with device = \"cpu\"";
    Err(Error::unsupported("device", message))
}

impl OnDevice {
    /// An engine, and what goes with it.
    pub(super) fn new(config: &Config, engine: Box<dyn Engine>) -> Result<Self> {
        let loss = Objective::named(&config.loss)?;
        let halves = precision(config)? == Precision::Fp16;
        let scaler = halves.then(|| Scaler::new(ScalerOptions::default())).transpose()?;
        let own = engine.own_tables();
        let kept = (!own.is_empty()).then_some(Kept(own));
        Ok(Self { engine, loss, scaler, kept })
    }

    /// The bytes that the batch of a step takes beside the weights.
    pub(super) fn memory(&self, step: &Step) -> Result<usize> {
        self.engine.memory(&step.batch, &self.loss, &step.targets)
    }

    /// One step over some batches: how far off they were, and the length of the gradient. Where somebody looks, outputs
    /// and gradients are brought from the device.
    pub(super) fn step(
        &mut self,
        steps: &[Step],
        weight: f64,
        rate: f64,
        limit: Option<f64>,
        look: Option<(&mut Outputs, &mut Gradients<f32>)>,
    ) -> Result<(Sum, f64)> {
        let scale = self.scaler.as_ref().map_or(1.0, Scaler::scale);
        let (mut outputs, gradients) = look.unzip();
        for step in steps {
            let mut add = outputs
                .as_deref_mut()
                .map(|outputs| move |node: usize, numbers: &[f32]| outputs.add(node, numbers));
            let show = add.as_mut().map(|add| add as &mut Show<'_>);
            self.engine.run(&step.batch, &self.loss, &step.targets, scale / weight, show)?;
        }
        if let Some(gradients) = gradients {
            self.engine.gradients(gradients)?;
            gradients.list.iter_mut().flatten().flatten().for_each(|number| *number /= scale as f32);
        }
        let sum = self.engine.take_sum()?;
        if !sum.loss.is_finite() {
            let message = "is no number; train with a lower rate, or on the CPU, which names the operation";
            return Err(Error::argument("loss", message));
        }
        let judged = self.engine.step(rate, scale, limit)?;
        match &mut self.scaler {
            Some(scaler) => {
                scaler.update(judged.finite);
            }
            None if !judged.finite => return Err(clip::not_finite("?")),
            None => {}
        }
        Ok((sum, judged.length))
    }

    /// How far off the validation texts are, with the averaged weights where there are some; none where there are no such
    /// texts.
    pub(super) fn look(&mut self, config: &Config, material: &Material) -> Result<Option<Sum>> {
        let Some(loader) = material.validation_batches(config)? else { return Ok(None) };
        self.engine.swap()?;
        for step in loader {
            let step = step?;
            self.engine.evaluate(&step.batch, &self.loss, &step.targets)?;
        }
        self.engine.swap()?;
        self.engine.take_sum().map(Some)
    }

    /// Brings parameters, and the states of optimiser and average, from the device.
    pub(super) fn fetch(
        &mut self,
        parameters: &mut Parameters<f32>,
        optimiser: &mut Optimiser,
        average: Option<&mut Average>,
    ) -> Result<()> {
        let mut tables = state::save(&states(optimiser, average.as_deref()));
        self.engine.fetch(parameters, &mut tables)?;
        if let Some(kept) = &mut self.kept {
            state::restore(kept, &tables)?;
        }
        state::restore(optimiser, &tables)?;
        average.map_or(Ok(()), |average| state::restore(average, &tables))
    }

    /// Brings parameters, and the states of optimiser and average, to the device, and what it alone keeps, where the tables of
    /// a checkpoint have it.
    pub(super) fn put(
        &mut self,
        parameters: &Parameters<f32>,
        optimiser: &Optimiser,
        average: Option<&Average>,
        tables: &Tables,
    ) -> Result<()> {
        let mut all = state::save(&states(optimiser, average));
        if let Some(kept) =
            self.kept.as_mut().filter(|kept| kept.0.iter().all(|(name, _)| tables.contains_key(name)))
        {
            state::restore(kept, tables)?;
            all.extend(state::save(&[&*kept]));
        }
        self.engine.put(parameters, &all)
    }
}

fn states<'a>(optimiser: &'a Optimiser, average: Option<&'a Average>) -> Vec<&'a dyn State> {
    let average = average.map(|average| average as &dyn State);
    [optimiser as &dyn State].into_iter().chain(average).collect()
}
