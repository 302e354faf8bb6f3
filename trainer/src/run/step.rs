//! One step of a run.

use std::iter::Peekable;
use std::ops::Range;
use std::time::Instant;

use siskin_format::{Error, ErrorKind, Result};

use super::device_trainer::{DeviceTrainer, StepObservers};
use super::host_trainer::{HostStep, UpdateOptions};
use super::{Profiled, Run, RunCallbacks, StepReport};
use crate::batch::TrainingBatch;
use crate::cuda::{OptimizerResult, Timed};
use crate::data::{LoadedBatch, Prefetch};
use crate::parameters::Parameters;
use crate::profile::{self, ProfiledThread, Recorder, Tracer, WorkInterval, timed};
use crate::program;
use crate::runner::{Phase, Runner};
use crate::statistics::{OutputStatistics, StepStatistics};

impl Profiled {
    pub(super) fn new(steps: Range<u64>) -> Self {
        Self { steps, recorder: Recorder::default() }
    }

    /// Switches the recorder on or off for a step, and returns it if it is on.
    fn begin(&self, step: u64) -> Option<Recorder> {
        let on = self.steps.contains(&step);
        self.recorder.set_on(on);
        on.then(|| self.recorder.clone())
    }

    /// Returns true if all profiled steps are done.
    pub(super) fn is_over(&self, done: u64) -> bool {
        done + 1 >= self.steps.end
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
            return tracer.head(rows, work, WorkInterval { begin, end });
        }
    };
    tracer.add_node(node, phase, &runner.call(node, parameters, batch), WorkInterval { begin, end });
}

impl Run {
    /// Profiles `count` steps from `first` on, counted from 1.
    pub fn profile(&mut self, first: u64, count: u64) {
        self.profiled = Some(Profiled::new(first..first.saturating_add(count)));
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
        let recorder = self.profiled.as_ref().and_then(|profiled| profiled.begin(self.progress.step + 1));
        let recorder = recorder.as_ref();
        let steps = timed(recorder, "wait for batches", ProfiledThread::Steps, || self.batches(batches))?;
        let every = self.config.statistics.every_n_steps;
        let mut outputs =
            (every > 0 && (self.progress.step + 1).is_multiple_of(every)).then(OutputStatistics::default);
        let rate = self.schedule.learning_rate(self.progress.step);
        let update = UpdateOptions { learning_rate: rate, max_grad_norm: self.config.max_grad_norm };
        let weight = self.host.weight(&steps)?;
        let scale = self.device.as_ref().map_or(1.0, DeviceTrainer::scale);
        let (runner, parameters) = (&self.host.runner, &self.host.parameters);
        let mut flops = Ok(0.0);
        let mut count =
            || flops = steps.iter().map(|step| runner.flops(parameters, &step.batch)).sum::<Result<f64>>();
        let done = match &mut self.device {
            Some(device) => {
                let tracer =
                    recorder.map(|recorder| Tracer::new(recorder.clone(), self.host.runner.program()));
                let mut times = |batch: &TrainingBatch, timed: Timed| {
                    if let Some(tracer) = &tracer {
                        trace(tracer, runner, parameters, batch, timed);
                    }
                };
                let mut observers = StepObservers { host_work: Some(&mut count), ..StepObservers::default() };
                match &mut outputs {
                    Some(outputs) => {
                        (observers.outputs, observers.gradients) =
                            (Some(outputs), Some(&mut self.host.gradients));
                    }
                    None => observers.timings = Some(&mut times),
                }
                // The weight of a step with several micro-batches is not known before all are loaded.
                if self.progress.step + 1 < self.config.steps && steps.len() == 1 {
                    let loss = &self.host.loss;
                    observers.next = Some(Box::new(|| {
                        let next = batches.peek()?.as_ref().ok()?;
                        Some((next, loss.weight(&next.batch, &next.targets)))
                    }));
                }
                device.step(&steps, weight, update, observers, recorder)
            }
            None => {
                count();
                let done = self.host.step(&steps, weight, update, recorder, outputs.as_mut());
                done.map(|HostStep { loss, grad_norm }| {
                    (loss, OptimizerResult { grad_norm, finite: true, count: 0 })
                })
            }
        };
        let (sum, result) = done.map_err(|error| {
            let named = if error.kind() == ErrorKind::Numeric {
                self.find_non_finite(&steps, scale / weight)
            } else {
                None
            };
            named.unwrap_or(error).within(&format!("step {}", self.progress.step + 1))
        })?;
        self.progress.step += 1;
        self.progress.skipped_steps += u64::from(!result.finite);
        self.progress.position = steps.last().map_or(self.progress.position, |step| step.next);
        if let Some(recorder) = recorder {
            recorder.add(profile::STEP, ProfiledThread::Steps, begin, None);
        }
        let statistics = outputs.map(|outputs| {
            outputs.with(
                self.progress.step,
                self.host.runner.program(),
                &self.host.parameters,
                &self.host.gradients,
            )
        });
        let rows = |step: &LoadedBatch| step.batch.encoder.rows.len() + step.batch.decoder.rows.len();
        let progress = StepReport {
            step: self.progress.step,
            steps: self.config.steps,
            loss: sum.mean(),
            accuracy: sum.correct / sum.weight.max(f64::MIN_POSITIVE),
            router_loss: sum.router_loss / sum.weight.max(f64::MIN_POSITIVE),
            grad_norm: result.grad_norm,
            learning_rate: rate,
            loss_scale: scale,
            skipped_steps: self.progress.skipped_steps,
            tokens: steps.iter().map(rows).sum(),
            seconds: begin.elapsed().as_secs_f64(),
            epoch: self.progress.position.epoch,
            flops: flops?,
        };
        Ok((progress, statistics))
    }

    /// Returns the error that names the first NaN or infinity on a device, if it can be found.
    fn find_non_finite(&mut self, steps: &[LoadedBatch], factor: f64) -> Option<Error> {
        let device = self.device.as_mut()?;
        let program = self.host.runner.program();
        device
            .find_non_finite(steps, factor, program, &mut self.host.gradients, &self.host.parameters)
            .ok()
            .flatten()
    }

    fn batches(&self, batches: &mut Peekable<Prefetch>) -> Result<Vec<LoadedBatch>> {
        let ended = || Error::new(ErrorKind::State, "data", "there are no more batches");
        let count = self.config.batch.gradient_accumulation_steps.max(1);
        (0..count).map(|_| batches.next().ok_or_else(ended)?).collect()
    }
}
