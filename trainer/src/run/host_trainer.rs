//! Training steps on the CPU, and the weights, which a device trains instead if there is one.

use siskin_format::{Error, Result};

use super::{RunConfig, RunSetup};
use crate::adapters::{self, AdapterOptions, TrainedAdapter};
use crate::clip::GradientNorm;
use crate::data::LoadedBatch;
use crate::ema::ExponentialMovingAverage;
use crate::loss::{self, Loss, LossSum};
use crate::optimizer::{Optimizer, StepArguments};
use crate::parameters::{Gradients, Parameter, Parameters};
use crate::profile::{ProfiledThread, Recorder, Tracer, timed};
use crate::program::WeightBytes;
use crate::qat::QuantizationAware;
use crate::runner::{Probe, Runner, TrainingObjective};
use crate::settings::fits;
use crate::statistics::OutputStatistics;

/// The model of a run and its optimizer, in the memory of the process. On a device they are copies, as of the last time
/// that they were copied back.
pub(super) struct HostTrainer {
    pub(super) runner: Runner<f32>,
    pub(super) loss: Box<dyn Loss<f32>>,
    pub(super) parameters: Parameters<f32>,
    pub(super) gradients: Gradients<f32>,
    pub(super) optimizer: Optimizer,
    pub(super) ema: Option<ExponentialMovingAverage>,
    pub(super) qat: Option<QuantizationAware>,
    adapters: Option<ModelAdapters>,
}

/// The adapters of a model.
struct ModelAdapters {
    list: Vec<TrainedAdapter>,
    options: AdapterOptions,
}

/// How a step on the CPU updates the weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UpdateOptions {
    pub(super) learning_rate: f64,
    /// The norm that gradients are clipped to.
    pub(super) max_grad_norm: Option<f64>,
}

/// The loss of a step, and the norm of its gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HostStep {
    pub(super) loss: LossSum,
    pub(super) grad_norm: f64,
}

impl HostTrainer {
    /// Creates the initial state of a run.
    pub(super) fn new(config: &RunConfig, setup: &RunSetup) -> Result<Self> {
        let patterns = &config.model.trainable;
        let usual = |name: &str| setup.adapters.is_empty() || adapters::is_trained(name);
        let chosen =
            |name: &str| patterns.iter().any(|pattern| fits(pattern, name)) || adapters::is_trained(name);
        let trains = |name: &str| if patterns.is_empty() { usual(name) } else { chosen(name) };
        let mut parameters = setup.parameters_with_packed(config.seed, |name| !trains(name))?;
        let gradients = Gradients::zeros(&parameters, |parameter| trains(&parameter.name));
        if gradients.list.iter().all(Option::is_none) {
            return Err(Error::argument("model.trainable", "no tensor matches; nothing would be trained"));
        }
        let qat = config.qat.as_ref();
        let qat = qat.map(|options| QuantizationAware::new(options, &setup.program)).transpose()?;
        if let Some(qat) = &qat {
            qat.round_weights(&mut parameters);
        }
        let optimizer = Optimizer::new(&config.optimizer, &parameters, &gradients)?;
        let ema = config.ema.as_ref();
        let ema = ema
            .map(|settings| ExponentialMovingAverage::from_settings(settings, &parameters, &gradients))
            .transpose()?;
        let program = setup.program.clone();
        let runner = Runner::new(program, config.recompute()?, |weight| gradients.has(weight))?
            .with_routers(config.router);
        let adapters = config.adapters.clone();
        let adapters = adapters.map(|options| ModelAdapters { list: setup.adapters.clone(), options });
        let loss = loss::named(&config.loss)?;
        Ok(Self { runner, loss, parameters, gradients, optimizer, ema, qat, adapters })
    }

    /// Returns the bytes of all tensors, and of their gradients.
    pub(super) fn resident_bytes(&self) -> WeightBytes {
        let gradients = self.gradients.list.iter().flatten().map(Vec::len).sum::<usize>();
        WeightBytes {
            parameters: self.parameters.list.iter().map(Parameter::bytes).sum(),
            gradients: gradients * size_of::<f32>(),
        }
    }

