//! Builds and executes the command list of a program's schedule on a device.

mod head;
mod layout;
mod lower;
mod observed;
mod prepared;
mod resources;
mod timed;

use std::collections::HashSet;

use siskin::{Error, Result};
use siskin_device::{CommandList, Device, DevicePtr, Precision};

use lower::PassBuilder;
use observed::ObservedOutput;
pub use observed::OutputObserver;
use prepared::PreparedBatch;
use timed::StepEnd;
pub use timed::{Timed, TimingObserver};

use super::adapters;
use super::batch_tables::{BatchTables, ListCache};
use super::ema::DeviceEma;
use super::fp8::Fp8Matmuls;
use super::loss::Objective;
use super::op::{self, CommandBuilder, OpScratch};
use super::optimizer::{DeviceOptimizer, OptimizerResult};
use super::routers::RouterLosses;
use super::weights::DeviceWeights;
use crate::adapters::{AdapterOptions, TrainedAdapter};
use crate::batch::TrainingBatch;
use crate::ema;
use crate::loss::{LossSum, Targets};
use crate::optimizer::{Optimizer, OptimizerOptions, StepArguments};
use crate::parameters::{Gradients, Parameters};
use crate::program::{BufferLayout, Layouts, Program, Recompute, Schedule, ScheduleStep};
use crate::qat::QuantizationAware;
use crate::runner::{RouterOptions, check};
use crate::state::{TableData, Tables};

/// Bytes of the sums that accumulate over batches.
const SUMS: usize = 32;

/// Device memory that grows on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct GrowableMemory {
    place: DevicePtr,
    size: usize,
}

impl GrowableMemory {
    /// Grows to `bytes` bytes; returns true if it was reallocated.
    fn grow<D: Device>(&mut self, device: &mut D, bytes: usize) -> Result<bool> {
        if bytes <= self.size {
            return Ok(false);
        }
        self.free(device)?;
        *self = Self { place: device.allocate(bytes)?, size: bytes };
        Ok(true)
    }

    /// Frees its memory.
    fn free<D: Device>(&mut self, device: &mut D) -> Result<()> {
        match std::mem::take(self) {
            Self { size: 0, .. } => Ok(()),
            Self { place, .. } => device.free(place),
        }
    }
}

/// The memory of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StepMemory {
    /// Activations, their gradients, and what forward keeps for backward.
    arena: GrowableMemory,
    /// Scratch memory of an operation.
    scratch: GrowableMemory,
    /// The head's buffers for a chunk of rows.
    head: GrowableMemory,
    /// Tables of the batch.
    tables: GrowableMemory,
}

impl StepMemory {
    /// Grows the areas to these sizes, in order; returns true if one was reallocated. If an allocation fails, all are
    /// freed, since the next batch may need less.
    fn grow<D: Device>(&mut self, device: &mut D, bytes: [usize; 4]) -> Result<bool> {
        let grow =
            |moved: bool, (area, bytes): (&mut GrowableMemory, usize)| Ok(moved | area.grow(device, bytes)?);
        let moved = self.all().into_iter().zip(bytes).try_fold(false, grow);
        if moved.is_err() {
            let freed = self.all().into_iter().try_for_each(|area| area.free(device));
            return moved.and_then(|moved| freed.map(|()| moved));
        }
        moved
    }

    fn all(&mut self) -> [&mut GrowableMemory; 4] {
        [&mut self.arena, &mut self.scratch, &mut self.head, &mut self.tables]
    }
}

/// The execution plan of a batch.
struct BatchPlan {
    commands: CommandList,
    tables: Vec<u8>,
    /// Bytes of the areas, in order.
    bytes: [usize; 4],
    /// The observed outputs; empty without an observer.
    marks: Vec<ObservedOutput>,
    /// Where the commands of each step of the schedule end.
    bounds: Vec<StepEnd>,
}

