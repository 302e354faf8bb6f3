//! im2col over positions: neighboring rows, side by side.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::{Op, op};

use super::call::{OpBackward, OpCall};
use crate::cuda::command_builder::{CommandBuilder, int};

/// Returns the input row of each part of each output row; `None` beyond the ends of a sequence.
fn places(call: &OpCall<'_>, offsets: &[isize], stride: usize) -> Vec<Option<usize>> {
    let (from, to) = (call.input(0).rows, call.output().rows);
    let of_row = |row| {
        let neighbor = move |&offset: &isize| call.sequences().neighbor(from, to, row, offset, stride);
        offsets.iter().map(neighbor)
    };
    (0..call.rows).flat_map(of_row).collect()
}

fn number(place: Option<usize>) -> i32 {
    place.map_or(-1, |place| place as i32)
}

pub(super) fn forward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, x: DevicePtr, out: DevicePtr) {
    let Op::Im2col(op::Im2col { offsets, stride }) = &call.node.op else { return };
    let name = call.name(&format!("im2col {offsets:?} {stride} of {:?}", call.input(0).rows));
    let list = work.tables.ints(&name, || places(call, offsets, *stride).into_iter().map(number).collect());
    let columns = call.input(0).columns;
    let numbers = [call.rows, columns, offsets.len()].map(int);
    let arguments = [&[x, list, out].map(KernelArgument::Ptr)[..], &numbers].concat();
    work.commands.elementwise_2d("im2col", call.rows * offsets.len(), columns, &arguments);
}

pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    let Op::Im2col(op::Im2col { offsets, stride }) = &call.node.op else { return };
    let Some(to) = back.input_gradients[0] else { return };
    let (rows, columns) = (call.program.row_count(call.node.inputs[0], call.batch), call.input(0).columns);
    let name = call.name(&format!("im2col gradient {offsets:?} {stride} of {:?}", call.input(0).rows));
    let list = work.tables.ints(&name, || {
        // At each offset, an input row is a part of at most one output row.
        let mut parts = vec![-1; rows * offsets.len()];
        for (part, place) in places(call, offsets, *stride).into_iter().enumerate() {
            let Some(place) = place else { continue };
            parts[place * offsets.len() + part % offsets.len()] = part as i32;
        }
        parts
    });
    let numbers = [rows, columns, offsets.len()].map(int);
    let places = [back.gradient, list].map(KernelArgument::Ptr);
    let arguments = [&places[..], &to.arguments(), &numbers].concat();
    work.commands.elementwise_2d("col2im", rows, columns, &arguments);
}
