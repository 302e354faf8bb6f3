//! The inputs of a graph: embedding lookups, sinusoidal positions, and external features.

use siskin_device::{DevicePtr, GridSize, KernelArgument};
use siskin_graph::{Op, WeightId, op};

use super::call::{OpBackward, OpCall};
use crate::cuda::batch_tables::{IndexGroups, group_by_index};
use crate::cuda::command_builder::{CommandBuilder, int};

/// Blocks of the backward kernel, which loop over the rows of a table: as many as any device runs at once.
const MAX_BLOCKS: usize = 2048;

/// What a table is indexed by.
#[derive(Clone, Copy)]
pub(super) enum LookupIndex {
    Token,
    Segment,
    /// The position, plus an offset.
    Position(usize),
}

/// Returns the name of the index list, and the table row of each row of the batch.
fn indices(call: &OpCall<'_>, index: LookupIndex) -> (String, Vec<i32>) {
    let rows = &call.sequences().rows;
    let (name, list): (String, Vec<usize>) = match index {
        LookupIndex::Token => ("tokens".to_owned(), rows.iter().map(|row| row.token as usize).collect()),
        LookupIndex::Segment => {
            ("segments".to_owned(), rows.iter().map(|row| row.segment as usize).collect())
        }
        LookupIndex::Position(offset) => {
            (format!("positions {offset}"), rows.iter().map(|row| row.position + offset).collect())
        }
    };
    (call.name(&name), list.into_iter().map(|number| number as i32).collect())
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    table: WeightId,
    index: LookupIndex,
    out: DevicePtr,
) {
    let (name, list) = indices(call, index);
    let list = work.tables.ints(&name, || list);
    let places = [list, call.weight(table).compute, out].map(KernelArgument::Ptr);
    let arguments = [&places[..], &[int(call.rows), int(call.columns())]].concat();
    work.commands.elementwise_2d("embed", call.rows, call.columns(), &arguments);
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    table: WeightId,
    index: LookupIndex,
    back: &OpBackward<'_>,
) {
    let (name, list) = indices(call, index);
    let to = call.weight(table).gradient;
    if to == 0 {
        return;
    }
    let IndexGroups { distinct, starts, order, count } = group_by_index(&list);
    let lists = [("distinct", distinct), ("starts", starts), ("order", order), ("count", vec![count])];
    let mut places = Vec::new();
    for (what, list) in lists {
        places.push(KernelArgument::Ptr(work.tables.ints(&format!("{what} {name}"), || list)));
    }
    places.extend([back.gradient, to].map(KernelArgument::Ptr));
    places.push(int(call.columns()));
    let kernel = work.commands.kernel_name("embed_backward");
    let column_blocks = call.columns().div_ceil(32 * work.commands.precision().vector_width());
    work.commands.kernel(
        &kernel,
        GridSize::new(call.rows.min(MAX_BLOCKS), column_blocks, 1),
        256,
        0,
        &places,
    );
}

/// Sinusoidal position embedding: sines, then cosines of a position's angles.
pub(super) fn sines(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, out: DevicePtr) {
    let Op::SinusoidalPositions(op::SinusoidalPositions { rope, offset }) = call.node.op else { return };
    let (table, columns) = (&call.program.graph.ropes[rope], call.columns());
    let floats = work.tables.floats(&call.name(&format!("sines {rope} {offset}")), || {
        let mut all = vec![0.0; call.count()];
        for (row, out) in call.sequences().rows.iter().zip(all.chunks_mut(columns.max(1))) {
            let position = (row.position + offset) as u32;
            siskin_kernels::ops::rope::turns(&table.frequencies, table.magnitude, position, out);
            out.rotate_left(columns / 2);
        }
        all
    });
    work.commands.elementwise("cast_from_f32", call.count(), &[floats, out].map(KernelArgument::Ptr));
}

/// The features that the caller supplied.
pub(super) fn features(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, out: DevicePtr) {
    let floats = work.tables.floats(&call.name("features"), || call.sequences().features.clone());
    work.commands.elementwise("cast_from_f32", call.count(), &[floats, out].map(KernelArgument::Ptr));
}
