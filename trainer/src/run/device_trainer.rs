//! Training steps on a device other than the CPU.

use std::borrow::Cow;

use siskin_device::{Device, Precision};
use siskin_format::{Error, ErrorKind, Result};

use super::host_trainer::UpdateOptions;
use super::{RunConfig, RunSetup};
use crate::adapters::TrainedAdapter;
use crate::batch::TrainingBatch;
use crate::clip::GradientNorm;
use crate::cuda::{
    DeviceRunner, HostAdapters, HostOptimizer, Objective, OptimizerResult, RunnerBuilder, StepObserver, Timed,
};
use crate::data::LoadedBatch;
use crate::ema::ExponentialMovingAverage;
use crate::grad_scaler::GradScaler;
use crate::loss::{LossSum, Targets};
use crate::optimizer::Optimizer;
use crate::parameters::{Gradients, Parameters};
use crate::profile::{ProfiledThread, Recorder, timed};
use crate::program::{BatchBytes, Program, WeightBytes};
use crate::qat::QuantizationAware;
use crate::settings::unknown;
use crate::state::{self, Checkpointed, TableData, TableView, Tables, fill};
use crate::statistics::OutputStatistics;

/// The number of buckets for the count of output rows within a factor of two.
const PADDING_BUCKETS: usize = 8;

/// What a device is prepared with.
#[derive(Clone, Copy)]
pub struct DeviceArguments<'a> {
    /// The config of the run.
    pub config: &'a RunConfig,
    /// The program to train.
    pub program: &'a Program,
    /// The initial parameters.
    pub parameters: &'a Parameters<f32>,
    /// The gradients; present for trained tensors.
    pub gradients: &'a Gradients<f32>,
    /// The optimizer, as on the CPU.
    pub optimizer: &'a Optimizer,
    /// The weight average, if any.
    pub ema: Option<&'a ExponentialMovingAverage>,
    /// The adapters.
    pub adapters: &'a [TrainedAdapter],
    /// Which weights are rounded (quantization-aware training), if any.
    pub qat: Option<&'a QuantizationAware>,
}

impl DeviceArguments<'_> {
    /// Prepares a device.
    ///
    /// # Errors
    /// If an operation has no kernel, or the device is out of memory.
    pub fn on(&self, device: Box<dyn Device>) -> Result<DeviceRunner> {
        let config = self.config;
        let adapters = config.adapters.as_ref();
        let builder = RunnerBuilder {
            trained: (0..self.program.graph.weights.len()).map(|weight| self.gradients.has(weight)).collect(),
            precision: precision(config)?,
            recompute: config.recompute()?,
            routers: config.router,
            fp8: config.fp8,
            qat: self.qat.cloned(),
            optimizer: Some(HostOptimizer { options: &config.optimizer, state: self.optimizer }),
            ema: self.ema,
            adapters: adapters.map(|options| HostAdapters { list: self.adapters, options }),
            ..RunnerBuilder::new(self.program.clone(), self.parameters)
        };
        builder.build(device)
    }
}

/// Receives the timing of each piece of work of a batch.
pub(super) type TimingCallback<'a> = dyn FnMut(&TrainingBatch, Timed) + 'a;

/// Returns the only micro-batch of the next step and its weight; `None` if there is none.
pub(super) type NextBatch<'a> = dyn FnOnce() -> Option<(&'a LoadedBatch, f64)> + 'a;

/// Observers of a step: of outputs and gradients, which are copied back for it, or else of timings; and host work
/// that overlaps with the device: a callback, and the batch to plan next.
#[derive(Default)]
pub(super) struct StepObservers<'a> {
    pub(super) outputs: Option<&'a mut OutputStatistics>,
    pub(super) gradients: Option<&'a mut Gradients<f32>>,
    pub(super) timings: Option<&'a mut TimingCallback<'a>>,
    pub(super) host_work: Option<&'a mut dyn FnMut()>,
    pub(super) next: Option<Box<NextBatch<'a>>>,
}

/// A device, and the state that a run keeps with it.
pub(super) struct DeviceTrainer {
    runner: DeviceRunner,
    loss: Objective,
    /// Loss scaling for fp16 gradients.
    pub(super) grad_scaler: Option<GradScaler>,
    /// The state that only the device keeps.
    pub(super) device_tables: Option<DeviceTables>,
}

/// Tables of a checkpoint that only a device keeps.
pub(super) struct DeviceTables(Vec<(String, TableData)>);

