//! One step of a run.

use std::iter::Peekable;
use std::time::Instant;

use siskin_format::{Error, ErrorKind, Result};

use super::on_device::{OnDevice, StepObservers};
use super::{Profiled, Run, RunCallbacks, StepReport};
use crate::batch::TrainingBatch;
use crate::clip::GradientNorm;
use crate::cuda::{OptimizerResult, Timed};
use crate::data::{LoadedBatch, Prefetch};
use crate::loss::LossSum;
use crate::optimizer::StepArguments;
use crate::parameters::Parameters;
use crate::profile::{self, ProfiledThread, Recorder, Tracer, timed};
use crate::program;
use crate::runner::{Phase, Probe, Runner, TrainingObjective};
use crate::statistics::{OutputStatistics, StepStatistics};

impl Profiled {
    pub(super) fn new(steps: [u64; 2]) -> Self {
        Self { steps, recorder: Recorder::default() }
    }

    /// Switches the recorder on or off for a step, and returns it if it is on.
    fn begin(&self, step: u64) -> Option<Recorder> {
        let on = (self.steps[0]..self.steps[1]).contains(&step);
        self.recorder.set_on(on);
        on.then(|| self.recorder.clone())
    }

    /// Returns true if all profiled steps are done.
    pub(super) fn is_over(&self, done: u64) -> bool {
        done + 1 >= self.steps[1]
    }
}

/// Records a piece of work of a device.
fn trace(
    tracer: &Tracer,
    runner: &Runner<f32>,
    parameters: &Parameters<f32>,
    batch: &TrainingBatch,
    Timed { step, begin, end }: Timed,
) {
    let (node, phase) = match step {
        program::ScheduleStep::Forward { node, recomputed: false } => (node, Phase::Forward),
        program::ScheduleStep::Forward { node, recomputed: true } => (node, Phase::Recompute),
        program::ScheduleStep::Backward { node } => (node, Phase::Backward),
        program::ScheduleStep::Head => {
            let rows = batch.encoder.output_rows.len() + batch.decoder.output_rows.len();
            let work = runner.head_flops(parameters, batch).unwrap_or(0.0);
            return tracer.head(rows, work, [begin, end]);
        }
    };
    tracer.add_node(node, phase, &runner.call(node, parameters, batch), [begin, end]);
}

impl Run {
    /// Profiles `count` steps from `first` on, counted from 1.
    pub fn profile(&mut self, first: u64, count: u64) {
        self.profiled = Some(Profiled::new([first, first.saturating_add(count)]));
    }

    /// Reports the recorded events, once.
    pub(super) fn report_profile(&mut self, callbacks: &mut dyn RunCallbacks) {
        if let Some(Profiled { recorder, .. }) = self.profiled.take() {
            recorder.set_on(false);
            let events = recorder.events();
            // A run that was resumed after the profiled steps has no events, and keeps the existing profile.
            if !events.is_empty() {
                callbacks.profile(&events);
            }
        }
    }

