//! A device as a run sees it: what it trains, and what of it is kept.

use siskin::Result;

use super::device::Device;
use super::loss::Objective;
use super::optimiser::Judged;
use super::runner::{Runner, Watch};
use crate::batch::Batch;
use crate::loss::{Sum, Targets};
use crate::parameters::{Gradients, Parameters};
use crate::state::{Data, Tables};

/// Weights and an optimiser that are elsewhere than in the memory of the process.
pub trait Engine {
    /// Runs a batch forth and back: see [`Runner::run_watched`].
    ///
    /// # Errors
    /// Where the batch does not fit, or the device fails.
    fn run(
        &mut self,
        batch: &Batch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        watch: Watch<'_>,
    ) -> Result<()>;

    /// Runs a batch forth and back to see how far off it is, and its gradients; all is as before then: see
    /// [`Runner::try_out`].
    ///
    /// # Errors
    /// Where the batch does not fit, or the device fails.
    fn try_out(
        &mut self,
        batch: &Batch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<Sum>;

    /// Gives `gradients` those of the device.
    ///
    /// # Errors
    /// Where the device fails.
    fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()>;

    /// Runs a batch forth alone.
    ///
    /// # Errors
    /// Where the batch does not fit, or the device fails.
    fn evaluate(&mut self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<()>;

    /// How far off all batches were since this was last asked.
    ///
    /// # Errors
    /// Where the device fails.
    fn take_sum(&mut self) -> Result<Sum>;

    /// Changes the weights: see [`Runner::step`].
    ///
    /// # Errors
    /// Where the device fails.
    fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<Judged>;

    /// Puts the average in the place of the weights, or takes it away again: see [`Runner::swap`].
    ///
    /// # Errors
    /// Where the device fails.
    fn swap(&mut self) -> Result<()>;

    /// Gives `parameters`, and the tables of optimiser and average, the numbers of the device.
    ///
    /// # Errors
    /// Where the device fails.
    fn fetch(&mut self, parameters: &mut Parameters<f32>, tables: &mut Tables) -> Result<()>;

    /// Gives the device the numbers of `parameters`, and of the tables of optimiser and average.
    ///
    /// # Errors
    /// Where the device fails.
    fn put(&mut self, parameters: &Parameters<f32>, tables: &Tables) -> Result<()>;

    /// The tables of a checkpoint that a device alone keeps, as they are before the first step.
    fn own_tables(&self) -> Vec<(String, Data)>;

    /// The bytes that a batch takes beside the weights: of what is computed, and for the work of operations.
    ///
    /// # Errors
    /// Where the batch does not fit.
    fn memory(&self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<[usize; 2]>;

    /// The bytes of all tensors, and of their gradients.
    fn held(&self) -> [usize; 2];

    /// The bytes of the device that nothing has yet; none where that is as much as the process gets.
    ///
    /// # Errors
    /// Where the device fails.
    fn free_bytes(&self) -> Result<Option<usize>>;

    /// Multiplications and additions in a second that the device's own products reach, in the precision at hand; none
    /// where it is carried out by the processor.
    ///
    /// # Errors
    /// Where the device fails, or has no room for a product.
    fn ceiling(&mut self) -> Result<Option<f64>>;
}

impl<D: Device> Engine for Runner<D> {
    fn run(
        &mut self,
        batch: &Batch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        watch: Watch<'_>,
    ) -> Result<()> {
        self.run_watched(batch, loss, targets, scale, watch)
    }

    fn try_out(
        &mut self,
        batch: &Batch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<Sum> {
        Runner::try_out(self, batch, loss, targets, scale, gradients)
    }

    fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()> {
        Runner::gradients(self, gradients)
    }

    fn evaluate(&mut self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<()> {
        Runner::evaluate(self, batch, loss, targets)
    }

    fn take_sum(&mut self) -> Result<Sum> {
        Runner::take_sum(self)
    }

    fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<Judged> {
        Runner::step(self, rate, scale, limit)
    }

    fn swap(&mut self) -> Result<()> {
        Runner::swap(self)
    }

    fn fetch(&mut self, parameters: &mut Parameters<f32>, tables: &mut Tables) -> Result<()> {
        self.read(parameters)?;
        self.read_tables(tables)
    }

    fn put(&mut self, parameters: &Parameters<f32>, tables: &Tables) -> Result<()> {
        self.write(parameters)?;
        self.write_tables(tables)
    }

    fn own_tables(&self) -> Vec<(String, Data)> {
        Runner::own_tables(self)
    }

    fn memory(&self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<[usize; 2]> {
        Ok(self.plan(batch, loss, targets)?.1)
    }

    fn held(&self) -> [usize; 2] {
        Runner::held(self)
    }

    fn free_bytes(&self) -> Result<Option<usize>> {
        Runner::free_bytes(self)
    }

    fn ceiling(&mut self) -> Result<Option<f64>> {
        Runner::ceiling(self)
    }
}
