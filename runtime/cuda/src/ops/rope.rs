//! Rotary position embedding.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::BatchRow;
use siskin_graph::op::Rope;
use siskin_kernels::ops::rope::cos_sin_of;

use super::{CudaForward, Destination, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, flag, int};

/// What is rotated, and where to.
#[derive(Clone, Copy, Debug)]
pub struct RopePtrs {
    /// The input.
    pub x: DevicePtr,
    /// The output.
    pub to: Destination,
    /// Whether angles are negated, as in a backward pass.
    pub inverse: bool,
}

/// Rotates by the angles of each row: tables of cosines and sines, and the table row of each row.
pub fn rotate(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, op: &Rope, ptrs: RopePtrs) {
    let RopePtrs { x, to, inverse } = ptrs;
    let (table, sequences) = (&call.graph.ropes[op.rope], call.sequences());
    let pairs = table.frequencies.len();
    let longest = sequences.max_length();
    // If angles do not depend on the sequence length, tables are per position, otherwise per row.
    let by_row = table.scaling.is_some();
    let angles = work.tables.floats(&call.table_name(&format!("angles {}", op.rope)), || {
        let length = |row: &BatchRow| sequences.sequences[row.sequence].rows.len();
        let of_rows = sequences.rows.iter().map(|row| (row.position, length(row)));
        let places: Vec<(usize, usize)> = if by_row {
            of_rows.collect()
        } else {
            (0..longest).map(|position| (position, longest)).collect()
        };
        let mut all = vec![0.0; places.len() * 2 * pairs];
        for ((position, length), out) in places.into_iter().zip(all.chunks_mut((2 * pairs).max(1))) {
            cos_sin_of(&table.frequency(length), table.magnitude, position as u32, out);
        }
        all
    });
    let name = if by_row { "rows" } else { "angles by position" };
    let angles_of_rows = work.tables.ints(&call.table_name(name), || {
        let of_row = |(number, row): (usize, &BatchRow)| if by_row { number } else { row.position };
        sequences.rows.iter().enumerate().map(|row| of_row(row) as i32).collect()
    });
    let places = [x, angles, angles_of_rows, to.ptr].map(KernelArgument::Ptr);
    let numbers = [call.rows, call.columns(), op.head_size, pairs].map(int);
    let arguments = [&places[..], &[flag(inverse), flag(to.accumulate)], &numbers].concat();
    work.commands.elementwise_2d("rope", call.rows, call.columns(), &arguments);
}

impl CudaForward for Rope {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let to = Destination::overwrite(tensors.out);
        rotate(work, call, self, RopePtrs { x: tensors.inputs[0], to, inverse: false });
    }
}