    /// Runs one step over the accumulated micro-batches; returns statistics of tensors in steps in which they are
    /// computed.
    pub(super) fn step(
        &mut self,
        batches: &mut Peekable<Prefetch>,
    ) -> Result<(StepReport, Option<StepStatistics>)> {
        let begin = Instant::now();
        let recorder = self.profiled.as_ref().and_then(|profiled| profiled.begin(self.step + 1));
        let recorder = recorder.as_ref();
        let steps = timed(recorder, "wait for batches", ProfiledThread::Steps, || self.batches(batches))?;
        let every = self.config.statistics.every_n_steps;
        let mut outputs =
            (every > 0 && (self.step + 1).is_multiple_of(every)).then(OutputStatistics::default);
        let rate = self.schedule.learning_rate(self.step);
        let weight = self.weight(&steps)?;
        let scale = self.device.as_ref().map_or(1.0, OnDevice::scale);
        let (runner, parameters) = (&self.runner, &self.parameters);
        let mut flops = Ok(0.0);
        let mut count =
            || flops = steps.iter().map(|step| runner.flops(parameters, &step.batch)).sum::<Result<f64>>();
        let done = match &mut self.device {
            Some(device) => {
                let tracer = recorder.map(|recorder| Tracer::new(recorder.clone(), self.runner.program()));
                let mut times = |batch: &TrainingBatch, timed: Timed| {
                    if let Some(tracer) = &tracer {
                        trace(tracer, runner, parameters, batch, timed);
                    }
                };
                let mut observers = StepObservers { host_work: Some(&mut count), ..StepObservers::default() };
                match &mut outputs {
                    Some(outputs) => {
                        (observers.outputs, observers.gradients) = (Some(outputs), Some(&mut self.gradients));
                    }
                    None => observers.timings = Some(&mut times),
                }
                // The weight of a step with several micro-batches is not known before all are loaded.
                if self.step + 1 < self.config.steps && steps.len() == 1 {
                    let loss = &self.loss;
                    observers.next = Some(Box::new(|| {
                        let next = batches.peek()?.as_ref().ok()?;
                        Some((next, loss.weight(&next.batch, &next.targets)))
                    }));
                }
                device.step(&steps, weight, (rate, self.config.max_grad_norm), observers, recorder)
            }
            None => {
                count();
                let done = self.step_on_cpu(&steps, weight, rate, recorder, outputs.as_mut());
                done.map(|(sum, length)| (sum, OptimizerResult { grad_norm: length, finite: true, count: 0 }))
            }
        };
        let (sum, result) = done.map_err(|error| {
            let named = if error.kind() == ErrorKind::Numeric {
                self.find_non_finite(&steps, scale / weight)
            } else {
                None
            };
            named.unwrap_or(error).within(&format!("step {}", self.step + 1))
        })?;
        self.step += 1;
        self.skipped_steps += u64::from(!result.finite);
        self.position = steps.last().map_or(self.position, |step| step.next);
        if let Some(recorder) = recorder {
            recorder.add(profile::STEP, ProfiledThread::Steps, begin, None);
        }
        let statistics = outputs
            .map(|outputs| outputs.with(self.step, self.runner.program(), &self.parameters, &self.gradients));
        let rows = |step: &LoadedBatch| step.batch.encoder.rows.len() + step.batch.decoder.rows.len();
        let progress = StepReport {
            step: self.step,
            steps: self.config.steps,
            loss: sum.mean(),
            accuracy: sum.correct / sum.weight.max(f64::MIN_POSITIVE),
            router_loss: sum.router_loss / sum.weight.max(f64::MIN_POSITIVE),
            grad_norm: result.grad_norm,
            learning_rate: rate,
            loss_scale: scale,
            skipped_steps: self.skipped_steps,
            tokens: steps.iter().map(rows).sum(),
            seconds: begin.elapsed().as_secs_f64(),
            epoch: self.position.epoch,
            flops: flops?,
        };
        Ok((progress, statistics))
    }

    /// Returns the error that names the first NaN or infinity on a device, if it can be found.
    fn find_non_finite(&mut self, steps: &[LoadedBatch], factor: f64) -> Option<Error> {
        let device = self.device.as_mut()?;
        let program = self.runner.program();
        device.find_non_finite(steps, factor, program, &mut self.gradients, &self.parameters).ok().flatten()
    }

    fn batches(&self, batches: &mut Peekable<Prefetch>) -> Result<Vec<LoadedBatch>> {
        let ended = || Error::new(ErrorKind::State, "data", "there are no more batches");
        let count = self.config.batch.gradient_accumulation_steps.max(1);
        (0..count).map(|_| batches.next().ok_or_else(ended)?).collect()
    }

    /// Returns the total weight of all targets of a step.
    fn weight(&self, steps: &[LoadedBatch]) -> Result<f64> {
        let weight: f64 = steps.iter().map(|step| self.loss.weight(&step.batch, &step.targets)).sum();
        match weight > 0.0 {
            true => Ok(weight),
            false => Err(Error::argument("data", "a step has no targets; check data.settings")),
        }
    }

    /// Runs a step on the CPU; returns the loss and the gradient norm.
    fn step_on_cpu(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        rate: f64,
        recorder: Option<&Recorder>,
        outputs: Option<&mut OutputStatistics>,
    ) -> Result<(LossSum, f64)> {
        let sum = self.forward_backward(steps, weight, recorder, outputs)?;
        let norm = timed(recorder, "grad norm", ProfiledThread::Steps, || GradientNorm::of(&self.gradients));
        if let Some(error) = norm.error(&self.parameters) {
            return Err(error);
        }
        let arguments =
            StepArguments { learning_rate: rate, grad_factor: norm.factor(1.0, self.config.max_grad_norm) };
        timed(recorder, "optimizer", ProfiledThread::Steps, || {
            self.optimizer.step(&mut self.parameters, &self.gradients, arguments)
        })?;
        timed(recorder, "derived weights", ProfiledThread::Steps, || self.update_derived_weights());
        if let Some(average) = &mut self.ema {
            timed(recorder, "ema", ProfiledThread::Steps, || average.update(&self.parameters))?;
        }
        Ok((sum, norm.norm))
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
