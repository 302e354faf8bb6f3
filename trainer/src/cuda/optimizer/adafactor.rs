//! Adafactor (arXiv:1804.04235) on a device: the update follows from sums over rows, columns and all elements of a
//! tensor.

use siskin_device::KernelArgument;
use siskin_format::Result;

use super::layout::{OptimizedWeight, THREADS, TensorParts};
use super::{AllTensors, DeviceUpdateRule};
use crate::optimizer::AdafactorOptions;
use crate::settings::{Settings, read};
use siskin_cuda::CommandBuilder;

/// Rows of a matrix that a block processes.
const ROWS: usize = 64;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<AdafactorOptions>("adafactor", settings)?))
}

/// Returns true if the second moment is factored into row and column averages.
fn is_matrix(held: &OptimizedWeight) -> bool {
    held.tables.len() == 2
}

/// Returns the number of parts of a tensor; a vector is one.
fn parts_of(held: &OptimizedWeight) -> usize {
    if is_matrix(held) { held.rows.div_ceil(ROWS) } else { 1 }
}

/// Work lists of kernels, as named in `runtime/cuda/kernels/adafactor.cu`: `Rows`, `Columns`, `Whole`.
#[derive(Default)]
struct WorkLists {
    rows: Vec<i32>,
    columns: Vec<i32>,
    whole: Vec<i32>,
    /// Elements for the column sums of all parts.
    partials: usize,
}

impl WorkLists {
    fn new(list: &[OptimizedWeight]) -> Self {
        let mut lists = Self::default();
        for (tensor, held) in list.iter().enumerate() {
            let (parts, first) = (parts_of(held), lists.rows.len() / 4);
            let partials = lists.partials;
            for part in 0..parts {
                let end = held.rows.min((part + 1) * ROWS);
                push(&mut lists.rows, [tensor, part * ROWS, end, lists.partials]);
                lists.partials += if is_matrix(held) { held.columns } else { 0 };
            }
            let columns = if is_matrix(held) { held.columns } else { 0 };
            for column in (0..columns).step_by(THREADS) {
                push(&mut lists.columns, [tensor, column, partials, parts]);
            }
            push(&mut lists.whole, [tensor, first, parts, 0]);
        }
        lists
    }
}

fn push(list: &mut Vec<i32>, numbers: [usize; 4]) {
    list.extend(numbers.map(|number| number as i32));
}

fn put(work: &mut CommandBuilder<'_>, name: &str, list: Vec<i32>) -> TensorParts {
    let count = list.len() / 4;
    TensorParts { place: work.tables.ints(name, || list), count }
}

impl DeviceUpdateRule for AdafactorOptions {
    /// Returns the values in the order of `OfAdafactor` in `runtime/cuda/kernels/adafactor.cu`.
    fn step_values(&self, count: u64) -> Vec<f64> {
        let count = count as f64;
        let max_rate = count.sqrt().recip();
        let relative = if self.relative_step { max_rate.min(0.01) } else { 0.0 };
        vec![
            count.powf(self.beta2_decay),
            self.eps[0] * self.eps[0],
            self.eps[0],
            self.eps[1],
            self.clip_threshold,
            self.weight_decay,
            f64::from(u8::from(self.scale_parameter)),
            relative,
            max_rate,
        ]
    }

    fn record(&self, work: &mut CommandBuilder<'_>, all: &AllTensors<'_>) {
        let WorkLists { rows, columns, whole, partials } = WorkLists::new(all.list);
        let rows = put(work, "rows", rows);
        let columns = put(work, "columns", columns);
        let whole = put(work, "whole", whole);
        let mut doubles = |count: usize| KernelArgument::Ptr(work.scratch.doubles(count));
        let (partials, means) = (doubles(partials), doubles(all.list.len()));
        let (sums, paces) = (doubles(2 * rows.count), doubles(all.list.len()));
        all.run(work, "adafactor_rows", rows, &[partials]);
        all.run(work, "adafactor_columns", columns, &[partials, means]);
        all.run(work, "adafactor_rms", rows, &[means, sums]);
        all.run(work, "adafactor_step_sizes", whole, &[sums, paces]);
        let name = work.commands.kernel_name("adafactor");
        all.run(work, &name, rows, &[means, paces]);
    }
}
