//! Builds and executes the command list of a program's schedule on a device.

mod builder;
mod head;
mod layout;
mod lower;
mod memory;
mod observed;
mod prepared;
mod resources;
mod timed;
mod updates;

use std::collections::HashSet;

use siskin_device::{CommandList, Device, DevicePtr, Precision};
use siskin_format::Result;

pub use builder::RunnerBuilder;
use lower::PassBuilder;
use memory::{StepBytes, StepMemory};
use observed::ObservedOutput;
pub use observed::OutputObserver;
use prepared::PreparedBatch;
use timed::StepEnd;
pub use timed::{Timed, TimingObserver};
use updates::{Fp8Update, WeightUpdates};

use super::fp8::Fp8Matmuls;
use super::loss::Objective;
use super::optimizer::OptimizerResult;
use super::routers::{LossFactors, RouterLosses};
use super::weights::DeviceWeights;
use crate::batch::TrainingBatch;
use crate::loss::{LossSum, Targets};
use crate::optimizer::StepArguments;
use crate::parameters::{Gradients, Parameters};
use crate::program::{BufferLayout, Layouts, Program, Schedule, ScheduleStep};
use crate::runner::check;
use crate::state::{TableData, Tables};
use siskin_cuda::{BatchTables, ListCache};
use siskin_cuda::{CommandBuilder, OpScratch};

/// Bytes of the sums that accumulate over batches.
const SUMS: usize = 32;

/// The execution plan of a batch.
struct BatchPlan {
    commands: CommandList,
    tables: Vec<u8>,
    bytes: StepBytes,
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

/// A pass over a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassKind {
    /// Forward, loss and backward.
    Training,
    /// Forward and loss.
    Evaluation,
}

/// The schedules of both kinds of passes.
struct Schedules {
    training: Schedule,
    evaluation: Schedule,
}

impl Schedules {
    fn of(&self, kind: PassKind) -> &Schedule {
        match kind {
            PassKind::Training => &self.training,
            PassKind::Evaluation => &self.evaluation,
        }
    }
}

/// What is known of recent and coming batches.
#[derive(Default)]
struct PlanCache {
    /// Layouts of recent batches.
    training: Layouts,
    evaluation: Layouts,
    /// Tables of batches with equal sequence lengths.
    lists: ListCache,
    /// The plan of the next batch, made while the device was busy with the one before.
    prepared: Option<PreparedBatch>,
}

/// A program, and its weights on a device. [`RunnerBuilder`] creates it.
pub struct DeviceRunner {
    device: Box<dyn Device>,
    precision: Precision,
    program: Program,
    schedules: Schedules,
    plans: PlanCache,
    /// Whether GELU is fused into the matmul before it. Recomputation starts from the kept pre-activation, which is
    /// rounded, and must give the same bits.
    fuses_gelu: bool,
    weights: DeviceWeights,
    areas: StepMemory,
    /// Loss, weight, accuracy and router loss, as f64.
    sums: DevicePtr,
    routers: Option<RouterLosses>,
    updates: WeightUpdates,
}

