//! Steps that another device does than the CPU.

use siskin::{Error, Result};

use super::{Config, Material};
use crate::clip;
use crate::cuda::{Engine, Precision};
use crate::data::Step;
use crate::loss::{CrossEntropy, Sum};
use crate::optimiser::Optimiser;
use crate::parameters::{Gradients, Parameters};
use crate::program::Program;
use crate::runner::RouterOptions;
use crate::scaler::{Scaler, ScalerOptions};
use crate::settings::{read, unknown};
use crate::state;

/// A device, and what a run needs beside it.
pub(super) struct OnDevice {
    pub(super) engine: Box<dyn Engine>,
    loss: CrossEntropy,
    /// Where gradients are halves.
    pub(super) scaler: Option<Scaler>,
}

/// The precision that a config names.
pub(super) fn precision(config: &Config) -> Result<Precision> {
    match config.precision.as_str() {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        "fp16" => Ok(Precision::Fp16),
        other => Err(unknown("precision", "precision", other, &["f32", "bf16", "fp16"])),
    }
}

/// The device that a config names; none: the CPU.
pub(super) fn open(
    config: &Config,
    program: &Program,
    parameters: &Parameters<f32>,
    gradients: &Gradients<f32>,
    optimiser: &Optimiser,
) -> Result<Option<Box<dyn Engine>>> {
    let precision = precision(config)?;
    match config.device.as_str() {
        "cpu" if precision == Precision::F32 => Ok(None),
        "cpu" => {
            Err(Error::argument("precision", "the CPU trains in f32; set device = \"cuda\", or leave it out"))
        }
        "cuda" => cuda(config, precision, program, parameters, gradients, optimiser).map(Some),
        other => Err(unknown("device", "device", other, &["cpu", "cuda"])),
    }
}

#[cfg(feature = "cuda")]
fn cuda(
    config: &Config,
    precision: Precision,
    program: &Program,
    parameters: &Parameters<f32>,
    gradients: &Gradients<f32>,
    optimiser: &Optimiser,
) -> Result<Box<dyn Engine>> {
    use crate::cuda::{Cuda, Runner};
    let trains = |weight| gradients.has(weight);
    let recompute = config.recompute()?;
    let mut runner = Runner::new(Cuda::new(0)?, precision, program.clone(), recompute, parameters, trains)?;
    runner.optimise(&config.optimiser, optimiser)?;
    Ok(Box::new(runner))
}

#[cfg(not(feature = "cuda"))]
fn cuda(
    _: &Config,
    _: Precision,
    _: &Program,
    _: &Parameters<f32>,
    _: &Gradients<f32>,
    _: &Optimiser,
) -> Result<Box<dyn Engine>> {
    let message = "this build has no CUDA; build with --features cuda, or train with device = \"cpu\"";
    Err(Error::unsupported("device", message))
}

impl OnDevice {
    /// Refuses what devices do not do yet.
    pub(super) fn new(config: &Config, engine: Box<dyn Engine>) -> Result<Self> {
        if config.loss.get("name").and_then(|name| name.as_str()) != Some("cross_entropy") {
            let message = "only cross_entropy is computed on CUDA; take it, or device = \"cpu\"";
            return Err(Error::unsupported("loss.name", message));
        }
        let missing = [
            ("average", config.average.is_some()),
            ("adapters", config.adapters.is_some()),
            ("quantise", config.quantise.is_some()),
            ("routers", config.routers != RouterOptions::default()),
            ("statistics", config.statistics.every > 0),
        ];
        if let Some((section, _)) = missing.into_iter().find(|(_, wanted)| *wanted) {
            let message = "is not there on CUDA yet; leave it out, or take device = \"cpu\"";
            return Err(Error::unsupported(section, message));
        }
        let mut settings = config.loss.clone();
        settings.remove("name");
        let loss = read("loss", &settings)?;
        let halves = precision(config)? == Precision::Fp16;
        let scaler = halves.then(|| Scaler::new(ScalerOptions::default())).transpose()?;
        Ok(Self { engine, loss, scaler })
    }

    /// One step over some batches: how far off they were, and the length of the gradient.
    pub(super) fn step(
        &mut self,
        steps: &[Step],
        weight: f64,
        rate: f64,
        limit: Option<f64>,
    ) -> Result<(Sum, f64)> {
        let scale = self.scaler.as_ref().map_or(1.0, Scaler::scale);
        for step in steps {
            self.engine.run(&step.batch, self.loss, &step.targets, scale / weight)?;
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

    /// How far off the validation texts are; none where there are no such texts.
    pub(super) fn look(&mut self, config: &Config, material: &Material) -> Result<Option<Sum>> {
        let Some(loader) = material.validation_batches(config)? else { return Ok(None) };
        for step in loader {
            let step = step?;
            self.engine.evaluate(&step.batch, self.loss, &step.targets)?;
        }
        self.engine.take_sum().map(Some)
    }

    /// Brings parameters and the optimiser's state from the device.
    pub(super) fn fetch(
        &mut self,
        parameters: &mut Parameters<f32>,
        optimiser: &mut Optimiser,
    ) -> Result<()> {
        let mut tables = state::save(&[&*optimiser]);
        self.engine.fetch(parameters, &mut tables)?;
        state::restore(optimiser, &tables)
    }

    /// Brings parameters and the optimiser's state to the device.
    pub(super) fn put(&mut self, parameters: &Parameters<f32>, optimiser: &Optimiser) -> Result<()> {
        self.engine.put(parameters, &state::save(&[optimiser]))
    }
}
