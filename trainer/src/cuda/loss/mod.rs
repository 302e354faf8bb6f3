//! Losses on a device: a file with a type that is a `Loss`, and a line in `LOSSES`.

mod contrastive;
mod cross_entropy;
mod distil;

use siskin::{Error, Result};

use super::op::{Work, whole};
use super::tape::{Argument, Place};
use crate::batch::Batch;
use crate::loss::{self, Contrastive, CrossEntropy, Distil, Targets};
use crate::settings::{Settings, read, unknown};

type Build = fn(&Settings) -> Result<Objective>;

/// Every loss that devices have: its name, and what makes it.
const LOSSES: &[(&str, Build)] = &[
    ("cross_entropy", |settings| Ok(read::<CrossEntropy>("loss", settings)?.into())),
    ("contrastive", |settings| Ok(read::<Contrastive>("loss", settings)?.into())),
    ("distil", |settings| Ok(read::<Distil>("loss", settings)?.into())),
];

/// Threads of kernels that have a row in each block.
const THREADS: usize = 512;

/// What a device trains towards.
pub struct Objective(Box<dyn Loss>);

impl Objective {
    /// The loss that `settings` name, with its own settings beside the name.
    ///
    /// # Errors
    /// Where no device has it, or a setting is not known.
    pub fn named(settings: &Settings) -> Result<Self> {
        let mut settings = settings.clone();
        let name = settings.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        let name = name.unwrap_or_default();
        let known: Vec<&str> = LOSSES.iter().map(|(name, _)| *name).collect();
        let found = LOSSES.iter().find(|(known, _)| *known == name);
        let (_, build) = found.ok_or_else(|| unknown("loss.name", "loss", &name, &known))?;
        build(&settings)
    }

    /// How far off, as work.
    pub(super) fn loss(&self) -> &dyn Loss {
        &*self.0
    }
}

impl Default for Objective {
    fn default() -> Self {
        CrossEntropy::default().into()
    }
}

macro_rules! objectives {
    ($($loss:ty),*) => {$(
        impl From<$loss> for Objective {
            fn from(loss: $loss) -> Self {
                Self(Box::new(loss))
            }
        }
    )*};
}

objectives!(CrossEntropy, Contrastive, Distil);

/// Rows that left the program, whose gradient comes in their place.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    /// The number of the first row.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From a row to the next.
    pub(super) stride: usize,
    pub(super) place: Place,
    /// Room for three floats of each row: loss, weight and what was right.
    pub(super) results: Place,
    /// Three doubles, which the results are added to.
    pub(super) sums: Place,
    /// The factor on gradients, as a double.
    pub(super) scale: Place,
    pub(super) batch: &'a Batch,
    pub(super) targets: &'a Targets,
    /// Whether gradients are wanted.
    pub(super) back: bool,
}

/// How far off; what a batch counts, and whether rows can come in parts, is as on the CPU.
pub(super) trait Loss: loss::Loss<f32> {
    /// Refuses what would read beyond tables.
    fn check(&self, batch: &Batch, targets: &Targets, shape: [usize; 2]) -> Result<()>;

    /// Writes down how far off rows are.
    fn write_down(&self, work: &mut Work<'_>, outputs: &Outputs<'_>);
}

/// Refuses targets of fewer than `rows`, and of other columns than there are.
fn check_rows(targets: &Targets, [rows, columns]: [usize; 2]) -> Result<()> {
    if targets.ids.len() < rows || targets.weights.len() < rows {
        return Err(Error::argument("targets", "fewer than rows"));
    }
    let mut counted = targets.ids.iter().zip(&targets.weights);
    if let Some((id, _)) = counted.find(|(id, weight)| **weight != 0.0 && **id as usize >= columns) {
        return Err(Error::argument("targets", format!("{id} is beyond the {columns} columns")));
    }
    Ok(())
}

/// Where the targets of rows are, and their weights.
fn lists(work: &mut Work<'_>, outputs: &Outputs<'_>) -> [Argument; 2] {
    let Targets { ids, weights, .. } = outputs.targets;
    let after = 4 * outputs.first as Place;
    let ids = work.sheet.whole("targets", || ids.iter().map(|&id| id as i32).collect());
    let weights = work.sheet.floats("weights of targets", || weights.clone());
    [ids + after, weights + after].map(Argument::Place)
}

/// Adds the results of rows that come `parts` times.
fn add_results(work: &mut Work<'_>, outputs: &Outputs<'_>, [rows, parts]: [usize; 2]) {
    let arguments =
        [Argument::Place(outputs.results), whole(rows), whole(parts), Argument::Place(outputs.sums)];
    work.tape.kernel("add_results", [1, 1, 1], THREADS, 0, &arguments);
}
