//! A training device as a run uses it: what it trains, and what of it is checkpointed.

use siskin::Result;
use siskin_device::Device;

use super::loss::Objective;
use super::optimizer::OptimizerResult;
use super::runner::{DeviceRunner, StepObserver};
use crate::batch::TrainingBatch;
use crate::loss::{LossSum, Targets};
use crate::parameters::{Gradients, Parameters};
use crate::state::{TableData, Tables};

/// Weights and an optimizer outside the memory of the process.
pub trait DeviceTraining {
    /// Runs a batch forward and backward: see `DeviceRunner::run_observing`.
    ///
    /// # Errors
    /// If the batch does not fit, or the device fails.
    fn run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        observer: StepObserver<'_>,
    ) -> Result<()>;

    /// Plans a batch that the next call of [`Self::run`] may run: see [`DeviceRunner::prepare`].
    ///
    /// # Errors
    /// If the batch does not fit.
    fn prepare(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
    ) -> Result<()>;

    /// Computes the loss of a batch and its gradients, and restores the state afterwards: see
    /// [`DeviceRunner::dry_run`].
    ///
    /// # Errors
    /// If the batch does not fit, or the device fails.
    fn dry_run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<LossSum>;

    /// Copies the gradients of the device to `gradients`.
    ///
    /// # Errors
    /// If the device fails.
    fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()>;

    /// Runs a batch forward only.
    ///
    /// # Errors
    /// If the batch does not fit, or the device fails.
    fn evaluate(&mut self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<()>;

    /// Returns and resets the loss summed since the last call.
    ///
    /// # Errors
    /// If the device fails.
    fn take_sum(&mut self) -> Result<LossSum>;

    /// Applies the optimizer: see [`DeviceRunner::step`].
    ///
    /// # Errors
    /// If the device fails.
    fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<OptimizerResult>;

    /// Swaps the averaged and the current weights.
    ///
    /// # Errors
    /// If the device fails.
    fn swap_ema(&mut self) -> Result<()>;

    /// Copies the weights, and the tables of optimizer and average, from the device to `parameters` and `tables`.
    ///
    /// # Errors
    /// If the device fails.
    fn copy_from_device(&mut self, parameters: &mut Parameters<f32>, tables: &mut Tables) -> Result<()>;

    /// Copies `parameters`, and the tables of optimizer and average, to the device.
    ///
    /// # Errors
    /// If the device fails.
    fn copy_to_device(&mut self, parameters: &Parameters<f32>, tables: &Tables) -> Result<()>;

    /// Returns the tables of a checkpoint that only a device keeps, as they are before the first step.
    fn device_tables(&self) -> Vec<(String, TableData)>;

    /// Returns the bytes that a batch takes besides the weights: activations, and scratch memory of operations.
    ///
    /// # Errors
    /// If the batch does not fit.
    fn memory(&self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<[usize; 2]>;

    /// Returns the bytes of all tensors, and of their gradients.
    fn resident_bytes(&self) -> [usize; 2];

    /// Returns the free bytes of the device; `None` if only the memory of the process limits them.
    ///
    /// # Errors
    /// If the device fails.
    fn free_bytes(&self) -> Result<Option<usize>>;

    /// Returns the FLOP/s that the device's matmuls reach in the current precision; `None` if it is emulated on the
    /// CPU.
    ///
    /// # Errors
    /// If the device fails, or has no memory for a matmul.
    fn peak_flops(&mut self) -> Result<Option<f64>>;
}

impl<D: Device> DeviceTraining for DeviceRunner<D> {
    fn run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        observer: StepObserver<'_>,
    ) -> Result<()> {
        self.run_observed(batch, loss, targets, scale, observer)
    }

    fn prepare(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
    ) -> Result<()> {
        DeviceRunner::prepare(self, batch, loss, targets, scale)
    }

    fn dry_run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<LossSum> {
        DeviceRunner::dry_run(self, batch, loss, targets, scale, gradients)
    }

    fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()> {
        DeviceRunner::gradients(self, gradients)
    }

    fn evaluate(&mut self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<()> {
        DeviceRunner::evaluate(self, batch, loss, targets)
    }

    fn take_sum(&mut self) -> Result<LossSum> {
        DeviceRunner::take_sum(self)
    }

    fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<OptimizerResult> {
        DeviceRunner::step(self, rate, scale, limit)
    }

    fn swap_ema(&mut self) -> Result<()> {
        DeviceRunner::swap_ema(self)
    }

    fn copy_from_device(&mut self, parameters: &mut Parameters<f32>, tables: &mut Tables) -> Result<()> {
        self.read(parameters)?;
        self.read_tables(tables)
    }

    fn copy_to_device(&mut self, parameters: &Parameters<f32>, tables: &Tables) -> Result<()> {
        self.write(parameters)?;
        self.write_tables(tables)
    }

    fn device_tables(&self) -> Vec<(String, TableData)> {
        DeviceRunner::device_tables(self)
    }

    fn memory(&self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<[usize; 2]> {
        Ok(self.plan(batch, loss, targets)?.1)
    }

    fn resident_bytes(&self) -> [usize; 2] {
        DeviceRunner::resident_bytes(self)
    }

    fn free_bytes(&self) -> Result<Option<usize>> {
        DeviceRunner::free_bytes(self)
    }

    fn peak_flops(&mut self) -> Result<Option<f64>> {
        DeviceRunner::peak_flops(self)
    }
}
