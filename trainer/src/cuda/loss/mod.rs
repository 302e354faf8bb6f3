//! Losses on a device: a file with a type that implements `Loss`, and a line in `LOSSES`.

mod contrastive;
mod cross_entropy;
mod distillation;

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_format::{Error, Result};

use crate::batch::TrainingBatch;
use crate::loss::{self, Contrastive, CrossEntropy, Distillation, Targets};
use crate::settings::{Settings, read, unknown};
use siskin_cuda::{CommandBuilder, int};

type Build = fn(&Settings) -> Result<Objective>;

/// All device losses: name and constructor.
const LOSSES: &[(&str, Build)] = &[
    ("cross_entropy", |settings| Ok(read::<CrossEntropy>("loss", settings)?.into())),
    ("contrastive", |settings| Ok(read::<Contrastive>("loss", settings)?.into())),
    ("distillation", |settings| Ok(read::<Distillation>("loss", settings)?.into())),
];

/// Threads of kernels with one row per block.
const THREADS: usize = 512;

/// The training objective of a device.
pub struct Objective(Box<dyn DeviceLoss>);

impl Objective {
    /// Returns the loss that `settings` name, with its own settings.
    ///
    /// # Errors
    /// If no device has it, or a setting is unknown.
    pub fn named(settings: &Settings) -> Result<Self> {
        let mut settings = settings.clone();
        let name = settings.remove("name").and_then(|name| name.as_str().map(str::to_owned));
        let name = name.unwrap_or_default();
        let known: Vec<&str> = LOSSES.iter().map(|(name, _)| *name).collect();
        let found = LOSSES.iter().find(|(known, _)| *known == name);
        let (_, build) = found.ok_or_else(|| unknown("loss.name", "loss", &name, &known))?;
        build(&settings)
    }

    /// Returns the loss.
    pub(super) fn loss(&self) -> &dyn DeviceLoss {
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

objectives!(CrossEntropy, Contrastive, Distillation);

/// A range of output rows, which are replaced by their gradient.
#[derive(Clone, Copy)]
pub(super) struct DeviceOutputs<'a> {
    /// The index of the first row.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from a row to the next.
    pub(super) stride: usize,
    pub(super) place: DevicePtr,
    /// Three f32 per row: loss, weight and accuracy.
    pub(super) results: DevicePtr,
    /// Three f64, to which the results are added.
    pub(super) sums: DevicePtr,
    /// The factor on gradients, an f64.
    pub(super) scale: DevicePtr,
    pub(super) batch: &'a TrainingBatch,
    pub(super) targets: &'a Targets,
    /// Whether gradients are computed.
    pub(super) back: bool,
}

/// A loss; the weight of a batch, and whether rows can be processed in chunks, are as on the CPU.
pub(super) trait DeviceLoss: loss::Loss<f32> {
    /// Rejects targets that would read out of bounds.
    fn check(&self, batch: &TrainingBatch, targets: &Targets, shape: MatrixShape) -> Result<()>;

    /// Appends the loss of rows to the command list.
    fn record(&self, work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>);
}

/// Rejects fewer than `rows` targets, and targets out of range of the columns.
fn check_rows(targets: &Targets, MatrixShape { rows, columns }: MatrixShape) -> Result<()> {
    if targets.ids.len() < rows || targets.weights.len() < rows {
        return Err(Error::argument("targets", "there are fewer targets than output rows"));
    }
    let mut counted = targets.ids.iter().zip(&targets.weights);
    if let Some((id, _)) = counted.find(|(id, weight)| **weight != 0.0 && **id as usize >= columns) {
        return Err(Error::argument("targets", format!("target {id} is out of range for {columns} classes")));
    }
    Ok(())
}

/// Returns the places of the targets of rows, and of their weights.
fn lists(work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>) -> [KernelArgument; 2] {
    let Targets { ids, weights, .. } = outputs.targets;
    let after = 4 * outputs.first as DevicePtr;
    let ids = work.tables.ints("targets", || ids.iter().map(|&id| id as i32).collect());
    let weights = work.tables.floats("weights of targets", || weights.clone());
    [ids + after, weights + after].map(KernelArgument::Ptr)
}

/// Adds up the results of rows, in `parts` parts.
fn add_results(work: &mut CommandBuilder<'_>, outputs: &DeviceOutputs<'_>, rows: usize, parts: usize) {
    let arguments =
        [KernelArgument::Ptr(outputs.results), int(rows), int(parts), KernelArgument::Ptr(outputs.sums)];
    work.commands.kernel("sum_results", GridSize::linear(1), THREADS, 0, &arguments);
}
