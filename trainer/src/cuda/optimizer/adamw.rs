//! Adam and AdamW on a device.

use siskin_format::Result;

use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::{AdamOptions, AdamSettings, AdamWOptions};
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

pub(super) fn adamw(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<AdamWOptions>("adamw", settings)?.moments("adamw")?))
}

pub(super) fn adam(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<AdamOptions>("adam", settings)?.moments()?))
}

impl DeviceUpdateRule for AdamSettings {
    /// Returns the values in the order of `OfMoments` in `runtime/cuda/kernels/optimizer.cuh`.
    fn step_values(&self, count: u64) -> Vec<f64> {
        let [first, second] = self.betas;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let inverse_root = (1.0 - second.powi(count)).sqrt().recip();
        vec![
            1.0 - first,
            second,
            1.0 - second,
            inverse_root,
            self.eps,
            1.0 - first.powi(count),
            self.weight_decay,
            f64::from(u8::from(self.decoupled)),
        ]
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        let parts = all.parts(work, "adamw", |held| held.tables.len() == 2);
        let name = work.commands.kernel_name("adamw");
        all.run(work, &name, parts, &[]);
    }
}
