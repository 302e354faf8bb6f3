//! The moving average of trained weights, on a device.

use siskin::Result;

use super::Precision;
use super::device::Device;
use super::optimizer::{All, Held, StateTable, put, read_tables, write_down, write_tables};
use super::tape::{KernelArgument, Place, Tape};
use super::weights::DeviceWeights;
use crate::average::{self, AverageOptions};
use crate::state::{TableData, Tables, bytes_of, words};

/// The average: slot 0 of each tensor, as in `kernels/cuda/average.cu`.
pub(super) struct DeviceAverage {
    options: AverageOptions,
    count: u64,
    list: Vec<Held>,
    follow: Tape,
    swap: Tape,
}

impl DeviceAverage {
    /// Initializes the average with the weights; `step` is the place of the optimizer's step data.
    pub(super) fn new<D: Device>(
        device: &mut D,
        precision: Precision,
        weights: &DeviceWeights,
        own: &average::MovingAverage,
        step: Place,
    ) -> Result<Self> {
        let mut list = Vec::new();
        let mut begin = Tape::new(Precision::F32);
        for (index, weight) in weights.list.iter().enumerate() {
            let Some(name) = own.table_of(index).filter(|_| weight.gradient > 0) else { continue };
            let bytes = 4 * weight.count;
            let place = device.allocate(bytes)?;
            let arguments = [
                KernelArgument::Place(weight.floats),
                KernelArgument::Place(place),
                KernelArgument::Whole(0),
            ];
            begin.numbers("hand_on", weight.count, &arguments);
            let tables = vec![StateTable { name, place, bytes, floats: true }];
            list.push(Held {
                weight: *weight,
                rows: 1,
                columns: weight.count,
                rate: 1.0,
                decay: 1.0,
                tables,
            });
        }
        device.run(&begin)?;
        let all = All { list: &list, tensors: put(device, &list, |_| 1.0)?, step };
        let follow = write_down(device, precision, |work| {
            let parts = all.parts(work, "all", |_| true);
            all.run(work, "follow_numbers", parts, &[]);
        })?;
        let swap = write_down(device, precision, |work| {
            let parts = all.parts(work, "all", |_| true);
            let name = work.tape.named("swap_numbers");
            all.launch(work, &name, parts, &[]);
        })?;
        Ok(Self { options: own.options().clone(), count: 0, list, follow, swap })
    }

    /// Returns the tape that updates the average after a successful step.
    pub(super) fn follow(&self) -> &Tape {
        &self.follow
    }

    /// Returns the interpolation weight of the update, an argument of the step.
    pub(super) fn share(&self) -> f64 {
        f64::from(self.options.share(self.count))
    }

    /// Counts a successful step.
    pub(super) fn count(&mut self) {
        self.count += 1;
    }

    /// Swaps the average and the weights; a second call restores them.
    pub(super) fn swap<D: Device>(&self, device: &mut D) -> Result<()> {
        device.run(&self.swap)
    }

    /// Copies all tables and the step count into those of a checkpoint.
    pub(super) fn read<D: Device>(&self, device: &mut D, tables: &mut Tables) -> Result<()> {
        read_tables(&self.list, device, tables)?;
        tables.insert(average::STEPS.to_owned(), TableData::Bytes(bytes_of([self.count])));
        Ok(())
    }

    /// Loads them from a checkpoint.
    pub(super) fn write<D: Device>(&mut self, device: &mut D, tables: &Tables) -> Result<()> {
        write_tables(&self.list, device, tables)?;
        [self.count] = words(tables, average::STEPS)?;
        Ok(())
    }
}