/// The observer of a batch.
pub enum StepObserver<'a> {
    /// No observer: the command list may be a captured CUDA graph.
    None,
    /// Receives the output of each node, bit-identical to an unobserved run.
    Outputs(&'a mut OutputObserver<'a>),
    /// Receives the duration of each piece of work; synchronizes after each.
    Times(&'a mut TimingObserver<'a>),
}

/// The training objective.
#[derive(Clone, Copy)]
struct DeviceObjective<'a> {
    loss: &'a Objective,
    targets: &'a Targets,
    scale: f64,
}

/// A program, and its weights on a device.
pub struct DeviceRunner<D> {
    device: D,
    precision: Precision,
    program: Program,
    schedule: Schedule,
    forward: Schedule,
    /// Layouts of recent batches: forward and backward, and forward only.
    layouts: [Layouts; 2],
    /// Tables of batches with equal sequence lengths.
    list_cache: ListCache,
    /// The plan of the next batch, made while the device was busy with the one before.
    prepared: Option<PreparedBatch>,
    /// Whether GELU is fused into the matmul before it. Recomputation starts from the kept pre-activation, which is
    /// rounded, and must give the same bits.
    fuses_gelu: bool,
    weights: DeviceWeights,
    areas: StepMemory,
    /// Loss, weight, accuracy and router loss, as f64.
    sums: DevicePtr,
    routers: Option<RouterLosses>,
    optimizer: Option<DeviceOptimizer>,
    ema: Option<DeviceEma>,
    /// The command list that updates the fp8 amax history after each step, and whether the history is filled.
    amax_update: Option<CommandList>,
    has_amax_history: bool,
    /// The command list that updates what is derived from the weights.
    derived_weights: Option<CommandList>,
    /// Which weights matmuls read in rounded form (quantization-aware training).
    qat: Option<QuantizationAware>,
}

impl<D: Device> DeviceRunner<D> {
    /// Copies the weights of a program to a device; those for which `trains` returns true are trained.
    ///
    /// # Errors
    /// If an operation has no kernel, or the device is out of memory.
    pub fn new(
        mut device: D,
        precision: Precision,
        program: Program,
        recompute: Recompute,
        parameters: &Parameters<f32>,
        trains: impl Fn(usize) -> bool,
    ) -> Result<Self> {
        op::check(&program, precision, device.capabilities().shared_memory)?;
        let schedule = Schedule::new(&program, recompute, &trains)?;
        let forward = Schedule::forward(&program)?;
        let products = program.takes_packed();
        let weights = DeviceWeights::new(&mut device, precision, parameters, &products, trains)?;
        let sums = device.allocate(SUMS)?;
        device.write(sums, &[0; SUMS])?;
        Ok(Self {
            device,
            precision,
            program,
            schedule,
            forward,
            layouts: Default::default(),
            list_cache: ListCache::default(),
            prepared: None,
            fuses_gelu: recompute == Recompute::None,
            weights,
            areas: StepMemory::default(),
            sums,
            routers: None,
            optimizer: None,
            ema: None,
            amax_update: None,
            has_amax_history: false,
            derived_weights: None,
            qat: None,
        })
    }