impl Checkpointed for DeviceTables {
    fn prefix(&self) -> &'static str {
        "fp8."
    }

    fn tables(&self) -> Vec<(String, TableView<'_>)> {
        self.0.iter().map(|(name, data)| (name.clone(), data.view())).collect()
    }

    fn take(&mut self, tables: &Tables) -> Result<()> {
        self.0.iter_mut().for_each(|(name, data)| fill(data, tables, name));
        Ok(())
    }
}

/// Returns the precision that a config names.
fn precision(config: &RunConfig) -> Result<Precision> {
    match config.precision.as_str() {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        "fp16" => Ok(Precision::Fp16),
        other => Err(unknown("precision", "precision", other, &["f32", "bf16", "fp16"])),
    }
}

/// Opens the device that a config names; `None` for the CPU.
pub(super) fn open(start: &DeviceArguments<'_>) -> Result<Option<DeviceRunner>> {
    let precision = precision(start.config)?;
    if start.config.fp8 && (start.config.device.as_str(), precision) != ("cuda", Precision::Bf16) {
        let message = "requires device = \"cuda\" and precision = \"bf16\"; set both, or remove it";
        return Err(Error::argument("fp8", message));
    }
    match start.config.device.as_str() {
        "cpu" if precision == Precision::F32 => Ok(None),
        "cpu" => Err(Error::argument(
            "precision",
            "only f32 is supported on the CPU; remove this setting, or set device = \"cuda\"",
        )),
        "cuda" => cuda(start).map(Some),
        other => Err(unknown("device", "device", other, &["cpu", "cuda"])),
    }
}

#[cfg(feature = "cuda")]
fn cuda(start: &DeviceArguments<'_>) -> Result<DeviceRunner> {
    start.on(Box::new(siskin_cuda::CudaDevice::open(0)?))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &DeviceArguments<'_>) -> Result<DeviceRunner> {
    let message = "built without CUDA support; rebuild with --features cuda, or set device = \"cpu\" (for \
                   `siskin eval`: --device cpu)";
    Err(Error::unsupported("device", message))
}

impl DeviceTrainer {
    /// Creates the state of a run on a device.
    pub(super) fn new(config: &RunConfig, runner: DeviceRunner) -> Result<Self> {
        let loss = Objective::named(&config.loss)?;
        let halves = precision(config)? == Precision::Fp16;
        let scaler = match (&config.grad_scaler, halves) {
            (Some(_), false) => {
                let message = "requires precision = \"fp16\"; remove the section";
                return Err(Error::argument("grad_scaler", message));
            }
            (settings, _) => {
                let settings = settings.clone().unwrap_or_default();
                halves.then(|| GradScaler::from_settings(&settings)).transpose()?
            }
        };
        let own = runner.device_tables();
        let kept = (!own.is_empty()).then_some(DeviceTables(own));
        Ok(Self { runner, loss, grad_scaler: scaler, device_tables: kept })
    }

    /// Returns the bytes that the batch of a step takes besides the weights: activations, and scratch memory of
    /// operations.
    pub(super) fn memory(&self, step: &LoadedBatch) -> Result<BatchBytes> {
        let step = &*pad_output_rows(step);
        self.runner.memory(&step.batch, &self.loss, &step.targets)
    }

    /// Returns the bytes of all tensors, and of their gradients.
    pub(super) fn resident_bytes(&self) -> WeightBytes {
        self.runner.resident_bytes()
    }

    /// Returns the free bytes of the device, if it reports them.
    pub(super) fn free_bytes(&self) -> Result<Option<usize>> {
        self.runner.free_bytes()
    }

    /// Returns the FLOP/s that the matmuls of the device reach; `None` if it is emulated on the CPU.
    pub(super) fn peak_flops(&mut self) -> Result<Option<f64>> {
        self.runner.peak_flops()
    }

