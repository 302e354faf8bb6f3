//! Optimisers on a device: all tensors in one launch where their rule allows it, the length of their gradients before it.
//!
//! An optimiser is a file with a type that is a `Method`, and a line in `METHODS`. Which tables there are of each tensor
//! is what the CPU's optimiser of that name says, and so is what a checkpoint holds.

mod adafactor;
mod adamw8;
mod layout;
mod lion;
mod moments;
mod muon;
mod sgd;

pub(super) use layout::{All, Held, Table, put, read_tables, write_tables};

use siskin::{Error, Result};

use super::Precision;
use super::device::Device;
use super::op::{Scratch, Work};
use super::sheet::Sheet;
use super::tape::{Argument, Place, Tape};
use super::weights::Weights;
use crate::optimiser::{Optimiser, OptimiserOptions, StepArguments};
use crate::program::Program;
use crate::settings::{Settings, unknown};
use crate::state::{Data, Tables, View, bytes_of, words};

type Build = fn(&Settings) -> Result<Box<dyn Method>>;

/// Every optimiser that devices have: its name, and what makes it of its settings.
const METHODS: &[(&str, Build)] = &[
    ("adamw", moments::adamw),
    ("adam", moments::adam),
    ("sgd", sgd::build),
    ("lion", lion::build),
    ("adafactor", adafactor::build),
    ("muon", muon::build),
    ("adamw8", adamw8::build),
];

/// One way to change tensors.
pub(super) trait Method {
    /// What its kernels read of a step, by place; `count` is the number of the step, the first being 1.
    fn says(&self, count: u64) -> Vec<f64>;

    /// What the rate of a tensor is multiplied by beside what groups say.
    fn rate(&self, _: &Held) -> f64 {
        1.0
    }

    /// Writes down how tensors are changed by gradients whose length is known, and that gradients become zero.
    fn write_down(&self, work: &mut Work<'_>, all: &All<'_>);
}

/// What the device found of a step's gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judged {
    /// How long they are together, without the scale.
    pub length: f64,
    /// Whether all are finite: otherwise nothing was changed.
    pub finite: bool,
    /// Good steps so far.
    pub count: u64,
}

/// Doubles of what a step knows, as `Step` in `kernels/cuda/optimiser.cuh`: what the host says of all optimisers, and of
/// the one at hand; what the device finds.
const GENERAL: usize = 4;
const SAID: usize = 16;
const FOUND: usize = 3;

/// An optimiser, and where its tables are.
pub(super) struct Stepper {
    method: Box<dyn Method>,
    list: Vec<Held>,
    step: Place,
    tape: Tape,
    /// Good steps so far, and the name of their table.
    count: u64,
    table: String,
}

impl Stepper {
    /// For the weights that have gradients; `own` is the same optimiser on the CPU.
    pub(super) fn new<D: Device>(
        device: &mut D,
        precision: Precision,
        program: &Program,
        weights: &Weights,
        options: &OptimiserOptions,
        own: &Optimiser,
    ) -> Result<Self> {
        let Some((_, build)) = METHODS.iter().find(|(name, _)| *name == options.name) else {
            let known: Vec<_> = METHODS.iter().map(|(name, _)| *name).collect();
            return Err(unknown("optimiser.name", "optimiser", &options.name, &known));
        };
        let method = build(&options.settings).map_err(|error| error.within("optimiser"))?;
        let list = hold(device, precision, program, weights, own)?;
        let tensors = put(device, &list, |held| method.rate(held))?;
        let step = device.allocate(8 * (GENERAL + SAID + FOUND))?;
        device.write(step, &[0; 8 * (GENERAL + SAID + FOUND)])?;
        let tape = write_down(device, precision, |work| {
            let all = All { list: &list, tensors, step };
            let parts = all.parts(work, "all", |_| true);
            let sums = work.scratch.doubles(parts.count);
            let count = Argument::Whole(parts.count as i32);
            let to = Argument::Place(sums);
            all.launch(work, "squares_of_all", parts, &[to]);
            work.tape.kernel(
                "judge_step",
                [1, 1, 1],
                layout::THREADS,
                0,
                &[to, count, Argument::Place(step)],
            );
            work.scratch.clear();
            method.write_down(work, &all);
        })?;
        Ok(Self { method, list, step, tape, count: 0, table: own.step_table() })
    }

