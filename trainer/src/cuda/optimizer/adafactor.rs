//! Adafactor (arXiv:1804.04235) on a device: the update follows from sums over rows, columns and all elements of a
//! tensor.

use siskin::Result;

use super::layout::{Held, THREADS, TensorParts};
use super::{All, DeviceUpdateRule, KernelArgument, TapeBuilder};
use crate::optimizer::AdafactorOptions;
use crate::settings::{Settings, read};

/// Rows of a matrix that a block processes.
const ROWS: usize = 64;

pub(super) fn build(settings: &Settings) -> Result<Box<dyn DeviceUpdateRule>> {
    Ok(Box::new(read::<AdafactorOptions>("adafactor", settings)?))
}

/// Returns true if the second moment is factored into row and column averages.
fn is_matrix(held: &Held) -> bool {
    held.tables.len() == 2
}

/// Returns the number of parts of a tensor; a vector is one.
fn parts_of(held: &Held) -> usize {
    if is_matrix(held) { held.rows.div_ceil(ROWS) } else { 1 }
}

/// Work lists of kernels, as named in `kernels/cuda/adafactor.cu`: `Rows`, `Columns`, `Whole`.
#[derive(Default)]
struct Lists {
    rows: Vec<i32>,
    columns: Vec<i32>,
    whole: Vec<i32>,
    /// Elements for the column sums of all parts.
    room: usize,
}

impl Lists {
    fn new(list: &[Held]) -> Self {
        let mut lists = Self::default();
        for (tensor, held) in list.iter().enumerate() {
            let (parts, first) = (parts_of(held), lists.rows.len() / 4);
            let room = lists.room;
            for part in 0..parts {
                let end = held.rows.min((part + 1) * ROWS);
                push(&mut lists.rows, [tensor, part * ROWS, end, lists.room]);
                lists.room += if is_matrix(held) { held.columns } else { 0 };
            }
            let columns = if is_matrix(held) { held.columns } else { 0 };
            for column in (0..columns).step_by(THREADS) {
                push(&mut lists.columns, [tensor, column, room, parts]);
            }
            push(&mut lists.whole, [tensor, first, parts, 0]);
        }
        lists
    }
}

fn push(list: &mut Vec<i32>, numbers: [usize; 4]) {
    list.extend(numbers.map(|number| number as i32));
}

fn put(work: &mut TapeBuilder<'_>, name: &str, list: Vec<i32>) -> TensorParts {
    let count = list.len() / 4;
    TensorParts { place: work.sheet.whole(name, || list), count }
}

impl DeviceUpdateRule for AdafactorOptions {
    /// Returns the values in the order of `OfAdafactor` in `kernels/cuda/adafactor.cu`.
    fn says(&self, count: u64) -> Vec<f64> {
        let count = count as f64;
        let most = count.sqrt().recip();
        let relative = if self.relative_step { most.min(0.01) } else { 0.0 };
        vec![
            count.powf(self.beta2_decay),
            self.eps[0] * self.eps[0],
            self.eps[0],
            self.eps[1],
            self.clip_threshold,
            self.weight_decay,
            f64::from(u8::from(self.scale_parameter)),
            relative,
            most,
        ]
    }

    fn write_down(&self, work: &mut TapeBuilder<'_>, all: &All<'_>) {
        let Lists { rows, columns, whole, room } = Lists::new(all.list);
        let rows = put(work, "rows", rows);
        let columns = put(work, "columns", columns);
        let whole = put(work, "whole", whole);
        let mut doubles = |count: usize| KernelArgument::Place(work.scratch.doubles(count));
        let (room, means) = (doubles(room), doubles(all.list.len()));
        let (sums, paces) = (doubles(2 * rows.count), doubles(all.list.len()));
        all.run(work, "adafactor_rows", rows, &[room]);
        all.run(work, "adafactor_columns", columns, &[room, means]);
        all.run(work, "adafactor_sizes", rows, &[means, sums]);
        all.run(work, "adafactor_paces", whole, &[sums, paces]);
        let name = work.tape.named("adafactor");
        all.run(work, &name, rows, &[means, paces]);
    }
}