    /// Computes the loss of a batch and its gradients, with `factor` on the loss. The state is restored afterwards.
    pub(super) fn pass(
        &mut self,
        step: &LoadedBatch,
        factor: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<LossSum> {
        self.runner.dry_run(&step.batch, &self.loss, &step.targets, factor, gradients)
    }

    /// Runs one step over some micro-batches; returns the loss and the state of the gradient.
    pub(super) fn step(
        &mut self,
        steps: &[LoadedBatch],
        weight: f64,
        update: UpdateOptions,
        observers: StepObservers<'_>,
        recorder: Option<&Recorder>,
    ) -> Result<(LossSum, OptimizerResult)> {
        let scale = self.scale();
        let StepObservers { mut outputs, gradients, mut timings, host_work, next } = observers;
        for step in steps {
            let step = &*pad_output_rows(step);
            let mut record = |node: usize, numbers: &[f32]| {
                outputs.iter_mut().for_each(|outputs| outputs.add(node, numbers));
            };
            let mut report = |timed: Timed| {
                timings.iter_mut().for_each(|callback| callback(&step.batch, timed));
            };
            let observer = match (gradients.is_some(), recorder.is_some()) {
                (true, _) => StepObserver::Outputs(&mut record),
                (_, true) => StepObserver::Times(&mut report),
                _ => StepObserver::None,
            };
            self.runner.run_observed(&step.batch, &self.loss, &step.targets, scale / weight, observer)?;
        }
        if let Some(host_work) = host_work {
            host_work();
        }
        if let Some((next, weight)) = next.and_then(|next| next()).filter(|(_, weight)| *weight > 0.0) {
            let next = &*pad_output_rows(next);
            // An error is one of the next step, which plans the batch again.
            let _ = self.runner.prepare(&next.batch, &self.loss, &next.targets, scale / weight);
        }
        if let Some(gradients) = gradients {
            self.runner.gradients(gradients)?;
            gradients.list.iter_mut().flatten().flatten().for_each(|number| *number /= scale as f32);
        }
        // One synchronization per step, at the end. A non-finite loss has non-finite gradients, so the weights do not
        // change.
        let result = timed(recorder, "optimizer", ProfiledThread::Steps, || {
            self.runner.step(update.learning_rate, scale, update.max_grad_norm)
        })?;
        let sum = finite(self.runner.take_sum()?)?;
        let failed = match &mut self.grad_scaler {
            Some(scaler) => {
                scaler.update(result.finite);
                scaler.is_below_minimum()
            }
            None => !result.finite,
        };
        match failed {
            true => {
                Err(Error::new(ErrorKind::Numeric, "gradient", "NaN or infinity; use a lower learning rate"))
            }
            false => Ok((sum, result)),
        }
    }

    /// Returns the loss scale of the next step; 1 without loss scaling.
    pub(super) fn scale(&self) -> f64 {
        self.grad_scaler.as_ref().map_or(1.0, GradScaler::scale)
    }

    /// Repeats a step with observers and returns the error for the first NaN or infinity; `None` if all values are
    /// finite.
    pub(super) fn find_non_finite(
        &mut self,
        steps: &[LoadedBatch],
        factor: f64,
        program: &Program,
        gradients: &mut Gradients<f32>,
        parameters: &Parameters<f32>,
    ) -> Result<Option<Error>> {
        for step in steps {
            let mut found = None;
            let mut find = |node: usize, numbers: &[f32]| {
                let value = numbers.iter().find(|number| !number.is_finite());
                found = found.take().or(value.map(|number| (node, *number)));
            };
            self.runner.run_observed(
                &step.batch,
                &self.loss,
                &step.targets,
                factor,
                StepObserver::Outputs(&mut find),
            )?;
            if let Some((node, number)) = found {
                let message =
                    format!("{} produced {number:?}; use a lower learning rate", program.title(node));
                return Ok(Some(Error::new(ErrorKind::Numeric, "loss", message)));
            }
        }
        self.runner.gradients(gradients)?;
        Ok(GradientNorm::of(gradients).error(parameters))
    }

    /// Returns the validation loss, with the averaged weights if weights are averaged; `None` without validation
    /// data.
    pub(super) fn evaluate(&mut self, config: &RunConfig, setup: &RunSetup) -> Result<Option<LossSum>> {
        let Some(loader) = setup.validation_batches(config)? else { return Ok(None) };
        self.runner.swap_ema()?;
        for step in loader {
            let step = step?;
            self.runner.evaluate(&step.batch, &self.loss, &step.targets)?;
        }
        self.runner.swap_ema()?;
        finite(self.runner.take_sum()?).map(Some)
    }

    /// Copies parameters, and the states of optimizer and average, from the device.
    pub(super) fn copy_from_device(
        &mut self,
        parameters: &mut Parameters<f32>,
        optimizer: &mut Optimizer,
        average: Option<&mut ExponentialMovingAverage>,
    ) -> Result<()> {
        let mut tables = state::save(&states(optimizer, average.as_deref()));
        self.runner.copy_from_device(parameters, &mut tables)?;
        if let Some(kept) = &mut self.device_tables {
            state::restore(kept, &tables)?;
        }
        state::restore(optimizer, &tables)?;
        average.map_or(Ok(()), |average| state::restore(average, &tables))
    }

    /// Copies parameters, and the states of optimizer and average, to the device, and the state that only the device
    /// keeps, if the tables of a checkpoint have it.
    pub(super) fn copy_to_device(
        &mut self,
        parameters: &Parameters<f32>,
        optimizer: &Optimizer,
        average: Option<&ExponentialMovingAverage>,
        tables: &Tables,
    ) -> Result<()> {
        let mut all = state::save(&states(optimizer, average));
        if let Some(kept) = self
            .device_tables
            .as_mut()
            .filter(|kept| kept.0.iter().all(|(name, _)| tables.contains_key(name)))
        {
            state::restore(kept, tables)?;
            all.extend(state::save(&[&*kept]));
        }
        self.runner.copy_to_device(parameters, &all)
    }
}

/// Returns the batch with its output rows padded to one of few counts, so that batches of masked tokens give the same
/// command lists. The added rows have weight zero.
fn pad_output_rows(step: &LoadedBatch) -> Cow<'_, LoadedBatch> {
    let texts = |batch: &'_ TrainingBatch| batch.decoder.output_rows.is_empty();
    let side = if texts(&step.batch) { &step.batch.encoder } else { &step.batch.decoder };
    let (count, rows) = (side.output_rows.len(), side.rows.len());
    let Targets { ids, weights, numbers } = &step.targets;
    let even = count.next_multiple_of((count.next_power_of_two() / PADDING_BUCKETS).max(1)).min(rows);
    if even == count || count == 0 || [ids.len(), weights.len()] != [count; 2] {
        return Cow::Borrowed(step);
    }
    let mut step = step.clone();
    let columns = numbers.len() / count;
    let side = if texts(&step.batch) { &mut step.batch.encoder } else { &mut step.batch.decoder };
    let mut free = vec![true; rows];
    side.output_rows.iter().for_each(|&row| free[row] = false);
    side.output_rows.extend((0..rows).filter(|&row| free[row]).take(even - count));
    let even = side.output_rows.len();
    step.targets.ids.resize(even, 0);
    step.targets.weights.resize(even, 0.0);
    step.targets.numbers.resize(even * columns, 0.0);
    Cow::Owned(step)
}