    /// Enables the auxiliary losses of routers.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn set_router_losses(&mut self, options: RouterOptions) -> Result<()> {
        self.routers = RouterLosses::new(&mut self.device, &self.program, options)?;
        Ok(())
    }

    /// Runs a batch forward and backward: accumulates the gradients of the loss times `scale` on the device.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
    ) -> Result<()> {
        self.run_observed(batch, loss, targets, scale, StepObserver::None)
    }

    /// Like [`Self::run`], with an observer.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn run_observed(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        observer: StepObserver<'_>,
    ) -> Result<()> {
        self.forward_backward(batch, DeviceObjective { loss, targets, scale }, observer)
    }

    fn forward_backward(
        &mut self,
        batch: &TrainingBatch,
        goal: DeviceObjective<'_>,
        observer: StepObserver<'_>,
    ) -> Result<()> {
        if let Some(amax_update_commands) = self.amax_update.clone().filter(|_| !self.has_amax_history) {
            // Once to fill the amax history.
            self.pass(batch, goal, true, StepObserver::None)?;
            self.clear()?;
            self.device.run(&amax_update_commands)?;
            self.has_amax_history = true;
        }
        self.pass(batch, goal, true, observer)
    }

    /// Computes the loss of a batch and its gradients, and restores the state afterwards: gradients and sums are
    /// zero, and the amax history is unchanged.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn dry_run(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<LossSum> {
        let remembers = self.has_amax_history;
        let mut tables = Tables::default();
        if let Some(fp8) = &self.weights.fp8 {
            fp8.read(&mut self.device, &mut tables)?;
        }
        let tried = self.run(batch, loss, targets, scale).and_then(|()| {
            self.gradients(gradients)?;
            self.take_sum()
        });
        let restored = self.restore(&tables);
        self.has_amax_history = remembers;
        // The first error is returned.
        let sum = tried?;
        restored.map(|()| sum)
    }

    /// Zeroes gradients and sums, and restores the fp8 amax history.
    fn restore(&mut self, tables: &Tables) -> Result<()> {
        self.clear()?;
        if let Some(fp8) = &self.weights.fp8 {
            fp8.reset(&mut self.device)?;
            fp8.write(&mut self.device, tables)?;
        }
        Ok(())
    }

    /// Zeroes the gradients and the sums over batches.
    ///
    /// # Errors
    /// If the device fails.
    pub fn clear(&mut self) -> Result<()> {
        let mut commands = CommandList::new(self.precision);
        for weight in self.weights.list.iter().filter(|weight| weight.gradient > 0) {
            commands.clear(weight.gradient, 4 * weight.count);
        }
        commands.clear(self.sums, SUMS);
        self.device.run(&commands)
    }

    /// Enables fp8 for the matmuls of feed-forward layers and the last one, where rows and columns are multiples of
    /// 16.
    ///
    /// # Errors
    /// If the device has no fp8 matmuls or is out of memory.
    pub fn enable_fp8(&mut self) -> Result<()> {
        if !self.device.capabilities().fp8 {
            let message = "this GPU has no fp8 matmuls; set fp8 = false";
            return Err(Error::unsupported("fp8", message));
        }
        let fp8 = Fp8Matmuls::new(&mut self.device, &self.program)?;
        self.amax_update = Some(fp8.amax_update_commands(self.precision));
        self.weights.fp8 = Some(fp8);
        Ok(())
    }

    /// Runs a batch forward only.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn evaluate(&mut self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<()> {
        self.pass(batch, DeviceObjective { loss, targets, scale: 1.0 }, false, StepObserver::None)
    }

    /// Returns and resets the loss summed since the last call.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take_sum(&mut self) -> Result<LossSum> {
        let mut bytes = [0; SUMS];
        self.device.read(self.sums, &mut bytes)?;
        self.device.write(self.sums, &[0; SUMS])?;
        let number = |index: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            f64::from_le_bytes(own)
        };
        Ok(LossSum { loss: number(0), weight: number(1), correct: number(2), router_loss: number(3) })
    }

    /// Applies the optimizer, and zeroes the gradients. Gradients, which were scaled by `scale`, are clipped to the
    /// norm `limit`; if they are not finite, the weights do not change.
    ///
    /// # Errors
    /// If there is no optimizer, or the device fails.
    pub fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<OptimizerResult> {
        let Some(optimizer) = &mut self.optimizer else {
            return Err(Error::argument("optimizer", "not set on the device"));
        };
        let (ema_commands, ema_weight) = match &self.ema {
            Some(ema) => (Some(ema.update_commands()), ema.update_weight()),
            None => (None, 0.0),
        };
        let after: Vec<&CommandList> =
            self.derived_weights.iter().chain(ema_commands).chain(&self.amax_update).collect();
        let arguments = StepArguments { learning_rate: rate, grad_factor: scale };
        let judged = optimizer.step(&mut self.device, arguments, limit, (&after[..], ema_weight))?;
        if let Some(ema) = self.ema.as_mut().filter(|_| judged.finite) {
            ema.count();
        }
        self.round()?;
        Ok(judged)
    }

    /// Creates the optimizer on the device, before its first step; `own` is the same on the CPU.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn set_optimizer(&mut self, options: &OptimizerOptions, own: &Optimizer) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let stepper = DeviceOptimizer::new(device, self.precision, program, &self.weights, options, own)?;
        self.optimizer = Some(stepper);
        Ok(())
    }

    /// Enables a moving average of the weights; `own` is the same on the CPU.
    ///
    /// # Errors
    /// If there is no optimizer yet, or the device is out of memory.
    pub fn set_ema(&mut self, own: &ema::ExponentialMovingAverage) -> Result<()> {
        let Some(optimizer) = &self.optimizer else {
            return Err(Error::argument("average", "needs an optimizer on the device"));
        };
        let step = optimizer.place();
        self.ema = Some(DeviceEma::new(&mut self.device, self.precision, &self.weights, own, step)?);
        Ok(())
    }

    /// Enables the update of what is derived from adapters.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn set_adapters(&mut self, adapters: &[TrainedAdapter], options: &AdapterOptions) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let all = (adapters, options.factor());
        self.derived_weights =
            Some(adapters::row_norms_commands(device, self.precision, program, &self.weights, all)?);
        self.update_derived_weights()
    }

    /// Enables quantization-aware training: matmuls read weights as the exported file will hold them. The codecs that
    /// write model files round them whenever they change; the parameters that the runner was created with are rounded
    /// by the same codecs. Must be called before [`DeviceRunner::set_optimizer`].
    ///
    /// # Errors
    /// If the device fails.
    pub fn set_qat(&mut self, rounding: QuantizationAware) -> Result<()> {
        self.qat = Some(rounding);
        self.round()
    }

    fn round(&mut self) -> Result<()> {
        let Some(rounding) = &self.qat else { return Ok(()) };
        self.weights.round(&mut self.device, rounding, &self.program)
    }

    /// Updates what is derived from the weights, as after each step.
    fn update_derived_weights(&mut self) -> Result<()> {
        self.derived_weights.as_ref().map_or(Ok(()), |commands| self.device.run(commands))?;
        self.round()
    }

    /// Swaps the averaged and the current weights; a second call restores them. No-op without an average.
    ///
    /// # Errors
    /// If the device fails.
    pub fn swap_ema(&mut self) -> Result<()> {
        let Some(ema) = &self.ema else { return Ok(()) };
        ema.swap(&mut self.device)?;
        self.update_derived_weights()
    }

    /// Copies the weights to `parameters`, as f32.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&mut self, parameters: &mut Parameters<f32>) -> Result<()> {
        self.weights.read(&mut self.device, parameters)
    }

    /// Replaces the values of the weights.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(&mut self, parameters: &Parameters<f32>) -> Result<()> {
        self.weights.write(&mut self.device, parameters)?;
        self.update_derived_weights()
    }

    /// Copies the gradients of all trained weights to `gradients`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()> {
        self.weights.read_gradients(&mut self.device, gradients)
    }

    /// Copies the states of optimizer and average into the tables of a checkpoint.
    pub(super) fn read_tables(&mut self, tables: &mut Tables) -> Result<()> {
        if let Some(optimizer) = &self.optimizer {
            optimizer.read(&mut self.device, tables)?;
        }
        if let Some(fp8) = &self.weights.fp8 {
            fp8.read(&mut self.device, tables)?;
        }
        self.ema.as_ref().map_or(Ok(()), |ema| ema.read(&mut self.device, tables))
    }

    /// Loads them from a checkpoint.
    pub(super) fn write_tables(&mut self, tables: &Tables) -> Result<()> {
        if let Some(optimizer) = &mut self.optimizer {
            optimizer.write(&mut self.device, tables)?;
        }
        if let Some(fp8) = &self.weights.fp8 {
            self.has_amax_history = fp8.write(&mut self.device, tables)?;
        }
        self.ema.as_mut().map_or(Ok(()), |ema| ema.write(&mut self.device, tables))
    }

    /// Returns the tables that only a device keeps, as they are before the first step.
    pub(super) fn device_tables(&self) -> Vec<(String, TableData)> {
        self.weights.fp8.as_ref().map(Fp8Matmuls::empty).unwrap_or_default()
    }

    fn pass(
        &mut self,
        batch: &TrainingBatch,
        goal: DeviceObjective<'_>,
        back: bool,
        observer: StepObserver<'_>,
    ) -> Result<()> {
        check(&self.program, batch)?;
        let layout = self.known_layout(batch, back)?;
        let shown = matches!(observer, StepObserver::Outputs(_));
        let mut prepared = if back && !shown { self.take_prepared(batch, goal) } else { None };
        loop {
            let plan = match prepared.take() {
                Some(plan) => plan,
                None => self.record(batch, goal, &layout, back, shown)?,
            };
            if !self.areas.grow(&mut self.device, plan.bytes)? {
                self.device.write(self.areas.tables.place, &plan.tables)?;
                return match observer {
                    StepObserver::Outputs(show) => self.run_observing(&plan.commands, &plan.marks, show),
                    StepObserver::Times(tell) => self.run_timed(&plan.commands, &plan.bounds, tell),
                    StepObserver::None => self.device.run(&plan.commands),
                };
            }
        }
    }

    fn record(
        &self,
        batch: &TrainingBatch,
        goal: DeviceObjective<'_>,
        layout: &BufferLayout,
        back: bool,
        shown: bool,
    ) -> Result<BatchPlan> {
        let schedule = if back { &self.schedule } else { &self.forward };
        let mut commands = CommandList::new(self.precision);
        let mut tables = BatchTables::new(self.areas.tables.place).with(&self.list_cache);
        let mut scratch = OpScratch::new(self.areas.scratch.place);
        let mut walk = PassBuilder {
            runner: self,
            schedule,
            layout,
            batch,
            builder: CommandBuilder { commands: &mut commands, tables: &mut tables, scratch: &mut scratch },
            written: HashSet::new(),
            computes_gradients: back,
            routers: self.routers.filter(|_| back),
            factors: [goal.scale, goal.loss.loss().weight(batch, goal.targets)],
            marks: shown.then(Vec::new),
        };
        if let Some(routers) = walk.routers {
            routers.begin(&mut walk.builder);
        }
        let mut head = 0;
        let mut done = None;
        let mut bounds = Vec::with_capacity(schedule.steps.len());
        for (index, &step) in schedule.steps.iter().enumerate() {
            match step {
                ScheduleStep::Forward { node, .. } if done == Some(node) => {}
                ScheduleStep::Forward { node, .. } => done = walk.forward(index, node)?,
                ScheduleStep::Backward { node } => walk.backward(index, node)?,
                ScheduleStep::Head => {
                    if let Some(routers) = walk.routers {
                        let to = self.sums + 24;
                        routers.add_loss(&mut walk.builder, (&self.program, batch), walk.factors, to);
                    }
                    head = walk.head(goal, back)?;
                }
            }
            bounds.push(StepEnd { commands: walk.builder.commands.len(), step });
        }
        let marks = walk.marks.unwrap_or_default();
        let bytes = [layout.size, scratch.most, head, tables.bytes.len()];
        Ok(BatchPlan { commands, tables: tables.bytes, bytes, marks, bounds })
    }
}
