//! The inputs of a graph: embedding lookups, sinusoidal positions, and external features.

use siskin::graph::Op;

use super::{KernelArgument, OpBackward, OpCall, Place, TapeBuilder, whole};
use crate::cuda::batch_tables::by_number;

/// Blocks of the backward kernel, which loop over the rows of a table: as many as any device runs at once.
const MOST_BLOCKS: usize = 2048;

/// Returns the table, the name of the index list, and the list of the table row of each row of the batch.
fn numbers(call: &OpCall<'_>) -> Option<(usize, String, Vec<i32>)> {
    let rows = &call.texts().rows;
    let (table, name, list): (usize, String, Vec<usize>) = match call.node.op {
        Op::Embed { table } => {
            (table, "tokens".to_owned(), rows.iter().map(|row| row.token as usize).collect())
        }
        Op::EmbedSegment { table } => {
            (table, "segments".to_owned(), rows.iter().map(|row| row.segment as usize).collect())
        }
        Op::EmbedPosition { table, offset } => {
            (table, format!("positions {offset}"), rows.iter().map(|row| row.position + offset).collect())
        }
        _ => return None,
    };
    Some((table, call.name(&name), list.into_iter().map(|number| number as i32).collect()))
}

pub(super) fn forward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, out: Place) {
    let Some((table, name, list)) = numbers(call) else { return };
    let list = work.sheet.whole(&name, || list);
    let places = [list, call.weight(table).numbers, out].map(KernelArgument::Place);
    let arguments = [&places[..], &[whole(call.rows), whole(call.columns())]].concat();
    work.tape.cells("embed", call.rows, call.columns(), &arguments);
}

pub(super) fn backward(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let Some((table, name, list)) = numbers(call) else { return };
    let to = call.weight(table).gradient;
    if to == 0 {
        return;
    }
    let parts = by_number(&list);
    let names = ["distinct", "starts", "order", "count"].map(|what| format!("{what} {name}"));
    let mut places = Vec::new();
    for (name, part) in names.iter().zip(parts) {
        places.push(KernelArgument::Place(work.sheet.whole(name, || part)));
    }
    places.extend([back.gradient, to].map(KernelArgument::Place));
    places.push(whole(call.columns()));
    let kernel = work.tape.named("embed_back");
    let across = call.columns().div_ceil(32 * work.tape.precision.wide());
    work.tape.kernel(&kernel, [call.rows.min(MOST_BLOCKS), across, 1], 256, 0, &places);
}

/// Sinusoidal position embedding: sines, then cosines of a position's angles.
pub(super) fn sines(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, out: Place) {
    let Op::EmbedSine { rope, offset } = call.node.op else { return };
    let (table, columns) = (&call.program.ropes[rope], call.columns());
    let floats = work.sheet.floats(&call.name(&format!("sines {rope} {offset}")), || {
        let mut all = vec![0.0; call.count()];
        for (row, out) in call.texts().rows.iter().zip(all.chunks_mut(columns.max(1))) {
            let position = (row.position + offset) as u32;
            siskin_kernels::ops::rope::turns(&table.frequencies, table.magnitude, position, out);
            out.rotate_left(columns / 2);
        }
        all
    });
    work.tape.numbers("from_floats", call.count(), &[floats, out].map(KernelArgument::Place));
}

/// The features that the caller supplied.
pub(super) fn features(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, out: Place) {
    let floats = work.sheet.floats(&call.name("features"), || call.texts().features.clone());
    work.tape.numbers("from_floats", call.count(), &[floats, out].map(KernelArgument::Place));
}