/// Rejects NaN and infinite losses.
fn finite(sum: LossSum) -> Result<LossSum> {
    match sum.loss.is_finite() {
        true => Ok(sum),
        false => Err(Error::new(ErrorKind::Numeric, "loss", "NaN or infinity; use a lower learning rate")),
    }
}

fn states<'a>(
    optimizer: &'a Optimizer,
    average: Option<&'a ExponentialMovingAverage>,
) -> Vec<&'a dyn Checkpointed> {
    let average = average.map(|average| average as &dyn Checkpointed);
    [optimizer as &dyn Checkpointed].into_iter().chain(average).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Position;

    #[test]
    fn padding_output_rows_have_no_weight() {
        let step = |count: usize, rows: u32| {
            let mut batch = TrainingBatch::default();
            batch.encoder.push(&(0..rows).collect::<Vec<_>>(), &[]);
            batch.encoder.output_rows = (0..count).map(|index| 2 * index).collect();
            let targets =
                Targets { ids: vec![3; count], weights: vec![1.0; count], numbers: vec![0.5; 2 * count] };
            LoadedBatch { batch, targets, examples: vec![0], next: Position::default() }
        };
        for (count, rows, want) in
            [(100, 300, 112), (97, 300, 112), (128, 300, 128), (9, 18, 10), (9, 17, 10)]
        {
            let step = step(count, rows);
            let even = pad_output_rows(&step);
            let wanted = &even.batch.encoder.output_rows;
            assert_eq!(wanted.len(), want, "{count} of {rows}");
            assert_eq!(wanted[..count], step.batch.encoder.output_rows[..]);
            let mut once = wanted.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), want, "no output row is duplicated");
            let sum: f32 = even.targets.weights.iter().sum();
            assert_eq!(
                (sum, even.targets.ids.len(), even.targets.numbers.len()),
                (count as f32, want, 2 * want)
            );
        }
        let mut other = step(100, 300);
        other.targets.weights.clear();
        assert_eq!(
            pad_output_rows(&other).batch.encoder.output_rows.len(),
            100,
            "what is not row by row stays"
        );
    }
}
