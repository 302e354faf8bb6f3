//! Builds and executes the tape of a program's schedule on a device.

mod head;
mod lay;
mod measure;
mod shown;
mod timed;
mod walk;

use std::collections::HashSet;

use siskin::{Error, Result};

use shown::Mark;
pub use shown::Show;
use timed::StepEnd;
pub use timed::{Tell, Timed};
use walk::Walk;

use super::Precision;
use super::adapters;
use super::average::DeviceAverage;
use super::batch_tables::{BatchTables, ListCache};
use super::device::Device;
use super::fp8::Fp8Matmuls;
use super::loss::Objective;
use super::op::{self, OpScratch, TapeBuilder};
use super::optimizer::{Judged, Stepper};
use super::routers::RouterLosses;
use super::tape::{Place, Tape};
use super::weights::DeviceWeights;
use crate::adapters::{AdapterOptions, TrainedAdapter};
use crate::average;
use crate::batch::TrainingBatch;
use crate::loss::{Sum, Targets};
use crate::optimizer::{Optimizer, OptimizerOptions, StepArguments};
use crate::parameters::{Gradients, Parameters};
use crate::program::{BufferLayout, Layouts, Program, Recompute, Schedule, ScheduleStep};
use crate::quantize::QuantizedTraining;
use crate::runner::{RouterOptions, check};
use crate::state::{TableData, Tables};

/// Bytes of the sums that accumulate over batches.
const SUMS: usize = 32;

/// Device memory that grows on demand.
#[derive(Clone, Copy, Debug, Default)]
struct Area {
    place: Place,
    size: usize,
}

impl Area {
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
#[derive(Clone, Copy, Debug, Default)]
struct Areas {
    /// Activations, their gradients, and what forward keeps for backward.
    arena: Area,
    /// Scratch memory of an operation.
    scratch: Area,
    /// The head's buffers for a chunk of rows.
    head: Area,
    /// Tables of the batch.
    sheet: Area,
}

impl Areas {
    /// Grows the areas to these sizes, in order; returns true if one was reallocated. If an allocation fails, all are
    /// freed, since the next batch may need less.
    fn grow<D: Device>(&mut self, device: &mut D, bytes: [usize; 4]) -> Result<bool> {
        let grow = |moved: bool, (area, bytes): (&mut Area, usize)| Ok(moved | area.grow(device, bytes)?);
        let moved = self.all().into_iter().zip(bytes).try_fold(false, grow);
        if moved.is_err() {
            let freed = self.all().into_iter().try_for_each(|area| area.free(device));
            return moved.and_then(|moved| freed.map(|()| moved));
        }
        moved
    }

    fn all(&mut self) -> [&mut Area; 4] {
        [&mut self.arena, &mut self.scratch, &mut self.head, &mut self.sheet]
    }
}

/// The execution plan of a batch.
struct Plan {
    tape: Tape,
    sheet: Vec<u8>,
    /// Bytes of the areas, in order.
    bytes: [usize; 4],
    /// The observed outputs; empty without an observer.
    marks: Vec<Mark>,
    /// Where the commands of each step of the schedule end.
    bounds: Vec<StepEnd>,
}

/// The observer of a batch.
pub enum Watch<'a> {
    /// No observer: the tape may be a captured CUDA graph.
    None,
    /// Receives the output of each node, bit-identical to an unobserved run.
    Outputs(&'a mut Show<'a>),
    /// Receives the duration of each piece of work; synchronizes after each.
    Times(&'a mut Tell<'a>),
}