impl DeviceRunner {
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
        let unfilled = self.updates.fp8.as_ref().filter(|fp8| !fp8.has_history);
        if let Some(Fp8Update { commands, .. }) = unfilled.cloned() {
            // Once to fill the amax history.
            self.pass(batch, goal, PassKind::Training, StepObserver::None)?;
            self.clear()?;
            self.device.run(&commands)?;
            self.set_amax_history(true);
        }
        self.pass(batch, goal, PassKind::Training, observer)
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
        let remembers = self.updates.fp8.as_ref().is_some_and(|fp8| fp8.has_history);
        let mut tables = Tables::default();
        if let Some(fp8) = &self.weights.fp8 {
            fp8.read(self.device.as_mut(), &mut tables)?;
        }
        let tried = self.run(batch, loss, targets, scale).and_then(|()| {
            self.gradients(gradients)?;
            self.take_sum()
        });
        let restored = self.restore(&tables);
        self.set_amax_history(remembers);
        // The first error is returned.
        let sum = tried?;
        restored.map(|()| sum)
    }

    fn set_amax_history(&mut self, filled: bool) {
        if let Some(fp8) = &mut self.updates.fp8 {
            fp8.has_history = filled;
        }
    }

    /// Zeroes gradients and sums, and restores the fp8 amax history.
    fn restore(&mut self, tables: &Tables) -> Result<()> {
        self.clear()?;
        if let Some(fp8) = &self.weights.fp8 {
            fp8.reset(self.device.as_mut())?;
            fp8.write(self.device.as_mut(), tables)?;
        }
        Ok(())
    }

    /// Zeroes the gradients and the sums over batches.
    ///
    /// # Errors
    /// If the device fails.
    pub fn clear(&mut self) -> Result<()> {
        let mut commands = CommandList::new(self.precision);
        self.weights.clear_gradients(&mut commands);
        commands.clear(self.sums, SUMS);
        self.device.run(&commands)
    }

    /// Runs a batch forward only.
    ///
    /// # Errors
    /// If the batch does not fit the program, or the device fails.
    pub fn evaluate(&mut self, batch: &TrainingBatch, loss: &Objective, targets: &Targets) -> Result<()> {
        self.pass(
            batch,
            DeviceObjective { loss, targets, scale: 1.0 },
            PassKind::Evaluation,
            StepObserver::None,
        )
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
        let arguments = StepArguments { learning_rate: rate, grad_factor: scale };
        let result = self.updates.step(self.device.as_mut(), arguments, limit)?;
        self.updates.round(self.device.as_mut(), &self.weights, &self.program)?;
        Ok(result)
    }

    /// Updates what is derived from the weights, as after each step.
    fn refresh(&mut self) -> Result<()> {
        self.updates.refresh(self.device.as_mut(), &self.weights, &self.program)
    }

    /// Swaps the averaged and the current weights; a second call restores them. No-op without an average.
    ///
    /// # Errors
    /// If the device fails.
    pub fn swap_ema(&mut self) -> Result<()> {
        let Some(ema) = &self.updates.ema else { return Ok(()) };
        ema.swap(self.device.as_mut())?;
        self.refresh()
    }

    /// Copies the weights to `parameters`, as f32.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&mut self, parameters: &mut Parameters<f32>) -> Result<()> {
        self.weights.read(self.device.as_mut(), parameters)
    }

    /// Replaces the values of the weights.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(&mut self, parameters: &Parameters<f32>) -> Result<()> {
        self.weights.write(self.device.as_mut(), parameters)?;
        self.refresh()
    }

    /// Copies the gradients of all trained weights to `gradients`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()> {
        self.weights.read_gradients(self.device.as_mut(), gradients)
    }

    /// Copies the weights, and the tables of optimizer and average, from the device to `parameters` and `tables`.
    ///
    /// # Errors
    /// If the device fails.
    pub fn copy_from_device(&mut self, parameters: &mut Parameters<f32>, tables: &mut Tables) -> Result<()> {
        self.read(parameters)?;
        self.updates.read(self.device.as_mut(), &self.weights, tables)
    }

    /// Copies `parameters`, and the tables of optimizer and average, to the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn copy_to_device(&mut self, parameters: &Parameters<f32>, tables: &Tables) -> Result<()> {
        self.write(parameters)?;
        self.updates.write(self.device.as_mut(), &self.weights, tables)
    }

    /// Returns the tables of a checkpoint that only a device keeps, as they are before the first step.
    pub fn device_tables(&self) -> Vec<(String, TableData)> {
        self.weights.fp8.as_ref().map(Fp8Matmuls::empty).unwrap_or_default()
    }

    fn pass(
        &mut self,
        batch: &TrainingBatch,
        goal: DeviceObjective<'_>,
        kind: PassKind,
        observer: StepObserver<'_>,
    ) -> Result<()> {
        check(&self.program, batch)?;
        let layout = self.known_layout(batch, kind)?;
        let shown = matches!(observer, StepObserver::Outputs(_));
        let mut prepared = match kind {
            PassKind::Training if !shown => self.take_prepared(batch, goal),
            PassKind::Training | PassKind::Evaluation => None,
        };
        loop {
            let plan = match prepared.take() {
                Some(plan) => plan,
                None => self.record(batch, goal, &layout, kind, shown)?,
            };
            if !self.areas.grow(self.device.as_mut(), &plan.bytes)? {
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
        kind: PassKind,
        shown: bool,
    ) -> Result<BatchPlan> {
        let schedule = self.schedules.of(kind);
        let back = kind == PassKind::Training;
        let mut commands = CommandList::new(self.precision);
        let mut tables = BatchTables::new(self.areas.tables.place).with_cache(&self.plans.lists);
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
            factors: LossFactors { scale: goal.scale, weight: goal.loss.loss().weight(batch, goal.targets) },
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
                        routers.add_loss(&mut walk.builder, &self.program, batch, walk.factors, to);
                    }
                    head = walk.head(goal, back)?;
                }
            }
            bounds.push(StepEnd { commands: walk.builder.commands.len(), step });
        }
        let marks = walk.marks.unwrap_or_default();
        let bytes = StepBytes {
            arena: layout.size,
            scratch: scratch.max_bytes(),
            head,
            tables: tables.bytes().len(),
        };
        Ok(BatchPlan { commands, tables: tables.into_bytes(), bytes, marks, bounds })
    }
}
