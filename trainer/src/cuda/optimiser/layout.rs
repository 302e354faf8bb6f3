//! Tensors as the kernels of optimisers find them.

use siskin::Result;

use crate::cuda::device::Device;
use crate::cuda::op::Work;
use crate::cuda::tape::{Argument, Place};
use crate::cuda::weights::{Weight, read_floats};
use crate::state::{Data, Tables, fill};

/// Numbers that a block takes, and its threads: as `kernels/cuda/optimiser.cuh`.
const PART: usize = 1 << 14;
pub(super) const THREADS: usize = 256;
/// Tables that a tensor may have.
const SLOTS: usize = 4;

/// A tensor that is trained, and its tables.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct Held {
    pub(in crate::cuda) weight: Weight,
    pub(in crate::cuda) rows: usize,
    pub(in crate::cuda) columns: usize,
    /// What its rate and its decay are multiplied by.
    pub(in crate::cuda) rate: f64,
    pub(in crate::cuda) decay: f64,
    pub(in crate::cuda) tables: Vec<Table>,
}

/// One of a tensor's tables.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct Table {
    /// As a checkpoint names it.
    pub(in crate::cuda) name: String,
    pub(in crate::cuda) place: Place,
    pub(in crate::cuda) bytes: usize,
    /// Whether it is floats.
    pub(in crate::cuda) floats: bool,
}

impl Table {
    /// As a checkpoint holds it.
    fn read<D: Device>(&self, device: &mut D) -> Result<Data> {
        if self.floats {
            let mut numbers = vec![0.0; self.bytes / 4];
            read_floats(device, self.place, &mut numbers)?;
            return Ok(Data::Numbers(numbers));
        }
        let mut bytes = vec![0; self.bytes];
        device.read(self.place, &mut bytes)?;
        Ok(Data::Bytes(bytes))
    }

    /// Takes what a checkpoint holds.
    fn write<D: Device>(&self, device: &mut D, tables: &Tables) -> Result<()> {
        let mut data = match self.floats {
            true => Data::Numbers(vec![0.0; self.bytes / 4]),
            false => Data::Bytes(vec![0; self.bytes]),
        };
        fill(&mut data, tables, &self.name);
        match data {
            Data::Numbers(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                device.write(self.place, &bytes)
            }
            Data::Bytes(bytes) => device.write(self.place, &bytes),
        }
    }
}

/// Puts all tables of tensors into those of a checkpoint.
pub(in crate::cuda) fn read_tables<D: Device>(
    list: &[Held],
    device: &mut D,
    tables: &mut Tables,
) -> Result<()> {
    for table in list.iter().flat_map(|held| &held.tables) {
        tables.insert(table.name.clone(), table.read(device)?);
    }
    Ok(())
}

/// Takes them from there.
pub(in crate::cuda) fn write_tables<D: Device>(list: &[Held], device: &mut D, tables: &Tables) -> Result<()> {
    list.iter().flat_map(|held| &held.tables).try_for_each(|table| table.write(device, tables))
}

/// Writes tensors down where kernels find them: `Tensor` in `kernels/cuda/optimiser.cuh`.
pub(in crate::cuda) fn put<D: Device>(
    device: &mut D,
    list: &[Held],
    rate: impl Fn(&Held) -> f64,
) -> Result<Place> {
    let mut bytes: Vec<u8> = Vec::new();
    for held in list {
        let Held { weight, rows, columns, decay, tables, .. } = held;
        let copy = if weight.numbers == weight.floats { 0 } else { weight.numbers };
        let mut words = vec![weight.floats, copy, weight.gradient];
        words.extend((0..SLOTS).map(|slot| tables.get(slot).map_or(0, |table| table.place)));
        words.push(weight.count as u64);
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.extend([*rows, *columns].into_iter().flat_map(|size| (size as i32).to_le_bytes()));
        let factors = [(held.rate * rate(held)) as f32, *decay as f32];
        bytes.extend(factors.into_iter().flat_map(f32::to_le_bytes));
    }
    let place = device.allocate(bytes.len())?;
    device.write(place, &bytes)?;
    Ok(place)
}

/// All tensors, where kernels find them, and where a step's numbers are.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct All<'a> {
    pub(in crate::cuda) list: &'a [Held],
    pub(in crate::cuda) tensors: Place,
    pub(in crate::cuda) step: Place,
}

/// Parts of tensors: where their list is, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Parts {
    pub(in crate::cuda) place: Place,
    pub(in crate::cuda) count: usize,
}

/// How many parts a tensor has.
pub(super) fn parts_of(held: &Held) -> usize {
    held.weight.count.div_ceil(PART)
}

impl All<'_> {
    /// The tensors that `takes` names, with their numbers.
    pub(super) fn of(&self, takes: impl Fn(&Held) -> bool) -> impl Iterator<Item = (usize, &Held)> {
        self.list.iter().enumerate().filter(move |(_, held)| takes(held))
    }

    /// The parts of those tensors; `name` is that of the list.
    pub(in crate::cuda) fn parts(
        &self,
        work: &mut Work<'_>,
        name: &str,
        takes: impl Fn(&Held) -> bool,
    ) -> Parts {
        let of = |(tensor, held): (usize, &Held)| {
            (0..parts_of(held)).flat_map(move |part| [tensor as i32, part as i32])
        };
        let list: Vec<i32> = self.of(takes).flat_map(of).collect();
        let count = list.len() / 2;
        Parts { place: work.sheet.whole(&format!("parts of {name}"), || list), count }
    }

    /// A kernel by its whole name, with a block for each part: it is told tensors, parts, the step, and `more`.
    pub(in crate::cuda) fn run(&self, work: &mut Work<'_>, kernel: &str, parts: Parts, more: &[Argument]) {
        let own = [self.tensors, parts.place, self.step].map(Argument::Place);
        work.tape.kernel(kernel, [parts.count, 1, 1], THREADS, 0, &[&own[..], more].concat());
    }

    /// The same for a kernel that does not look at the step.
    pub(in crate::cuda) fn launch(&self, work: &mut Work<'_>, kernel: &str, parts: Parts, more: &[Argument]) {
        let own = [self.tensors, parts.place].map(Argument::Place);
        work.tape.kernel(kernel, [parts.count, 1, 1], THREADS, 0, &[&own[..], more].concat());
    }
}
