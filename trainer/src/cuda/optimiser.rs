//! AdamW on a device: all tensors in one launch, the length of their gradients before it.

use siskin::{Error, Result};

use super::device::Device;
use super::tape::{Argument, Place, Tape};
use super::weights::{Weights, read_floats};
use super::{Precision, aligned};
use crate::optimiser::{AdamWOptions, Optimiser, OptimiserOptions, StepArguments};
use crate::parameters::Parameters;
use crate::settings::read;
use crate::state::{Data, Tables, bytes_of, fill, words};

/// Numbers that a block takes: as `kernels/cuda/optimiser.cu`.
const PART: usize = 1 << 14;
/// Threads of a block.
const THREADS: usize = 256;
/// Doubles of what a step knows, and where those that the device finds begin.
const DOUBLES: usize = 13;
const FOUND: usize = 7;
/// Where the count of steps is.
const COUNT: usize = 8;

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

/// The optimiser, and where its tables are.
#[derive(Debug)]
pub struct AdamW {
    options: AdamWOptions,
    tensors: Place,
    parts: Place,
    count: usize,
    sums: Place,
    step: Place,
    tape: Tape,
    /// First and second averages of the tensors that are trained, with their numbers' count.
    averages: Vec<(usize, [Place; 2], usize)>,
}

impl AdamW {
    /// For the weights that have gradients; `factors` says what is particular to them.
    pub(super) fn new<D: Device>(
        device: &mut D,
        precision: Precision,
        weights: &Weights,
        options: &OptimiserOptions,
        factors: &Optimiser,
    ) -> Result<Self> {
        if options.name != "adamw" {
            let message =
                format!("there is no {} on CUDA yet; take adamw, or device = \"cpu\"", options.name);
            return Err(Error::unsupported("optimiser.name", message));
        }
        let own: AdamWOptions = read("adamw", &options.settings)?;
        let (mut tensors, mut parts, mut averages) = (Vec::new(), Vec::new(), Vec::new());
        let trained: Vec<usize> =
            (0..weights.list.len()).filter(|&index| weights.list[index].gradient > 0).collect();
        let bytes: usize = trained.iter().map(|&index| 2 * aligned(4 * weights.list[index].count)).sum();
        let mut next = device.allocate(bytes)?;
        let mut clear = Tape::new(precision);
        clear.clear(next, bytes);
        for index in trained {
            let weight = weights.list[index];
            let size = aligned(4 * weight.count) as Place;
            let places = [next, next + size];
            next += 2 * size;
            let factors = factors.factors(index).ok_or_else(|| {
                Error::argument("optimiser", format!("tensor {index} is trained, but not known to it"))
            })?;
            let tensor = averages.len() as i32;
            let count = weight.count.div_ceil(PART);
            parts.extend((0..count as i32).flat_map(|part| [tensor, part]).flat_map(i32::to_le_bytes));
            let copy = if weight.numbers == weight.floats { 0 } else { weight.numbers };
            let words = [weight.floats, copy, weight.gradient, places[0], places[1], weight.count as u64];
            tensors.extend(words.into_iter().flat_map(u64::to_le_bytes));
            tensors
                .extend([factors.rate as f32, factors.decay as f32].into_iter().flat_map(f32::to_le_bytes));
            averages.push((index, places, weight.count));
        }
        device.run(&clear)?;
        let mut put = |bytes: &[u8]| -> Result<Place> {
            let place = device.allocate(bytes.len())?;
            device.write(place, bytes)?;
            Ok(place)
        };
        let count = parts.len() / 8;
        let (tensors, parts) = (put(&tensors)?, put(&parts)?);
        let (sums, step) = (put(&vec![0; 8 * count])?, put(&[0; 8 * DOUBLES])?);
        let tape = Tape::new(precision);
        let mut own = Self { options: own, tensors, parts, count, sums, step, tape, averages };
        own.write_down();
        Ok(own)
    }

    fn write_down(&mut self) {
        let [tensors, parts, sums, step] =
            [self.tensors, self.parts, self.sums, self.step].map(Argument::Place);
        let count = Argument::Whole(self.count as i32);
        let blocks = [self.count, 1, 1];
        self.tape.kernel("squares_of_all", blocks, THREADS, 0, &[tensors, parts, sums]);
        self.tape.kernel("judge_step", [1, 1, 1], THREADS, 0, &[sums, count, step]);
        let name = self.tape.named("adamw");
        self.tape.kernel(&name, blocks, THREADS, 0, &[tensors, parts, step]);
    }

    /// One step; `arguments.factor` is what gradients were scaled by.
    pub(super) fn step<D: Device>(
        &mut self,
        device: &mut D,
        arguments: StepArguments,
        limit: Option<f64>,
    ) -> Result<Judged> {
        let AdamWOptions { betas, eps, weight_decay } = self.options;
        let said =
            [arguments.rate, limit.unwrap_or(0.0), arguments.factor, betas[0], betas[1], eps, weight_decay];
        let bytes: Vec<u8> = said.into_iter().flat_map(f64::to_le_bytes).collect();
        device.write(self.step, &bytes)?;
        device.run(&self.tape)?;
        let mut bytes = [0; 8 * (DOUBLES - FOUND)];
        device.read(self.step + 8 * FOUND as Place, &mut bytes)?;
        let number = |index: usize| {
            let mut own = [0; 8];
            own.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            f64::from_le_bytes(own)
        };
        let finite = number(5) != 0.0;
        Ok(Judged { length: number(0) / arguments.factor, finite, count: number(1) as u64 })
    }

    /// Puts averages and the count of steps into the tables of a checkpoint.
    pub(super) fn read<D: Device>(
        &self,
        device: &mut D,
        parameters: &Parameters<f32>,
        tables: &mut Tables,
    ) -> Result<()> {
        for (index, places, count) in &self.averages {
            for (slot, place) in SLOTS.into_iter().zip(places) {
                let mut numbers = vec![0.0; *count];
                read_floats(device, *place, &mut numbers)?;
                tables.insert(table(slot, &parameters.list[*index].name), Data::Numbers(numbers));
            }
        }
        let mut bytes = [0; 8];
        device.read(self.step + 8 * COUNT as Place, &mut bytes)?;
        tables.insert(STEPS.to_owned(), Data::Bytes(bytes_of([f64::from_le_bytes(bytes) as u64])));
        Ok(())
    }

    /// Takes them from there.
    pub(super) fn write<D: Device>(
        &self,
        device: &mut D,
        parameters: &Parameters<f32>,
        tables: &Tables,
    ) -> Result<()> {
        for (index, places, count) in &self.averages {
            for (slot, place) in SLOTS.into_iter().zip(places) {
                let name = table(slot, &parameters.list[*index].name);
                let mut data = Data::Numbers(vec![0.0; *count]);
                fill(&mut data, tables, &name);
                let Data::Numbers(numbers) = data else { continue };
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                device.write(*place, &bytes)?;
            }
        }
        let [steps] = words(tables, STEPS)?;
        device.write(self.step + 8 * COUNT as Place, &(steps as f64).to_le_bytes())
    }
}

/// The names of both averages, as the optimiser of the CPU has them, and of the count of steps.
const SLOTS: [&str; 2] = ["first", "second"];
const STEPS: &str = "optimiser.adamw";

fn table(slot: &str, tensor: &str) -> String {
    format!("{STEPS}.{slot}.{tensor}")
}
