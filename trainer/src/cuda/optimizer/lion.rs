//! Lion (arXiv:2302.06675) on a device.

use siskin_format::Result;

use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::LionOptions;
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<LionOptions>("lion", settings)?))
}

impl DeviceUpdateRule for LionOptions {
    /// Returns the values in the order of `OfLion` in `runtime/cuda/kernels/lion.cu`.
    fn step_values(&self, _: u64) -> Vec<f64> {
        let [beta1, beta2] = self.betas;
        vec![beta1, 1.0 - beta1, beta2, 1.0 - beta2, self.weight_decay]
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        let parts = all.parts(work, "all", |_| true);
        let name = work.commands.kernel_name("lion");
        all.run(work, &name, parts, &[]);
    }
}
