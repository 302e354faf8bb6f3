//! Building a runner.

use siskin_cuda::ops::{self, KernelLimits};
use siskin_device::{Device, Precision};
use siskin_format::{Error, Result};

use super::memory::with_advice;
use super::updates::{Fp8Update, WeightUpdates};
use super::{DeviceRunner, PlanCache, SUMS, Schedules, StepMemory};
use crate::cuda::adapters::{HostAdapters, row_norms_commands};
use crate::cuda::ema::DeviceEma;
use crate::cuda::fp8::Fp8Matmuls;
use crate::cuda::optimizer::{DeviceOptimizer, HostOptimizer};
use crate::cuda::routers::RouterLosses;
use crate::cuda::weights::DeviceWeights;
use crate::ema::ExponentialMovingAverage;
use crate::parameters::Parameters;
use crate::program::{Program, Recompute, Schedule};
use crate::qat::QuantizationAware;
use crate::runner::RouterOptions;

/// What a [`DeviceRunner`] trains, and how. All fields but the first two are optional:
///
/// ```
/// # use siskin_trainer::cuda::{DeviceRunner, RunnerBuilder};
/// # use siskin_trainer::{Parameters, Program};
/// use siskin_device::{Device, Precision};
///
/// # fn build(gpu: Box<dyn Device>, program: Program, parameters: &Parameters<f32>) -> siskin_format::Result<DeviceRunner> {
/// RunnerBuilder { precision: Precision::Bf16, fp8: true, ..RunnerBuilder::new(program, parameters) }.build(gpu)
/// # }
/// ```
pub struct RunnerBuilder<'a> {
    /// The program.
    pub program: Program,
    /// Its initial parameters.
    pub parameters: &'a Parameters<f32>,
    /// Which parameters are trained, by index; all by default.
    pub trained: Vec<bool>,
    /// The dtype of activations.
    pub precision: Precision,
    /// Activation checkpointing.
    pub recompute: Recompute,
    /// The auxiliary losses of routers.
    pub routers: RouterOptions,
    /// Whether the matmuls of feed-forward layers and the last one use fp8, where rows and columns are multiples of 16.
    pub fp8: bool,
    /// Which weights matmuls read as the exported file will hold them (quantization-aware training). The codecs that
    /// write model files round them whenever they change; `parameters` are rounded by the same codecs.
    pub qat: Option<QuantizationAware>,
    /// The optimizer; a runner without one only computes gradients.
    pub optimizer: Option<HostOptimizer<'a>>,
    /// The moving average of the weights, as on the CPU; needs an optimizer.
    pub ema: Option<&'a ExponentialMovingAverage>,
    /// The adapters, if any are trained.
    pub adapters: Option<HostAdapters<'a>>,
}

impl<'a> RunnerBuilder<'a> {
    /// Trains all parameters in f32, with no option enabled.
    pub fn new(program: Program, parameters: &'a Parameters<f32>) -> Self {
        Self {
            program,
            parameters,
            trained: vec![true; parameters.list.len()],
            precision: Precision::default(),
            recompute: Recompute::None,
            routers: RouterOptions::default(),
            fp8: false,
            qat: None,
            optimizer: None,
            ema: None,
            adapters: None,
        }
    }

    /// Copies the parameters to a device, and allocates what the options need.
    ///
    /// # Errors
    /// If an operation has no kernel, the device has no fp8 matmuls but they are required, an average has no optimizer,
    /// or the device is out of memory.
    pub fn build(self, device: Box<dyn Device>) -> Result<DeviceRunner> {
        self.build_on(device).map_err(with_advice)
    }

    fn build_on(self, mut device: Box<dyn Device>) -> Result<DeviceRunner> {
        let capabilities = device.capabilities();
        let limits = KernelLimits { precision: self.precision, shared_memory: capabilities.shared_memory };
        ops::check(&self.program.graph, limits)?;
        if self.fp8 && !capabilities.fp8 {
            return Err(Error::unsupported("fp8", "this GPU has no fp8 matmuls; set fp8 = false"));
        }
        let schedules = Schedules {
            training: Schedule::new(&self.program, self.recompute, |weight| self.trained[weight])?,
            evaluation: Schedule::forward(&self.program)?,
        };
        let products = self.program.takes_packed();
        let trains = |weight: usize| self.trained[weight];
        let mut weights =
            DeviceWeights::new(device.as_mut(), self.precision, self.parameters, &products, trains)?;
        let sums = device.allocate(SUMS)?;
        device.write(sums, &[0; SUMS])?;
        let routers = RouterLosses::new(device.as_mut(), &self.program, self.routers)?;
        if self.fp8 {
            weights.fp8 = Some(Fp8Matmuls::new(device.as_mut(), &self.program)?);
        }
        let updates = self.updates(device.as_mut(), &weights)?;
        Ok(DeviceRunner {
            device,
            precision: self.precision,
            program: self.program,
            schedules,
            plans: PlanCache::default(),
            fuses_gelu: self.recompute == Recompute::None,
            weights,
            areas: StepMemory::default(),
            sums,
            routers,
            updates,
        })
    }

    /// Creates the updates, and brings what is derived from the weights up to date.
    fn updates(&self, device: &mut dyn Device, weights: &DeviceWeights) -> Result<WeightUpdates> {
        let update = |fp8: &Fp8Matmuls| Fp8Update::new(fp8.amax_update_commands(self.precision));
        let mut updates = WeightUpdates {
            fp8: weights.fp8.as_ref().map(update),
            qat: self.qat.clone(),
            ..WeightUpdates::default()
        };
        updates.round(device, weights, &self.program)?;
        if let Some(host) = self.optimizer {
            let optimizer = DeviceOptimizer::new(device, self.precision, &self.program, weights, host)?;
            updates.optimizer = Some(optimizer);
        }
        if let Some(ema) = self.ema {
            let Some(optimizer) = &updates.optimizer else {
                return Err(Error::argument("average", "needs an optimizer on the device"));
            };
            let step = optimizer.place();
            updates.ema = Some(DeviceEma::new(device, self.precision, weights, ema, step)?);
        }
        if let Some(adapters) = self.adapters {
            let derived = row_norms_commands(device, self.precision, &self.program, weights, adapters)?;
            updates.derived = Some(derived);
            updates.refresh(device, weights, &self.program)?;
        }
        Ok(updates)
    }
}
