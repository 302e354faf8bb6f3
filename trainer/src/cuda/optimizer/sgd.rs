//! SGD on a device.

use siskin_format::Result;

use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::SgdOptions;
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<SgdOptions>("sgd", settings)?))
}

impl DeviceUpdateRule for SgdOptions {
    /// Returns the values in the order of `OfSgd` in `runtime/cuda/kernels/sgd.cu`.
    fn step_values(&self, count: u64) -> Vec<f64> {
        let gradient_weight = if count == 1 { 1.0 } else { 1.0 - self.dampening };
        vec![self.weight_decay, self.momentum, gradient_weight, f64::from(u8::from(self.nesterov))]
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        let parts = all.parts(work, "all", |_| true);
        let name = work.commands.kernel_name("sgd");
        all.run(work, &name, parts, &[]);
    }
}
