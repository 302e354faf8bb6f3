//! Losses and their gradients.

mod contrastive;
mod cross_entropy;
mod distillation;
#[cfg(test)]
mod tests;

pub use contrastive::{Contrastive, LossPooling};
pub(crate) use contrastive::{ContrastiveExamples, texts_of};
pub use cross_entropy::CrossEntropy;
pub use distillation::Distillation;

use siskin_format::Result;

use crate::batch::TrainingBatch;
use crate::real::Real;
use crate::settings::{Settings, read, unknown};

/// Creates a loss from its settings.
type Build = fn(&Settings) -> Result<Box<dyn Loss<f32>>>;

/// Every loss: name and constructor.
const LOSSES: &[(&str, Build)] = &[
    ("cross_entropy", |settings| Ok(Box::new(read::<CrossEntropy>("loss", settings)?))),
    ("contrastive", |settings| Ok(Box::new(read::<Contrastive>("loss", settings)?))),
    ("distillation", |settings| Ok(Box::new(read::<Distillation>("loss", settings)?))),
];

/// Returns the loss that `settings` name, with its own settings.
pub fn named(settings: &Settings) -> Result<Box<dyn Loss<f32>>> {
    let mut settings = settings.clone();
    let name = settings.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let known: Vec<&str> = LOSSES.iter().map(|(name, _)| *name).collect();
    let found = LOSSES.iter().find(|(known, _)| *known == name);
    let (_, build) = found.ok_or_else(|| unknown("loss.name", "loss", &name, &known))?;
    build(&settings)
}

/// The targets of the output rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// A token id, class or label for each row.
    pub ids: Vec<u32>,
    /// The weight of each row; zero for rows that do not count.
    pub weights: Vec<f32>,
    /// Teacher scores of each row, or embeddings; empty if unused.
    pub numbers: Vec<f32>,
}

/// A range of output rows.
#[derive(Clone, Copy, Debug)]
pub struct LossRows<'a, T> {
    /// The index of the first row.
    pub first: usize,
    /// Columns of a row.
    pub columns: usize,
    /// The values, row by row.
    pub numbers: &'a [T],
    /// The batch.
    pub batch: &'a TrainingBatch,
}

/// A sum of losses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossSum {
    /// The weighted sum over all rows.
    pub loss: f64,
    /// The sum of the weights.
    pub weight: f64,
    /// The weight of rows whose highest-scored column is the target.
    pub correct: f64,
    /// The auxiliary losses of routers, each times the weight of its batch.
    pub router_loss: f64,
}

impl LossSum {
    /// Adds another sum.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.weight += other.weight;
        self.correct += other.correct;
        self.router_loss += other.router_loss;
    }

    /// Returns the loss per unit of weight.
    pub fn mean(&self) -> f64 {
        self.loss / self.weight.max(f64::MIN_POSITIVE)
    }
}

/// A loss function.
pub trait Loss<T: Real>: Sync {
    /// Returns true if each row has a loss of its own, so that rows can be processed in chunks.
    fn by_rows(&self) -> bool {
        true
    }

    /// Returns the total weight of a batch.
    fn weight(&self, _: &TrainingBatch, targets: &Targets) -> f64 {
        targets.weights.iter().map(|weight| f64::from(*weight)).sum()
    }

    /// Returns the weighted sum of the rows' losses, and writes the gradient of that sum, times `scale`.
    fn add(
        &self,
        outputs: &LossRows<'_, T>,
        targets: &Targets,
        scale: f64,
        gradient: &mut [T],
    ) -> Result<LossSum>;
}
