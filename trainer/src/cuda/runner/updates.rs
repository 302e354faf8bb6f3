//! What follows the gradients of a step: the optimizer, and all that is derived from the weights.

use siskin_device::{CommandList, Device};
use siskin_format::{Error, Result};

use crate::cuda::ema::DeviceEma;
use crate::cuda::optimizer::{DeviceOptimizer, OptimizerResult};
use crate::cuda::weights::DeviceWeights;
use crate::optimizer::StepArguments;
use crate::program::Program;
use crate::qat::QuantizationAware;
use crate::state::Tables;

/// The updates of a runner. Those that are `None` are disabled.
#[derive(Default)]
pub(super) struct WeightUpdates {
    pub(super) optimizer: Option<DeviceOptimizer>,
    pub(super) ema: Option<DeviceEma>,
    pub(super) fp8: Option<Fp8Update>,
    /// Updates what is derived from adapters.
    pub(super) derived: Option<CommandList>,
    /// Which weights matmuls read in rounded form (quantization-aware training).
    pub(super) qat: Option<QuantizationAware>,
}

/// The update of the fp8 amax history after each step.
#[derive(Clone)]
pub(super) struct Fp8Update {
    pub(super) commands: CommandList,
    /// Whether the history is filled: a checkpoint was loaded, or a batch was run.
    pub(super) has_history: bool,
}

impl Fp8Update {
    /// The update of an empty history.
    pub(super) fn new(commands: CommandList) -> Self {
        Self { commands, has_history: false }
    }
}

impl WeightUpdates {
    /// Applies the optimizer and all that follows it, but rounding.
    pub(super) fn step(
        &mut self,
        device: &mut dyn Device,
        arguments: StepArguments,
        limit: Option<f64>,
    ) -> Result<OptimizerResult> {
        let Some(optimizer) = &mut self.optimizer else {
            return Err(Error::argument("optimizer", "not set on the device"));
        };
        let (ema_commands, ema_weight) = match &self.ema {
            Some(ema) => (Some(ema.update_commands()), ema.update_weight()),
            None => (None, 0.0),
        };
        let fp8_commands = self.fp8.as_ref().map(|fp8| &fp8.commands);
        let after: Vec<&CommandList> = self.derived.iter().chain(ema_commands).chain(fp8_commands).collect();
        let result = optimizer.step(device, arguments, limit, ema_weight, &after)?;
        if let Some(ema) = self.ema.as_mut().filter(|_| result.finite) {
            ema.count();
        }
        Ok(result)
    }

    /// Updates what is derived from the weights, as after each step.
    pub(super) fn refresh(
        &self,
        device: &mut dyn Device,
        weights: &DeviceWeights,
        program: &Program,
    ) -> Result<()> {
        self.derived.as_ref().map_or(Ok(()), |commands| device.run(commands))?;
        self.round(device, weights, program)
    }

    /// Rounds the weights that matmuls read; no-op without quantization-aware training.
    pub(super) fn round(
        &self,
        device: &mut dyn Device,
        weights: &DeviceWeights,
        program: &Program,
    ) -> Result<()> {
        self.qat.as_ref().map_or(Ok(()), |rounding| weights.round(device, rounding, program))
    }

    /// Copies the states of optimizer, fp8 scaling and average into the tables of a checkpoint.
    pub(super) fn read(
        &self,
        device: &mut dyn Device,
        weights: &DeviceWeights,
        tables: &mut Tables,
    ) -> Result<()> {
        if let Some(optimizer) = &self.optimizer {
            optimizer.read(device, tables)?;
        }
        if let Some(fp8) = &weights.fp8 {
            fp8.read(device, tables)?;
        }
        self.ema.as_ref().map_or(Ok(()), |ema| ema.read(device, tables))
    }

    /// Loads them from a checkpoint.
    pub(super) fn write(
        &mut self,
        device: &mut dyn Device,
        weights: &DeviceWeights,
        tables: &Tables,
    ) -> Result<()> {
        if let Some(optimizer) = &mut self.optimizer {
            optimizer.write(device, tables)?;
        }
        if let (Some(fp8), Some(update)) = (&weights.fp8, &mut self.fp8) {
            update.has_history = fp8.write(device, tables)?;
        }
        self.ema.as_mut().map_or(Ok(()), |ema| ema.write(device, tables))
    }
}
