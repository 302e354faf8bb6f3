//! Walks the schedule of a program, and writes down what a device is to do for it.

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
use timed::Bound;
pub use timed::{Tell, Timed};
use walk::Walk;

use super::Precision;
use super::adapters;
use super::average::Average;
use super::device::Device;
use super::eights::Eights;
use super::loss::Objective;
use super::op::{self, Scratch, Work};
use super::optimiser::{Judged, Stepper};
use super::routers::Routers;
use super::sheet::{Kept, Sheet};
use super::tape::{Place, Tape};
use super::weights::Weights;
use crate::adapters::{Adapter, AdapterOptions};
use crate::average;
use crate::batch::Batch;
use crate::loss::{Sum, Targets};
use crate::optimiser::{Optimiser, OptimiserOptions, StepArguments};
use crate::parameters::{Gradients, Parameters};
use crate::program::{Layout, Layouts, Program, Recompute, Schedule, Step};
use crate::quantise::Rounding;
use crate::runner::{RouterOptions, check};
use crate::state::{Data, Tables};

/// Bytes of what is added up over batches.
const SUMS: usize = 32;

/// Memory that grows as batches need it.
#[derive(Clone, Copy, Debug, Default)]
struct Area {
    place: Place,
    size: usize,
}

impl Area {
    /// Makes room for so many bytes; whether the place is a new one.
    fn grow<D: Device>(&mut self, device: &mut D, bytes: usize) -> Result<bool> {
        if bytes <= self.size {
            return Ok(false);
        }
        self.free(device)?;
        *self = Self { place: device.allocate(bytes)?, size: bytes };
        Ok(true)
    }

    /// Gives its memory back.
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
    /// Values, their gradients, and what is kept for backward.
    arena: Area,
    /// What an operation uses while it runs.
    scratch: Area,
    /// The head's tables for some rows.
    head: Area,
    /// Tables of the batch.
    sheet: Area,
}

impl Areas {
    /// Makes room for so many bytes of each, in their order; whether a place is a new one. Where there is no room, none keeps
    /// any: the next batch may need less.
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

/// What a device is to do for a batch.
struct Plan {
    tape: Tape,
    sheet: Vec<u8>,
    /// Bytes of the areas, in their order.
    bytes: [usize; 4],
    /// What is shown; nothing where nobody looks.
    marks: Vec<Mark>,
    /// Where the work of each step of the schedule ends.
    bounds: Vec<Bound>,
}

/// Who looks at the work for a batch.
pub enum Watch<'a> {
    /// Nobody: the work may have been recorded.
    Nobody,
    /// Somebody who is shown what each node gives, to the bit what it gives otherwise.
    Outputs(&'a mut Show<'a>),
    /// Somebody who is told how long each piece takes, which is waited for.
    Times(&'a mut Tell<'a>),
}

/// What is trained towards.
#[derive(Clone, Copy)]
struct Goal<'a> {
    loss: &'a Objective,
    targets: &'a Targets,
    scale: f64,
}

/// A program, and its weights on a device.
pub struct Runner<D> {
    device: D,
    precision: Precision,
    program: Program,
    schedule: Schedule,
    forward: Schedule,
    /// Where tables of the last batches lie, forth and back and forth alone.
    layouts: [Layouts; 2],
    /// Tables of batches of the same lengths.
    kept: Kept,
    /// Whether GELU is computed with the product before it. What is computed again is computed from what was kept, which is
    /// rounded, and has to have the same bits.
    bends: bool,
    weights: Weights,
    areas: Areas,
    /// Loss, weight, what was right and the loss of routers, as doubles.
    sums: Place,
    routers: Option<Routers>,
    optimiser: Option<Stepper>,
    average: Option<Average>,
    /// What is remembered after each step of tables that become eight bits, and whether anything is by now.
    remember: Option<Tape>,
    remembers: bool,
    /// What follows from weights that have changed.
    renew: Option<Tape>,
    /// Which weights products take rounded.
    rounding: Option<Rounding>,
}

