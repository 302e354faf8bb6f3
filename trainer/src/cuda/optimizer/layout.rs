//! The layout of tensors in the kernels of optimizers.

use siskin_cuda::ops::DeviceWeight;
use siskin_device::{Device, DevicePtr, GridSize, KernelArgument};
use siskin_format::Result;

use crate::cuda::weights::read_floats;
use crate::state::{TableData, Tables, fill};
use siskin_cuda::CommandBuilder;

/// Elements that a block processes, and its threads: as in `runtime/cuda/kernels/optimizer.cuh`.
const PART: usize = 1 << 14;
pub(super) const THREADS: usize = 256;
/// The maximum number of state tables of a tensor.
const SLOTS: usize = 4;

/// A trained tensor, and its state tables.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct OptimizedWeight {
    pub(in crate::cuda) weight: DeviceWeight,
    /// Its gradient, as f32.
    pub(in crate::cuda) gradient: DevicePtr,
    pub(in crate::cuda) rows: usize,
    pub(in crate::cuda) columns: usize,
    /// The factors on its learning rate and weight decay.
    pub(in crate::cuda) rate: f64,
    pub(in crate::cuda) decay: f64,
    pub(in crate::cuda) tables: Vec<StateTable>,
}

/// A state table of a tensor.
#[derive(Clone, Debug)]
pub(in crate::cuda) struct StateTable {
    /// Its name in a checkpoint.
    pub(in crate::cuda) name: String,
    pub(in crate::cuda) place: DevicePtr,
    pub(in crate::cuda) bytes: usize,
    /// Whether its elements are f32.
    pub(in crate::cuda) floats: bool,
}

impl StateTable {
    /// Copies it in the form of a checkpoint.
    fn read(&self, device: &mut dyn Device) -> Result<TableData> {
        if self.floats {
            let mut numbers = vec![0.0; self.bytes / 4];
            read_floats(device, self.place, &mut numbers)?;
            return Ok(TableData::Numbers(numbers));
        }
        let mut bytes = vec![0; self.bytes];
        device.read(self.place, &mut bytes)?;
        Ok(TableData::Bytes(bytes))
    }

    /// Loads it from a checkpoint.
    fn write(&self, device: &mut dyn Device, tables: &Tables) -> Result<()> {
        let mut data = match self.floats {
            true => TableData::Numbers(vec![0.0; self.bytes / 4]),
            false => TableData::Bytes(vec![0; self.bytes]),
        };
        fill(&mut data, tables, &self.name);
        match data {
            TableData::Numbers(numbers) => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                device.write(self.place, &bytes)
            }
            TableData::Bytes(bytes) => device.write(self.place, &bytes),
        }
    }
}

/// Copies all state tables into those of a checkpoint.
pub(in crate::cuda) fn read_tables(
    list: &[OptimizedWeight],
    device: &mut dyn Device,
    tables: &mut Tables,
) -> Result<()> {
    for table in list.iter().flat_map(|held| &held.tables) {
        tables.insert(table.name.clone(), table.read(device)?);
    }
    Ok(())
}

/// Loads them from a checkpoint.
pub(in crate::cuda) fn write_tables(
    list: &[OptimizedWeight],
    device: &mut dyn Device,
    tables: &Tables,
) -> Result<()> {
    list.iter().flat_map(|held| &held.tables).try_for_each(|table| table.write(device, tables))
}

/// Writes tensor descriptors for kernels: `Tensor` in `runtime/cuda/kernels/optimizer.cuh`.
pub(in crate::cuda) fn put(
    device: &mut dyn Device,
    list: &[OptimizedWeight],
    rate: impl Fn(&OptimizedWeight) -> f64,
) -> Result<DevicePtr> {
    let mut bytes: Vec<u8> = Vec::new();
    for held in list {
        let OptimizedWeight { weight, gradient, rows, columns, decay, tables, .. } = held;
        let copy = if weight.compute == weight.f32 { 0 } else { weight.compute };
        let mut words = vec![weight.f32, copy, *gradient];
        words.extend((0..SLOTS).map(|slot| tables.get(slot).map_or(0, |table| table.place)));
        words.push(weight.count() as u64);
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.extend([*rows, *columns].into_iter().flat_map(|size| (size as i32).to_le_bytes()));
        let factors = [(held.rate * rate(held)) as f32, *decay as f32];
        bytes.extend(factors.into_iter().flat_map(f32::to_le_bytes));
    }
    let place = device.allocate(bytes.len())?;
    device.write(place, &bytes)?;
    Ok(place)
}

/// All tensors, their descriptors, and the place of the step data.
#[derive(Clone, Copy)]
pub(in crate::cuda) struct AllTensors<'a> {
    pub(in crate::cuda) list: &'a [OptimizedWeight],
    pub(in crate::cuda) tensors: DevicePtr,
    pub(in crate::cuda) step: DevicePtr,
}

/// A work list of tensor parts: its place and length.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct TensorParts {
    pub(in crate::cuda) place: DevicePtr,
    pub(in crate::cuda) count: usize,
}

/// Returns the number of parts of a tensor.
pub(super) fn parts_of(held: &OptimizedWeight) -> usize {
    held.weight.count().div_ceil(PART)
}

impl AllTensors<'_> {
    /// Returns the tensors for which `takes` returns true, with their indices.
    pub(super) fn of(
        &self,
        takes: impl Fn(&OptimizedWeight) -> bool,
    ) -> impl Iterator<Item = (usize, &OptimizedWeight)> {
        self.list.iter().enumerate().filter(move |(_, held)| takes(held))
    }

    /// Builds the parts of those tensors; `name` is that of the list.
    pub(in crate::cuda) fn parts(
        &self,
        work: &mut CommandBuilder<'_>,
        name: &str,
        takes: impl Fn(&OptimizedWeight) -> bool,
    ) -> TensorParts {
        let of = |(tensor, held): (usize, &OptimizedWeight)| {
            (0..parts_of(held)).flat_map(move |part| [tensor as i32, part as i32])
        };
        let list: Vec<i32> = self.of(takes).flat_map(of).collect();
        let count = list.len() / 2;
        TensorParts { place: work.tables.ints(&format!("parts of {name}"), || list), count }
    }

    /// Appends a kernel by its full name, with one block per part; its arguments are tensors, parts, the step, and
    /// `more`.
    pub(in crate::cuda) fn run(
        &self,
        work: &mut CommandBuilder<'_>,
        kernel: &str,
        parts: TensorParts,
        more: &[KernelArgument],
    ) {
        let own = [self.tensors, parts.place, self.step].map(KernelArgument::Ptr);
        work.commands.kernel(kernel, GridSize::linear(parts.count), THREADS, 0, &[&own[..], more].concat());
    }

    /// Like [`Self::run`], for a kernel that does not take the step.
    pub(in crate::cuda) fn launch(
        &self,
        work: &mut CommandBuilder<'_>,
        kernel: &str,
        parts: TensorParts,
        more: &[KernelArgument],
    ) {
        let own = [self.tensors, parts.place].map(KernelArgument::Ptr);
        work.commands.kernel(kernel, GridSize::linear(parts.count), THREADS, 0, &[&own[..], more].concat());
    }
}