/// The training objective.
#[derive(Clone, Copy)]
struct Goal<'a> {
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
    kept: ListCache,
    /// Whether GELU is fused into the matmul before it. Recomputation starts from the kept pre-activation, which is
    /// rounded, and must give the same bits.
    bends: bool,
    weights: DeviceWeights,
    areas: Areas,
    /// Loss, weight, accuracy and router loss, as f64.
    sums: Place,
    routers: Option<RouterLosses>,
    optimizer: Option<Stepper>,
    average: Option<DeviceAverage>,
    /// The tape that updates the fp8 amax history after each step, and whether the history is filled.
    remember: Option<Tape>,
    remembers: bool,
    /// The tape that updates what is derived from the weights.
    renew: Option<Tape>,
    /// Which weights matmuls read in rounded form (quantization-aware training).
    rounding: Option<QuantizedTraining>,
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
        op::check(&program, precision, device.shared_bytes())?;
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
            kept: ListCache::default(),
            bends: recompute == Recompute::Nothing,
            weights,
            areas: Areas::default(),
            sums,
            routers: None,
            optimizer: None,
            average: None,
            remember: None,
            remembers: false,
            renew: None,
            rounding: None,
        })
    }

    /// Enables the auxiliary losses of routers.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn route(&mut self, options: RouterOptions) -> Result<()> {
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
        self.run_watched(batch, loss, targets, scale, Watch::None)
    }

    /// Like [`Self::run`], with an observer.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn run_watched(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        watch: Watch<'_>,
    ) -> Result<()> {
        self.forth_and_back(batch, Goal { loss, targets, scale }, watch)
    }

    fn forth_and_back(&mut self, batch: &TrainingBatch, goal: Goal<'_>, watch: Watch<'_>) -> Result<()> {
        if let Some(remember) = self.remember.clone().filter(|_| !self.remembers) {
            // Once to fill the amax history.
            self.walk(batch, goal, true, Watch::None)?;
            self.clear()?;
            self.device.run(&remember)?;
            self.remembers = true;
        }
        self.walk(batch, goal, true, watch)
    }

    /// Computes the loss of a batch and its gradients, and restores the state afterwards: gradients and sums are
    /// zero, and the amax history is unchanged.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn try_out(
        &mut self,
        batch: &TrainingBatch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        gradients: &mut Gradients<f32>,
    ) -> Result<Sum> {
        let remembers = self.remembers;
        let mut tables = Tables::default();
        if let Some(eights) = &self.weights.eights {
            eights.read(&mut self.device, &mut tables)?;
        }
        let tried = self.run(batch, loss, targets, scale).and_then(|()| {
            self.gradients(gradients)?;
            self.take_sum()
        });
        let restored = self.restore(&tables);
        self.remembers = remembers;
        // The first error is returned.
        let sum = tried?;
        restored.map(|()| sum)
    }

    /// Zeroes gradients and sums, and restores the fp8 amax history.
    fn restore(&mut self, tables: &Tables) -> Result<()> {
        self.clear()?;
        if let Some(eights) = &self.weights.eights {
            eights.forget(&mut self.device)?;
            eights.write(&mut self.device, tables)?;
        }
        Ok(())
    }

    /// Zeroes the gradients and the sums over batches.
    ///
    /// # Errors
    /// If the device fails.
    pub fn clear(&mut self) -> Result<()> {
        let mut tape = Tape::new(self.precision);
        for weight in self.weights.list.iter().filter(|weight| weight.gradient > 0) {
            tape.clear(weight.gradient, 4 * weight.count);
        }
        tape.clear(self.sums, SUMS);
        self.device.run(&tape)
    }

    /// Enables fp8 for the matmuls of feed-forward layers and the last one, where rows and columns are multiples of
    /// 16.
    ///
    /// # Errors
    /// If the device has no fp8 matmuls or is out of memory.
    pub fn eights(&mut self) -> Result<()> {
        if !self.device.has_eights() {
            let message = "this device has no fp8 matmuls; train without fp8";
            return Err(Error::unsupported("fp8", message));
        }
        let eights = Fp8Matmuls::new(&mut self.device, &self.program)?;
        self.remember = Some(eights.remember(self.precision));
        self.weights.eights = Some(eights);
        Ok(())
    }

    /// Runs a batch forward only.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn evaluate(&mut self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<()> {
        self.walk(batch, Goal { loss, targets, scale: 1.0 }, false, Watch::None)
    }

    /// Returns and resets the loss summed since the last call.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take_sum(&mut self) -> Result<Sum> {
        let mut bytes = [0; SUMS];
        self.device.read(self.sums, &mut bytes)?;
        self.device.write(self.sums, &[0; SUMS])?;
        let number = |index: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            f64::from_le_bytes(own)
        };
        Ok(Sum { loss: number(0), weight: number(1), right: number(2), routers: number(3) })
    }

    /// Applies the optimizer, and zeroes the gradients. Gradients, which were scaled by `scale`, are clipped to the
    /// norm `limit`; if they are not finite, the weights do not change.
    ///
    /// # Errors
    /// If there is no optimizer, or the device fails.
    pub fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<Judged> {
        let Some(optimizer) = &mut self.optimizer else {
            return Err(Error::argument("optimizer", "the device has none yet"));
        };
        let (follow, share) = match &self.average {
            Some(average) => (Some(average.follow()), average.share()),
            None => (None, 0.0),
        };
        let after: Vec<&Tape> = self.renew.iter().chain(follow).chain(&self.remember).collect();
        let arguments = StepArguments { rate, factor: scale };
        let judged = optimizer.step(&mut self.device, arguments, limit, (&after[..], share))?;
        if let Some(average) = self.average.as_mut().filter(|_| judged.finite) {
            average.count();
        }
        self.round()?;
        Ok(judged)
    }

    /// Creates the optimizer on the device, before its first step; `own` is the same on the CPU.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn optimize(&mut self, options: &OptimizerOptions, own: &Optimizer) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let stepper = Stepper::new(device, self.precision, program, &self.weights, options, own)?;
        self.optimizer = Some(stepper);
        Ok(())
    }

    /// Enables a moving average of the weights; `own` is the same on the CPU.
    ///
    /// # Errors
    /// If there is no optimizer yet, or the device is out of memory.
    pub fn follow(&mut self, own: &average::MovingAverage) -> Result<()> {
        let Some(optimizer) = &self.optimizer else {
            return Err(Error::argument("average", "follows an optimizer, and the device has none yet"));
        };
        let step = optimizer.place();
        self.average = Some(DeviceAverage::new(&mut self.device, self.precision, &self.weights, own, step)?);
        Ok(())
    }

    /// Enables the update of what is derived from adapters.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn adapt(&mut self, adapters: &[TrainedAdapter], options: &AdapterOptions) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let all = (adapters, options.factor());
        self.renew = Some(adapters::renew(device, self.precision, program, &self.weights, all)?);
        self.renew()
    }

    /// Enables quantization-aware training: matmuls read some weights as a file will hold them. They are rounded
    /// here, by the codecs that pack files, whenever they change; the parameters that the runner was created with are
    /// rounded by the same codecs. Must be called before [`DeviceRunner::optimize`].
    ///
    /// # Errors
    /// If the device fails.
    pub fn quantize(&mut self, rounding: QuantizedTraining) -> Result<()> {
        self.rounding = Some(rounding);
        self.round()
    }

    fn round(&mut self) -> Result<()> {
        let Some(rounding) = &self.rounding else { return Ok(()) };
        self.weights.round(&mut self.device, rounding, &self.program)
    }

    /// Updates what is derived from the weights, as after each step.
    fn renew(&mut self) -> Result<()> {
        self.renew.as_ref().map_or(Ok(()), |tape| self.device.run(tape))?;
        self.round()
    }

    /// Swaps the averaged and the current weights; a second call restores them. No-op without an average.
    ///
    /// # Errors
    /// If the device fails.
    pub fn swap(&mut self) -> Result<()> {
        let Some(average) = &self.average else { return Ok(()) };
        average.swap(&mut self.device)?;
        self.renew()
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
        self.renew()
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
        if let Some(eights) = &self.weights.eights {
            eights.read(&mut self.device, tables)?;
        }
        self.average.as_ref().map_or(Ok(()), |average| average.read(&mut self.device, tables))
    }

    /// Loads them from a checkpoint.
    pub(super) fn write_tables(&mut self, tables: &Tables) -> Result<()> {
        if let Some(optimizer) = &mut self.optimizer {
            optimizer.write(&mut self.device, tables)?;
        }
        if let Some(eights) = &self.weights.eights {
            self.remembers = eights.write(&mut self.device, tables)?;
        }
        self.average.as_mut().map_or(Ok(()), |average| average.write(&mut self.device, tables))
    }

    /// Returns the tables that only a device keeps, as they are before the first step.
    pub(super) fn own_tables(&self) -> Vec<(String, TableData)> {
        self.weights.eights.as_ref().map(Fp8Matmuls::empty).unwrap_or_default()
    }

    fn walk(&mut self, batch: &TrainingBatch, goal: Goal<'_>, back: bool, watch: Watch<'_>) -> Result<()> {
        check(&self.program, batch)?;
        let layout = self.known_layout(batch, back)?;
        loop {
            let shown = matches!(watch, Watch::Outputs(_));
            let plan = self.write_down(batch, goal, &layout, back, shown)?;
            if !self.areas.grow(&mut self.device, plan.bytes)? {
                self.device.write(self.areas.sheet.place, &plan.sheet)?;
                return match watch {
                    Watch::Outputs(show) => self.run_marked(&plan.tape, &plan.marks, show),
                    Watch::Times(tell) => self.run_timed(&plan.tape, &plan.bounds, tell),
                    Watch::None => self.device.run(&plan.tape),
                };
            }
        }
    }

    fn write_down(
        &self,
        batch: &TrainingBatch,
        goal: Goal<'_>,
        layout: &BufferLayout,
        back: bool,
        shown: bool,
    ) -> Result<Plan> {
        let schedule = if back { &self.schedule } else { &self.forward };
        let mut tape = Tape::new(self.precision);
        let mut sheet = BatchTables::new(self.areas.sheet.place).with(&self.kept);
        let mut scratch = OpScratch::new(self.areas.scratch.place);
        let mut walk = Walk {
            runner: self,
            schedule,
            layout,
            batch,
            work: TapeBuilder { tape: &mut tape, sheet: &mut sheet, scratch: &mut scratch },
            written: HashSet::new(),
            back,
            routers: self.routers.filter(|_| back),
            factors: [goal.scale, goal.loss.loss().weight(batch, goal.targets)],
            marks: shown.then(Vec::new),
        };
        if let Some(routers) = walk.routers {
            routers.begin(&mut walk.work);
        }
        let mut head = 0;
        let mut done = None;
        let mut bounds = Vec::with_capacity(schedule.steps.len());
        for (index, &step) in schedule.steps.iter().enumerate() {
            match step {
                ScheduleStep::Forward { node, .. } if done == Some(node) => {}
                ScheduleStep::Forward { node, .. } => done = walk.forward(index, node)?,
                ScheduleStep::Backward { node } => walk.backward(index, node)?,
                ScheduleStep::Tail => {
                    if let Some(routers) = walk.routers {
                        let to = self.sums + 24;
                        routers.add_loss(&mut walk.work, (&self.program, batch), walk.factors, to);
                    }
                    head = walk.head(goal, back)?;
                }
            }
            bounds.push(StepEnd { commands: walk.work.tape.commands.len(), step });
        }
        let marks = walk.marks.unwrap_or_default();
        let bytes = [layout.size, scratch.most, head, sheet.bytes.len()];
        Ok(Plan { tape, sheet: sheet.bytes, bytes, marks, bounds })
    }
}