impl<D: Device> Runner<D> {
    /// Brings the weights of a program to a device; those that `trains` names change.
    ///
    /// # Errors
    /// Where an operation has no kernels, or the device no memory.
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
        let weights = Weights::new(&mut device, precision, parameters, &products, trains)?;
        let sums = device.allocate(SUMS)?;
        device.write(sums, &[0; SUMS])?;
        Ok(Self {
            device,
            precision,
            program,
            schedule,
            forward,
            layouts: Default::default(),
            kept: Kept::default(),
            bends: recompute == Recompute::Nothing,
            weights,
            areas: Areas::default(),
            sums,
            routers: None,
            optimiser: None,
            average: None,
            remember: None,
            remembers: false,
            renew: None,
            rounding: None,
        })
    }

    /// From now on routers have losses of their own where gradients are made.
    ///
    /// # Errors
    /// Where the device has no memory.
    pub fn route(&mut self, options: RouterOptions) -> Result<()> {
        self.routers = Routers::new(&mut self.device, &self.program, options)?;
        Ok(())
    }

    /// Runs a batch forth and back: adds the gradients of the loss times `scale` to those on the device.
    ///
    /// # Errors
    /// Where the batch does not fit the program, or the device fails.
    pub fn run(&mut self, batch: &Batch, loss: &Objective, targets: &Targets, scale: f64) -> Result<()> {
        self.run_watched(batch, loss, targets, scale, Watch::Nobody)
    }

    /// The same while somebody looks.
    ///
    /// # Errors
    /// Where the batch does not fit the program, or the device fails.
    pub fn run_watched(
        &mut self,
        batch: &Batch,
        loss: &Objective,
        targets: &Targets,
        scale: f64,
        watch: Watch<'_>,
    ) -> Result<()> {
        self.forth_and_back(batch, Goal { loss, targets, scale }, watch)
    }

    fn forth_and_back(&mut self, batch: &Batch, goal: Goal<'_>, watch: Watch<'_>) -> Result<()> {
        if let Some(remember) = self.remember.clone().filter(|_| !self.remembers) {
            // Once for the largest numbers alone.
            self.walk(batch, goal, true, Watch::Nobody)?;
            self.clear()?;
            self.device.run(&remember)?;
            self.remembers = true;
        }
        self.walk(batch, goal, true, watch)
    }

    /// Runs a batch forth and back to see how far off it is, and its gradients. All is as before then: gradients and sums are
    /// zero, and of its largest numbers nothing is remembered.
    ///
    /// # Errors
    /// Where the batch does not fit the program, or the device fails.
    pub fn try_out(
        &mut self,
        batch: &Batch,
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
        // What went wrong first is told.
        let sum = tried?;
        restored.map(|()| sum)
    }

    /// Makes gradients and sums zero, and puts back what was remembered of tables of eight bits.
    fn restore(&mut self, tables: &Tables) -> Result<()> {
        self.clear()?;
        if let Some(eights) = &self.weights.eights {
            eights.forget(&mut self.device)?;
            eights.write(&mut self.device, tables)?;
        }
        Ok(())
    }

    /// Makes gradients, and what was added up over batches, zero.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn clear(&mut self) -> Result<()> {
        let mut tape = Tape::new(self.precision);
        for weight in self.weights.list.iter().filter(|weight| weight.gradient > 0) {
            tape.clear(weight.gradient, 4 * weight.count);
        }
        tape.clear(self.sums, SUMS);
        self.device.run(&tape)
    }

    /// From now on products of feed-forward layers and the last one have numbers of eight bits, where their rows and
    /// columns are multiples of 16.
    ///
    /// # Errors
    /// Where the device has no such products or no memory.
    pub fn eights(&mut self) -> Result<()> {
        if !self.device.has_eights() {
            let message = "this device has no products of eight bits; leave fp8 out";
            return Err(Error::unsupported("fp8", message));
        }
        let eights = Eights::new(&mut self.device, &self.program)?;
        self.remember = Some(eights.remember(self.precision));
        self.weights.eights = Some(eights);
        Ok(())
    }

    /// Runs a batch forth alone.
    ///
    /// # Errors
    /// Where the batch does not fit the program, or the device fails.
    pub fn evaluate(&mut self, batch: &Batch, loss: &Objective, targets: &Targets) -> Result<()> {
        self.walk(batch, Goal { loss, targets, scale: 1.0 }, false, Watch::Nobody)
    }

    /// How far off all batches were since this was last asked.
    ///
    /// # Errors
    /// Where the device fails.
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

    /// Changes the weights with the optimiser, and makes their gradients zero. Gradients that were scaled by `scale` and
    /// are longer than `limit` are made shorter; where they are not finite, weights stay as they are.
    ///
    /// # Errors
    /// Where there is no optimiser, or the device fails.
    pub fn step(&mut self, rate: f64, scale: f64, limit: Option<f64>) -> Result<Judged> {
        let Some(optimiser) = &mut self.optimiser else {
            return Err(Error::argument("optimiser", "the device has none yet"));
        };
        let (follow, share) = match &self.average {
            Some(average) => (Some(average.follow()), average.share()),
            None => (None, 0.0),
        };
        let after: Vec<&Tape> = self.renew.iter().chain(follow).chain(&self.remember).collect();
        let arguments = StepArguments { rate, factor: scale };
        let judged = optimiser.step(&mut self.device, arguments, limit, (&after[..], share))?;
        if let Some(average) = self.average.as_mut().filter(|_| judged.finite) {
            average.count();
        }
        self.round()?;
        Ok(judged)
    }

    /// Gives the device an optimiser that has not stepped yet; `own` is the same on the CPU.
    ///
    /// # Errors
    /// Where the device has no memory.
    pub fn optimise(&mut self, options: &OptimiserOptions, own: &Optimiser) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let stepper = Stepper::new(device, self.precision, program, &self.weights, options, own)?;
        self.optimiser = Some(stepper);
        Ok(())
    }

    /// Lets a moving average follow the weights from here on; `own` is the same on the CPU.
    ///
    /// # Errors
    /// Where there is no optimiser yet, or the device has no memory.
    pub fn follow(&mut self, own: &average::Average) -> Result<()> {
        let Some(optimiser) = &self.optimiser else {
            return Err(Error::argument("average", "follows an optimiser, and the device has none yet"));
        };
        let step = optimiser.place();
        self.average = Some(Average::new(&mut self.device, self.precision, &self.weights, own, step)?);
        Ok(())
    }

    /// Keeps up to date what follows from adapters.
    ///
    /// # Errors
    /// Where the device has no memory.
    pub fn adapt(&mut self, adapters: &[Adapter], options: &AdapterOptions) -> Result<()> {
        let (device, program) = (&mut self.device, &self.program);
        let all = (adapters, options.factor());
        self.renew = Some(adapters::renew(device, self.precision, program, &self.weights, all)?);
        self.renew()
    }

    /// From now on products take some weights as a file holds them. They are rounded here, by the codecs that pack files,
    /// whenever they have changed; the parameters that the runner was made with are rounded by the same. Before
    /// [`Runner::optimise`].
    ///
    /// # Errors
    /// Where the device fails.
    pub fn quantise(&mut self, rounding: Rounding) -> Result<()> {
        self.rounding = Some(rounding);
        self.round()
    }

    fn round(&mut self) -> Result<()> {
        let Some(rounding) = &self.rounding else { return Ok(()) };
        self.weights.round(&mut self.device, rounding, &self.program)
    }

    /// Brings up to date what follows from weights that have changed, as it is after each step.
    fn renew(&mut self) -> Result<()> {
        self.renew.as_ref().map_or(Ok(()), |tape| self.device.run(tape))?;
        self.round()
    }

    /// Puts the average in the place of the weights and keeps those instead; done again, all is as before. Nothing where
    /// there is no average.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn swap(&mut self) -> Result<()> {
        let Some(average) = &self.average else { return Ok(()) };
        average.swap(&mut self.device)?;
        self.renew()
    }

    /// The weights, as floats.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn read(&mut self, parameters: &mut Parameters<f32>) -> Result<()> {
        self.weights.read(&mut self.device, parameters)
    }

    /// Gives the weights other numbers.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn write(&mut self, parameters: &Parameters<f32>) -> Result<()> {
        self.weights.write(&mut self.device, parameters)?;
        self.renew()
    }

    /// The gradients of all weights that are trained.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn gradients(&mut self, gradients: &mut Gradients<f32>) -> Result<()> {
        self.weights.read_gradients(&mut self.device, gradients)
    }

    /// Puts what the optimiser and the average keep into the tables of a checkpoint.
    pub(super) fn read_tables(&mut self, tables: &mut Tables) -> Result<()> {
        if let Some(optimiser) = &self.optimiser {
            optimiser.read(&mut self.device, tables)?;
        }
        if let Some(eights) = &self.weights.eights {
            eights.read(&mut self.device, tables)?;
        }
        self.average.as_ref().map_or(Ok(()), |average| average.read(&mut self.device, tables))
    }

    /// Takes it from there.
    pub(super) fn write_tables(&mut self, tables: &Tables) -> Result<()> {
        if let Some(optimiser) = &mut self.optimiser {
            optimiser.write(&mut self.device, tables)?;
        }
        if let Some(eights) = &self.weights.eights {
            self.remembers = eights.write(&mut self.device, tables)?;
        }
        self.average.as_mut().map_or(Ok(()), |average| average.write(&mut self.device, tables))
    }

    /// The tables that a device alone keeps, as they are before the first step.
    pub(super) fn own_tables(&self) -> Vec<(String, Data)> {
        self.weights.eights.as_ref().map(Eights::empty).unwrap_or_default()
    }

    fn walk(&mut self, batch: &Batch, goal: Goal<'_>, back: bool, watch: Watch<'_>) -> Result<()> {
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
                    Watch::Nobody => self.device.run(&plan.tape),
                };
            }
        }
    }

    fn write_down(
        &self,
        batch: &Batch,
        goal: Goal<'_>,
        layout: &Layout,
        back: bool,
        shown: bool,
    ) -> Result<Plan> {
        let schedule = if back { &self.schedule } else { &self.forward };
        let mut tape = Tape::new(self.precision);
        let mut sheet = Sheet::new(self.areas.sheet.place).with(&self.kept);
        let mut scratch = Scratch::new(self.areas.scratch.place);
        let mut walk = Walk {
            runner: self,
            schedule,
            layout,
            batch,
            work: Work { tape: &mut tape, sheet: &mut sheet, scratch: &mut scratch },
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
                Step::Forward { node, .. } if done == Some(node) => {}
                Step::Forward { node, .. } => done = walk.forward(index, node)?,
                Step::Backward { node } => walk.backward(index, node)?,
                Step::Tail => {
                    if let Some(routers) = walk.routers {
                        let to = self.sums + 24;
                        routers.add_loss(&mut walk.work, (&self.program, batch), walk.factors, to);
                    }
                    head = walk.head(goal, back)?;
                }
            }
            bounds.push(Bound { commands: walk.work.tape.commands.len(), step });
        }
        let marks = walk.marks.unwrap_or_default();
        let bytes = [layout.size, scratch.most, head, sheet.bytes.len()];
        Ok(Plan { tape, sheet: sheet.bytes, bytes, marks, bounds })
    }
}
