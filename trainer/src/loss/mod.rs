//! How far outputs are from what they should be, and which way they should go.

mod contrastive;
mod cross_entropy;
mod distil;
#[cfg(test)]
mod tests;

pub(crate) use contrastive::texts_of;
pub use contrastive::{Contrastive, Pooling};
pub use cross_entropy::CrossEntropy;
pub use distil::Distil;

use siskin::Result;

use crate::batch::Batch;
use crate::real::Real;
use crate::settings::{Settings, read, unknown};

/// Makes a loss of its settings.
type Build = fn(&Settings) -> Result<Box<dyn Loss<f32>>>;

/// Every loss: its name, and what makes it.
const LOSSES: &[(&str, Build)] = &[
    ("cross_entropy", |settings| Ok(Box::new(read::<CrossEntropy>("loss", settings)?))),
    ("contrastive", |settings| Ok(Box::new(read::<Contrastive>("loss", settings)?))),
    ("distil", |settings| Ok(Box::new(read::<Distil>("loss", settings)?))),
];

/// The loss that `settings` name, with its own settings beside the name.
pub fn named(settings: &Settings) -> Result<Box<dyn Loss<f32>>> {
    let mut settings = settings.clone();
    let name = settings.remove("name").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
    let known: Vec<&str> = LOSSES.iter().map(|(name, _)| *name).collect();
    let found = LOSSES.iter().find(|(known, _)| *known == name);
    let (_, build) = found.ok_or_else(|| unknown("loss.name", "loss", &name, &known))?;
    build(&settings)
}

/// What outputs should be, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// A token, class or label for each row.
    pub ids: Vec<u32>,
    /// How much each row counts; zero for those that do not.
    pub weights: Vec<f32>,
    /// Numbers of each row of another model's outputs, or of vectors; empty where there are none.
    pub numbers: Vec<f32>,
}

/// Rows that left the program.
#[derive(Clone, Copy, Debug)]
pub struct Outputs<'a, T> {
    /// The number of the first row.
    pub first: usize,
    /// Columns of a row.
    pub columns: usize,
    /// Row by row.
    pub numbers: &'a [T],
    /// What went through.
    pub batch: &'a Batch,
}

/// Losses that were added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The sum over all rows, each times its weight.
    pub loss: f64,
    /// The sum of the weights.
    pub weight: f64,
    /// The weights of rows whose likeliest column was right.
    pub right: f64,
    /// The losses of routers, each times the weight of its batch.
    pub routers: f64,
}

impl Sum {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.weight += other.weight;
        self.right += other.right;
        self.routers += other.routers;
    }

    /// The loss of a row of weight one.
    pub fn mean(&self) -> f64 {
        self.loss / self.weight.max(f64::MIN_POSITIVE)
    }
}

/// How far off.
pub trait Loss<T: Real>: Sync {
    /// Whether each row has a loss of its own, so that rows can come in parts.
    fn by_rows(&self) -> bool {
        true
    }

    /// How much the losses of a batch count together.
    fn weight(&self, _: &Batch, targets: &Targets) -> f64 {
        targets.weights.iter().map(|weight| f64::from(*weight)).sum()
    }

    /// The sum of the rows' losses. Writes the gradient of that sum, times `scale`.
    fn add(&self, outputs: &Outputs<'_, T>, targets: &Targets, scale: f64, gradient: &mut [T])
    -> Result<Sum>;
}
