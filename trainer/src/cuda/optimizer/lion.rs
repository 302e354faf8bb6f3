//! Lion (arXiv:2302.06675) on a device.

use siskin::Result;

use super::{All, DeviceUpdateRule, TapeBuilder};
use crate::optimizer::LionOptions;
use crate::settings::{Settings, read};

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<LionOptions>("lion", settings)?))
}

impl DeviceUpdateRule for LionOptions {
    /// Returns the values in the order of `OfLion` in `kernels/cuda/lion.cu`.
    fn says(&self, _: u64) -> Vec<f64> {
        let [ahead, behind] = self.betas;
        vec![ahead, 1.0 - ahead, behind, 1.0 - behind, self.weight_decay]
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, all: &All<'_>) {
        let parts = all.parts(work, "all", |_| true);
        let name = work.tape.named("lion");
        all.run(work, &name, parts, &[]);
    }
}
