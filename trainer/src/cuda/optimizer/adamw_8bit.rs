//! 8-bit AdamW (arXiv:2110.02861) on a device; small tensors keep f32 averages.

use siskin_device::KernelArgument;
use siskin_format::Result;

use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::{AdamSettings, AdamW8bitOptions, dynamic_codebook};
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(DeviceAdamW8bit { moments: read::<AdamW8bitOptions>("adamw_8bit", settings)?.moments()? }))
}

struct DeviceAdamW8bit {
    moments: AdamSettings,
}

impl DeviceUpdateRule for DeviceAdamW8bit {
    fn step_values(&self, count: u64) -> Vec<f64> {
        self.moments.step_values(count)
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        self.moments.record(work, all);
        let parts = all.parts(work, "bytes", |held| held.tables.len() == 4);
        let codes =
            work.tables.floats("codes", || [true, false].into_iter().flat_map(dynamic_codebook).collect());
        let name = work.commands.kernel_name("adamw_8bit");
        all.run(work, &name, parts, &[KernelArgument::Ptr(codes)]);
    }
}
