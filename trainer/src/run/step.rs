//! One step of a run.

use std::time::Instant;

use siskin::{Error, ErrorKind, Result};

use super::on_device::{OnDevice, StepObservers};
use super::{Profiled, Run, StepReport, Watcher};
use crate::batch::TrainingBatch;
use crate::clip::GradientNorm;
use crate::cuda::{Judged, Timed};
use crate::data::{LoadedBatch, Prefetch};
use crate::loss::Sum;
use crate::optimizer::StepArguments;
use crate::parameters::Parameters;
use crate::profile::{self, ProfiledThread, Recorder, Tracer, timed};
use crate::program;
use crate::runner::{Goal, Phase, Probe, Runner};
use crate::statistics::{OutputStatistics, StepStatistics};

impl Profiled {
    pub(super) fn new(steps: [u64; 2]) -> Self {
        Self { steps, recorder: Recorder::default() }
    }

    /// Switches the recorder on or off for a step, and returns it if it is on.
    fn begin(&self, step: u64) -> Option<Recorder> {
        let on = (self.steps[0]..self.steps[1]).contains(&step);
        self.recorder.turn(on);
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
        program::ScheduleStep::Forward { node, again: false } => (node, Phase::Forward),
        program::ScheduleStep::Forward { node, again: true } => (node, Phase::Again),
        program::ScheduleStep::Backward { node } => (node, Phase::Backward),
        program::ScheduleStep::Tail => {
            let rows = batch.reader.wanted.len() + batch.writer.wanted.len();
            let work = runner.head_work(parameters, batch).unwrap_or(0.0);
            return tracer.head(rows, work, [begin, end]);
        }
    };
    tracer.node(node, phase, &runner.call(node, parameters, batch), [begin, end]);
}

impl Run {
    /// Profiles `count` steps from `first` on, counted from 1.
    pub fn profile(&mut self, first: u64, count: u64) {
        self.profiled = Some(Profiled::new([first, first.saturating_add(count)]));
    }

    /// Reports the recorded events, once.
    pub(super) fn tell_profile(&mut self, watcher: &mut dyn Watcher) {
        if let Some(Profiled { recorder, .. }) = self.profiled.take() {
            recorder.turn(false);
            let events = recorder.events();
            // A run that was resumed after the profiled steps has no events, and keeps the existing profile.
            if !events.is_empty() {
                watcher.profile(&events);
            }
        }
    }

    /// Runs one step over the accumulated micro-batches; returns statistics of tensors in steps in which they are
    /// computed.
    pub(super) fn step(&mut self, batches: &mut Prefetch) -> Result<(StepReport, Option<StepStatistics>)> {
        let begin = Instant::now();
        let recorder = self.profiled.as_ref().and_then(|profiled| profiled.begin(self.step + 1));
        let recorder = recorder.as_ref();
        let steps = timed(recorder, "wait for batches", ProfiledThread::Steps, || self.batches(batches))?;
        let every = self.config.statistics.every;
        let mut outputs =
            (every > 0 && (self.step + 1).is_multiple_of(every)).then(OutputStatistics::default);
        let rate = self.schedule.rate(self.step);
        let weight = self.weight(&steps)?;
        let scale = self.device.as_ref().map_or(1.0, OnDevice::scale);
        let (runner, parameters) = (&self.runner, &self.parameters);
        let mut work = Ok(0.0);
        let mut count =
            || work = steps.iter().map(|step| runner.work(parameters, &step.batch)).sum::<Result<f64>>();
        let done = match &mut self.device {
            Some(device) => {
                let tracer = recorder.map(|recorder| Tracer::new(recorder.clone(), self.runner.program()));
                let mut times = |batch: &TrainingBatch, timed: Timed| {
                    if let Some(tracer) = &tracer {
                        trace(tracer, runner, parameters, batch, timed);
                    }
                };
                let mut look = StepObservers { meanwhile: Some(&mut count), ..StepObservers::default() };
                match &mut outputs {
                    Some(outputs) => {
                        (look.outputs, look.gradients) = (Some(outputs), Some(&mut self.gradients));
                    }
                    None => look.times = Some(&mut times),
                }
                device.step(&steps, weight, (rate, self.config.clip), look, recorder)
            }
            None => {
                count();
                let done = self.step_here(&steps, weight, rate, recorder, outputs.as_mut());
                done.map(|(sum, length)| (sum, Judged { length, finite: true, count: 0 }))
            }
        };
        let (sum, judged) = done.map_err(|error| {
            let named =
                if error.kind() == ErrorKind::Numeric { self.find(&steps, scale / weight) } else { None };
            named.unwrap_or(error).within(&format!("step {}", self.step + 1))
        })?;
        self.step += 1;
        self.skipped += u64::from(!judged.finite);
        self.position = steps.last().map_or(self.position, |step| step.next);
        if let Some(recorder) = recorder {
            recorder.add(profile::STEP, ProfiledThread::Steps, begin, None);
        }
        let statistics = outputs
            .map(|outputs| outputs.with(self.step, self.runner.program(), &self.parameters, &self.gradients));
        let rows = |step: &LoadedBatch| step.batch.reader.rows.len() + step.batch.writer.rows.len();
        let progress = StepReport {
            step: self.step,
            steps: self.config.steps,
            loss: sum.mean(),
            right: sum.right / sum.weight.max(f64::MIN_POSITIVE),
            routers: sum.routers / sum.weight.max(f64::MIN_POSITIVE),
            norm: judged.length,
            rate,
            scale,
            skipped: self.skipped,
            rows: steps.iter().map(rows).sum(),
            seconds: begin.elapsed().as_secs_f64(),
            epoch: self.position.epoch,
            work: work?,
        };
        Ok((progress, statistics))
    }

