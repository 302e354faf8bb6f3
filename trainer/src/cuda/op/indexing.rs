//! Slicing, gathering and repeating, and rotary position embedding.

use siskin_device::{DevicePtr, KernelArgument};

use super::call::{GradientTarget, OpBackward, OpCall};
use crate::cuda::command_builder::{CommandBuilder, flag, int};

/// An operation that moves columns or rows, or rotates them by their position.
#[derive(Clone, Copy)]
pub(super) enum IndexingOp {
    SliceColumns { start: usize },
    RepeatColumns(usize),
    SelectOutputs,
    Rope { rope: usize, head_size: usize },
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: IndexingOp,
    x: DevicePtr,
    out: DevicePtr,
) {
    let to = GradientTarget { ptr: out, accumulate: false };
    let (rows, columns) = (call.rows, call.columns());
    match op {
        IndexingOp::SliceColumns { start } => {
            let widths = [call.input(0).columns, start, columns, 0];
            move_columns(work, [x, out], false, [rows, columns], widths);
        }
        IndexingOp::RepeatColumns(times) => {
            let input_columns = call.input(0).columns;
            let numbers = [int(times), int(rows), int(input_columns)];
            work.commands.elementwise_2d(
                "repeat_columns",
                rows,
                columns,
                &[&[x, out].map(KernelArgument::Ptr)[..], &numbers].concat(),
            );
        }
        IndexingOp::SelectOutputs => {
            let wanted = &call.sequences().output_rows;
            let places =
                work.tables.ints(&call.name("wanted"), || wanted.iter().map(|&row| row as i32).collect());
            move_rows(work, x, places, to, [rows, columns]);
        }
        IndexingOp::Rope { rope: table, head_size } => {
            rope(work, call, RopePtrs { x, to, back: false }, table, head_size)
        }
    }
}

fn move_columns(
    work: &mut CommandBuilder<'_>,
    places: [DevicePtr; 2],
    add: bool,
    [rows, columns]: [usize; 2],
    widths: [usize; 4],
) {
    let numbers = [[rows, columns].map(int).to_vec(), widths.map(int).to_vec()].concat();
    let arguments = [&places.map(KernelArgument::Ptr)[..], &[flag(add)], &numbers].concat();
    work.commands.elementwise_2d("copy_columns", rows, columns, &arguments);
}

fn move_rows(
    work: &mut CommandBuilder<'_>,
    from: DevicePtr,
    places: DevicePtr,
    to: GradientTarget,
    [rows, columns]: [usize; 2],
) {
    let arguments =
        [&[from, places].map(KernelArgument::Ptr)[..], &to.arguments(), &[int(rows), int(columns)]].concat();
    work.commands.elementwise_2d("gather_rows", rows, columns, &arguments);
}

/// What is rotated, and where to; backward rotates by the negative angles.
struct RopePtrs {
    x: DevicePtr,
    to: GradientTarget,
    back: bool,
}

/// Rotates by the angles of each row: tables of cosines and sines, and the table row of each row.
fn rope(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: RopePtrs, index: usize, head_size: usize) {
    let RopePtrs { x, to, back } = ptrs;
    let (rope, texts) = (&call.program.ropes[index], call.sequences());
    let pairs = rope.frequencies.len();
    let longest = texts.max_length();
    // If angles do not depend on the sequence length, tables are per position, otherwise per row.
    let by_row = rope.scaling.is_some();
    let cos_sin = work.tables.floats(&call.name(&format!("cos_sin {index}")), || {
        let of_rows = texts.rows.iter().map(|row| (row.position, texts.sequences[row.sequence].rows.len()));
        let places: Vec<(usize, usize)> = if by_row {
            of_rows.collect()
        } else {
            (0..longest).map(|position| (position, longest)).collect()
        };
        let mut all = vec![0.0; places.len() * 2 * pairs];
        for ((position, length), out) in places.into_iter().zip(all.chunks_mut((2 * pairs).max(1))) {
            siskin_backend::rope_cos_sin(rope, position, length, out);
        }
        all
    });
    let name = if by_row { "rows" } else { "gathered rows by position" };
    let cos_sin_rows = work.tables.ints(&call.name(name), || {
        let of_row =
            |(number, row): (usize, &crate::batch::BatchRow)| if by_row { number } else { row.position };
        texts.rows.iter().enumerate().map(|row| of_row(row) as i32).collect()
    });
    let places = [x, cos_sin, cos_sin_rows, to.ptr].map(KernelArgument::Ptr);
    let numbers = [call.rows, call.columns(), head_size, pairs].map(int);
    let arguments = [&places[..], &[flag(back), flag(to.accumulate)], &numbers].concat();
    work.commands.elementwise_2d("rope", call.rows, call.columns(), &arguments);
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: IndexingOp,
    back: &OpBackward<'_>,
) {
    let Some(to) = back.input_gradients[0] else { return };
    let (rows, columns, wide) = (call.rows, call.columns(), call.input(0).columns);
    match op {
        IndexingOp::SliceColumns { start } => {
            if !to.accumulate {
                work.commands.clear(to.ptr, rows * wide * work.commands.precision().bytes());
            }
            move_columns(work, [back.gradient, to.ptr], true, [rows, columns], [columns, 0, wide, start]);
        }
        IndexingOp::RepeatColumns(times) => {
            let numbers = [int(times), int(rows), int(wide)];
            let arguments = [&[KernelArgument::Ptr(back.gradient)], &to.arguments()[..], &numbers].concat();
            work.commands.elementwise_2d("repeat_columns_backward", rows, wide, &arguments);
        }
        IndexingOp::SelectOutputs => {
            let texts = call.sequences();
            let places = work.tables.ints(&call.name("output rows"), || {
                let mut places = vec![-1; texts.rows.len()];
                texts.output_rows.iter().enumerate().for_each(|(place, &row)| places[row] = place as i32);
                places
            });
            move_rows(work, back.gradient, places, to, [texts.rows.len(), columns]);
        }
        IndexingOp::Rope { rope: table, head_size } => {
            let ptrs = RopePtrs { x: back.gradient, to, back: true };
            rope(work, call, ptrs, table, head_size)
        }
    }
}
