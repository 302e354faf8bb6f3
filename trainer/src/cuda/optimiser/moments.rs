//! Adam and AdamW.

use siskin::Result;

use super::{All, Method, Work};
use crate::optimiser::{AdamOptions, AdamWOptions};
use crate::settings::{Settings, read};

/// What both have in common.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    pub(super) betas: [f64; 2],
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
    /// Whether numbers decay by themselves; otherwise their decay is part of the gradient.
    pub(super) decoupled: bool,
}

impl From<AdamWOptions> for Moments {
    fn from(AdamWOptions { betas, eps, weight_decay }: AdamWOptions) -> Self {
        Self { betas, eps, weight_decay, decoupled: true }
    }
}

pub(super) fn adamw(settings: &Settings) -> Result<Box<dyn Method>> {
    Ok(Box::new(Moments::from(read::<AdamWOptions>("adamw", settings)?)))
}

pub(super) fn adam(settings: &Settings) -> Result<Box<dyn Method>> {
    let AdamOptions { betas, eps, weight_decay } = read("adam", settings)?;
    Ok(Box::new(Moments { betas, eps, weight_decay, decoupled: false }))
}

impl Method for Moments {
    /// In the order of `OfMoments` in `kernels/cuda/optimiser.cuh`.
    fn says(&self, count: u64) -> Vec<f64> {
        let [first, second] = self.betas;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let root = (1.0 - second.powi(count)).sqrt();
        vec![
            1.0 - first,
            second,
            1.0 - second,
            root,
            self.eps,
            1.0 - first.powi(count),
            self.weight_decay,
            f64::from(u8::from(self.decoupled)),
        ]
    }

    fn write_down(&self, work: &mut Work<'_>, all: &All<'_>) {
        let parts = all.parts(work, "moments", |held| held.tables.len() == 2);
        let name = work.tape.named("moments");
        all.run(work, &name, parts, &[]);
    }
}