    /// Returns the error that names the first NaN or infinity on a device, if it can be found.
    fn find(&mut self, steps: &[LoadedBatch], factor: f64) -> Option<Error> {
        let device = self.device.as_mut()?;
        let program = self.runner.program();
        device.find(steps, factor, program, &mut self.gradients, &self.parameters).ok().flatten()
    }

    fn batches(&self, batches: &mut Prefetch) -> Result<Vec<LoadedBatch>> {
        let ended = || Error::new(ErrorKind::State, "data", "there are no more batches");
        let count = self.config.batch.accumulate.max(1);
        (0..count).map(|_| batches.next().ok_or_else(ended)?).collect()
    }

    /// Returns the total weight of all targets of a step.
    fn weight(&self, steps: &[LoadedBatch]) -> Result<f64> {
        let weight: f64 = steps.iter().map(|step| self.loss.weight(&step.batch, &step.targets)).sum();
        match weight > 0.0 {
            true => Ok(weight),
            false => Err(Error::argument("data", "a step has no targets; see the settings of the task")),
        }
    }

    /// Runs a step on the CPU; returns the loss and the gradient norm.
    fn step_here(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        rate: f64,
        recorder: Option<&Recorder>,
        outputs: Option<&mut OutputStatistics>,
    ) -> Result<(Sum, f64)> {
        let sum = self.forth_and_back(steps, weight, recorder, outputs)?;
        let norm = timed(recorder, "norm", ProfiledThread::Steps, || GradientNorm::of(&self.gradients));
        if let Some(error) = norm.error(&self.parameters) {
            return Err(error);
        }
        let arguments = StepArguments { rate, factor: norm.factor(1.0, self.config.clip) };
        timed(recorder, "optimizer", ProfiledThread::Steps, || {
            self.optimizer.step(&mut self.parameters, &self.gradients, arguments)
        })?;
        timed(recorder, "renew", ProfiledThread::Steps, || self.renew());
        if let Some(average) = &mut self.average {
            timed(recorder, "average", ProfiledThread::Steps, || average.update(&self.parameters))?;
        }
        Ok((sum, norm.length))
    }

    /// Computes the gradients of all micro-batches of a step.
    fn forth_and_back(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        recorder: Option<&Recorder>,
        mut outputs: Option<&mut OutputStatistics>,
    ) -> Result<Sum> {
        let mut tracer = recorder.map(|recorder| Tracer::new(recorder.clone(), self.runner.program()));
        self.gradients.clear();
        let mut sum = Sum::default();
        for step in steps {
            let goal = Goal { loss: self.loss.as_ref(), targets: &step.targets, scale: 1.0 / weight };
            let mut probes: Vec<&mut dyn Probe<f32>> = Vec::new();
            if let Some(tracer) = &mut tracer {
                probes.push(tracer);
            }
            if let Some(outputs) = outputs.as_deref_mut() {
                probes.push(outputs);
            }
            let probe: Option<&mut dyn Probe<f32>> = if probes.is_empty() { None } else { Some(&mut probes) };
            let (parameters, gradients) = (&self.parameters, &mut self.gradients);
            sum.add(&self.runner.run_shown(parameters, &step.batch, goal, gradients, probe)?);
        }
        Ok(sum)
    }
}