    /// Recomputes what is derived from the parameters after they changed.
    pub(super) fn update_derived_weights(&mut self) {
        if let Some(ModelAdapters { list, options }) = &self.adapters {
            adapters::update_norms(&mut self.parameters, list, options);
        }
        if let Some(qat) = &self.qat {
            qat.round_weights(&mut self.parameters);
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
    pub(super) fn with_ema<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R> {
        self.swap_ema()?;
        let done = work(self);
        self.swap_ema()?;
        Ok(done)
    }

    /// Computes the loss of a batch and its gradients.
    pub(super) fn pass(&mut self, step: &LoadedBatch, probe: Option<&mut dyn Probe<f32>>) -> Result<LossSum> {
        self.gradients.clear();
        let weight = self.loss.weight(&step.batch, &step.targets);
        if weight <= 0.0 {
            return Err(Error::argument("data", "a batch has no targets; check data.settings"));
        }
        let goal =
            TrainingObjective { loss: self.loss.as_ref(), targets: &step.targets, scale: 1.0 / weight };
        self.runner.run_probed(&self.parameters, &step.batch, goal, &mut self.gradients, probe)
    }

    /// Returns the total weight of all targets of a step.
    pub(super) fn weight(&self, steps: &[LoadedBatch]) -> Result<f64> {
        let weight: f64 = steps.iter().map(|step| self.loss.weight(&step.batch, &step.targets)).sum();
        match weight > 0.0 {
            true => Ok(weight),
            false => Err(Error::argument("data", "a step has no targets; check data.settings")),
        }
    }

    /// Runs one step over some micro-batches.
    pub(super) fn step(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        update: UpdateOptions,
        recorder: Option<&Recorder>,
        outputs: Option<&mut OutputStatistics>,
    ) -> Result<HostStep> {
        let loss = self.forward_backward(steps, weight, recorder, outputs)?;
        let norm = timed(recorder, "grad norm", ProfiledThread::Steps, || GradientNorm::of(&self.gradients));
        if let Some(error) = norm.error(&self.parameters) {
            return Err(error);
        }
        let arguments = StepArguments {
            learning_rate: update.learning_rate,
            grad_factor: norm.factor(1.0, update.max_grad_norm),
        };
        timed(recorder, "optimizer", ProfiledThread::Steps, || {
            self.optimizer.step(&mut self.parameters, &self.gradients, arguments)
        })?;
        timed(recorder, "derived weights", ProfiledThread::Steps, || self.update_derived_weights());
        if let Some(average) = &mut self.ema {
            timed(recorder, "ema", ProfiledThread::Steps, || average.update(&self.parameters))?;
        }
        Ok(HostStep { loss, grad_norm: norm.norm })
    }

    /// Computes the gradients of all micro-batches of a step.
    fn forward_backward(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        recorder: Option<&Recorder>,
        mut outputs: Option<&mut OutputStatistics>,
    ) -> Result<LossSum> {
        let mut tracer = recorder.map(|recorder| Tracer::new(recorder.clone(), self.runner.program()));
        self.gradients.clear();
        let mut sum = LossSum::default();
        for step in steps {
            let goal =
                TrainingObjective { loss: self.loss.as_ref(), targets: &step.targets, scale: 1.0 / weight };
            let mut probes: Vec<&mut dyn Probe<f32>> = Vec::new();
            if let Some(tracer) = &mut tracer {
                probes.push(tracer);
            }
            if let Some(outputs) = outputs.as_deref_mut() {
                probes.push(outputs);
            }
            let probe: Option<&mut dyn Probe<f32>> = if probes.is_empty() { None } else { Some(&mut probes) };
            let (parameters, gradients) = (&self.parameters, &mut self.gradients);
            sum.add(&self.runner.run_probed(parameters, &step.batch, goal, gradients, probe)?);
        }
        Ok(sum)
    }
}
