//! SGD on a device.

use siskin::Result;

use super::{All, DeviceUpdateRule, TapeBuilder};
use crate::optimizer::SgdOptions;
use crate::settings::{Settings, read};

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<SgdOptions>("sgd", settings)?))
}

impl DeviceUpdateRule for SgdOptions {
    /// Returns the values in the order of `OfSgd` in `kernels/cuda/sgd.cu`.
    fn says(&self, count: u64) -> Vec<f64> {
        let share = if count == 1 { 1.0 } else { 1.0 - self.dampening };
        vec![self.weight_decay, self.momentum, share, f64::from(u8::from(self.nesterov))]
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, all: &All<'_>) {
        let parts = all.parts(work, "all", |_| true);
        let name = work.tape.named("sgd");
        all.run(work, &name, parts, &[]);
    }
}