    /// Where a step's numbers are.
    pub(super) fn place(&self) -> Place {
        self.step
    }

    /// One step, with `after` done behind it; `arguments.factor` is what gradients were scaled by, `follow` the share of
    /// the way that a moving average goes.
    pub(super) fn step<D: Device>(
        &mut self,
        device: &mut D,
        arguments: StepArguments,
        limit: Option<f64>,
        (after, follow): (&[&Tape], f64),
    ) -> Result<Judged> {
        let mut said = vec![arguments.rate, limit.unwrap_or(0.0), arguments.factor, follow];
        said.extend(self.method.says(self.count + 1));
        said.resize(GENERAL + SAID, 0.0);
        let bytes: Vec<u8> = said.into_iter().flat_map(f64::to_le_bytes).collect();
        device.write(self.step, &bytes)?;
        device.run(&self.tape)?;
        for tape in after {
            device.run(tape)?;
        }
        let mut bytes = [0; 8 * FOUND];
        device.read(self.step + 8 * (GENERAL + SAID) as Place, &mut bytes)?;
        let number = |index: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            f64::from_le_bytes(own)
        };
        let finite = number(2) != 0.0;
        self.count += u64::from(finite);
        Ok(Judged { length: number(0) / arguments.factor, finite, count: self.count })
    }

    /// Puts all tables and the count of steps into those of a checkpoint.
    pub(super) fn read<D: Device>(&self, device: &mut D, tables: &mut Tables) -> Result<()> {
        read_tables(&self.list, device, tables)?;
        tables.insert(self.table.clone(), Data::Bytes(bytes_of([self.count])));
        Ok(())
    }

    /// Takes them from there.
    pub(super) fn write<D: Device>(&mut self, device: &mut D, tables: &Tables) -> Result<()> {
        write_tables(&self.list, device, tables)?;
        [self.count] = words(tables, &self.table)?;
        Ok(())
    }
}

/// Memory for the tables of all tensors that are trained, which begin at zero.
fn hold<D: Device>(
    device: &mut D,
    precision: Precision,
    program: &Program,
    weights: &Weights,
    own: &Optimiser,
) -> Result<Vec<Held>> {
    let mut list = Vec::new();
    let mut clear = Tape::new(precision);
    for (index, weight) in weights.list.iter().enumerate().filter(|(_, weight)| weight.gradient > 0) {
        let factors = own.factors(index).ok_or_else(|| {
            Error::argument("optimiser", format!("tensor {index} is trained, but not known to it"))
        })?;
        let mut tables = Vec::new();
        for (name, view) in own.tables_of(index) {
            let (place, bytes) = (device.allocate(view.bytes())?, view.bytes());
            clear.clear(place, bytes);
            tables.push(Table { name, place, bytes, floats: matches!(view, View::Numbers(_)) });
        }
        let of = &program.weights[index];
        list.push(Held {
            weight: *weight,
            rows: of.rows,
            columns: of.columns,
            rate: factors.rate,
            decay: factors.decay,
            tables,
        });
    }
    device.run(&clear)?;
    Ok(list)
}

/// A tape whose lists and room get memory of their own, for good.
pub(super) fn write_down<D: Device>(
    device: &mut D,
    precision: Precision,
    work: impl Fn(&mut Work<'_>),
) -> Result<Tape> {
    let mut places = [0; 2];
    loop {
        let mut tape = Tape::new(precision);
        let (mut sheet, mut scratch) = (Sheet::new(places[0]), Scratch::new(places[1]));
        work(&mut Work { tape: &mut tape, sheet: &mut sheet, scratch: &mut scratch });
        if places[0] != 0 {
            device.write(places[0], &sheet.bytes)?;
            return Ok(tape);
        }
        places = [device.allocate(sheet.bytes.len())?, device.allocate(scratch.most)?];
    }
}
