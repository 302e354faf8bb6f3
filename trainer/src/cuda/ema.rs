//! The moving average of trained weights, on a device.

use siskin_device::{CommandList, Device, DevicePtr, KernelArgument, Precision};
use siskin_format::Result;

use super::optimizer::{
    AllTensors, OptimizedWeight, StateTable, permanent_commands, put, read_tables, write_tables,
};
use super::weights::{DeviceWeights, TrainedWeight};
use crate::ema::{self, EmaOptions};
use crate::state::{TableData, Tables, bytes_of, words};

/// The average: slot 0 of each tensor, as in `runtime/cuda/kernels/ema.cu`.
pub(super) struct DeviceEma {
    options: EmaOptions,
    count: u64,
    list: Vec<OptimizedWeight>,
    update: CommandList,
    swap: CommandList,
}

impl DeviceEma {
    /// Initializes the average with the weights; `step` is the place of the optimizer's step data.
    pub(super) fn new(
        device: &mut dyn Device,
        precision: Precision,
        weights: &DeviceWeights,
        own: &ema::ExponentialMovingAverage,
        step: DevicePtr,
    ) -> Result<Self> {
        let mut list = Vec::new();
        let mut begin = CommandList::new(Precision::F32);
        for TrainedWeight { index, values: weight, gradient } in weights.trained() {
            let Some(name) = own.table_of(index) else { continue };
            let bytes = 4 * weight.count();
            let place = device.allocate(bytes)?;
            let arguments =
                [KernelArgument::Ptr(weight.f32), KernelArgument::Ptr(place), KernelArgument::Int(0)];
            begin.elementwise("copy_or_accumulate", weight.count(), &arguments);
            let tables = vec![StateTable { name, place, bytes, floats: true }];
            list.push(OptimizedWeight {
                weight,
                gradient,
                rows: 1,
                columns: weight.count(),
                rate: 1.0,
                decay: 1.0,
                tables,
            });
        }
        device.run(&begin)?;
        let all = AllTensors { list: &list, tensors: put(device, &list, |_| 1.0)?, step };
        let follow = permanent_commands(device, precision, |work| {
            let parts = all.parts(work, "all", |_| true);
            all.run(work, "ema_update", parts, &[]);
        })?;
        let swap = permanent_commands(device, precision, |work| {
            let parts = all.parts(work, "all", |_| true);
            let name = work.commands.kernel_name("ema_swap");
            all.launch(work, &name, parts, &[]);
        })?;
        Ok(Self { options: own.options().clone(), count: 0, list, update: follow, swap })
    }

    /// Returns the command list that updates the average after a successful step.
    pub(super) fn update_commands(&self) -> &CommandList {
        &self.update
    }

    /// Returns the interpolation weight of the update, an argument of the step.
    pub(super) fn update_weight(&self) -> f64 {
        f64::from(self.options.update_weight(self.count))
    }

    /// Counts a successful step.
    pub(super) fn count(&mut self) {
        self.count += 1;
    }

    /// Swaps the average and the weights; a second call restores them.
    pub(super) fn swap(&self, device: &mut dyn Device) -> Result<()> {
        device.run(&self.swap)
    }

    /// Copies all tables and the step count into those of a checkpoint.
    pub(super) fn read(&self, device: &mut dyn Device, tables: &mut Tables) -> Result<()> {
        read_tables(&self.list, device, tables)?;
        tables.insert(ema::STEPS.to_owned(), TableData::Bytes(bytes_of([self.count])));
        Ok(())
    }

    /// Loads them from a checkpoint.
    pub(super) fn write(&mut self, device: &mut dyn Device, tables: &Tables) -> Result<()> {
        write_tables(&self.list, device, tables)?;
        [self.count] = words(tables, ema::STEPS)?;
        Ok(())
    }
}
