//! 8-bit AdamW (arXiv:2110.02861) on a device; small tensors keep f32 averages.

use siskin::Result;

use super::{All, DeviceUpdateRule, KernelArgument, TapeBuilder};
use crate::optimizer::{AdamSettings, AdamW8Options, codes_of_bytes};
use crate::settings::{Settings, read};

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(AdamW8 { moments: read::<AdamW8Options>("adamw8", settings)?.moments()? }))
}

struct AdamW8 {
    moments: AdamSettings,
}

impl DeviceUpdateRule for AdamW8 {
    fn says(&self, count: u64) -> Vec<f64> {
        self.moments.says(count)
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, all: &All<'_>) {
        self.moments.write_down(work, all);
        let parts = all.parts(work, "bytes", |held| held.tables.len() == 4);
        let codes =
            work.sheet.floats("codes", || [true, false].into_iter().flat_map(codes_of_bytes).collect());
        let name = work.tape.named("adamw8");
        all.run(work, &name, parts, &[KernelArgument::Place(codes)]);
    }
}
