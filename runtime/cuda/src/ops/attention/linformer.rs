//! Linformer: keys and values that are projected over the positions of a sequence.

use std::ops::Range;

use siskin_device::{DeviceMatrix, DevicePtr, GemmShape, MatmulCommand};
use siskin_graph::{BatchSequence, BatchSequences, LinformerProjection, WeightId};

use crate::command_builder::CommandBuilder;
use crate::ops::OpCall;

/// Returns sequences with as many rows as there are projected positions.
pub(super) fn projected_sequences(of: &BatchSequences, projection: &LinformerProjection) -> BatchSequences {
    let sequence = |text: usize| BatchSequence {
        rows: text * projection.count..(text + 1) * projection.count,
        ..BatchSequence::default()
    };
    let sequences = (0..of.sequences.len()).map(sequence).collect();
    BatchSequences { sequences, ..BatchSequences::default() }
}

/// The keys or values of sequences, before and after projection.
#[derive(Clone, Copy, Debug)]
pub struct ProjectedRows<'a> {
    call: &'a OpCall<'a>,
    projection: &'a LinformerProjection,
    /// Bytes per element.
    bytes: usize,
}

impl<'a> ProjectedRows<'a> {
    /// The keys or values of an attention.
    pub fn new(work: &CommandBuilder<'_>, call: &'a OpCall<'a>, projection: &'a LinformerProjection) -> Self {
        Self { call, projection, bytes: work.commands.precision().bytes() }
    }

    /// Returns the columns of keys and values.
    pub fn columns(&self) -> usize {
        self.call.input(1).columns
    }

    /// Returns the rows of a table from `row` on.
    pub fn rows(&self, table: DevicePtr, row: usize) -> DeviceMatrix {
        let stride = self.columns();
        DeviceMatrix { ptr: table + (row * stride * self.bytes) as DevicePtr, stride, transposed: false }
    }

    /// Returns the projection weights.
    pub fn weights(&self, place: DevicePtr, transposed: bool) -> DeviceMatrix {
        DeviceMatrix { ptr: place, stride: self.projection.positions, transposed }
    }

    /// Iterates over the rows of each sequence, with the first of its projected rows.
    pub fn sequences(&self) -> impl Iterator<Item = (usize, &'a Range<usize>)> + use<'a> {
        let count = self.projection.count;
        self.call.keys.batch.spans().enumerate().map(move |(sequence, span)| (sequence * count, span))
    }
}

/// Returns the projection weights of keys and of values.
pub fn weights(projection: &LinformerProjection) -> [WeightId; 2] {
    [projection.keys, projection.values]
}

/// Allocates a table for projected keys or values.
pub fn allocate_projected(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &LinformerProjection,
) -> DevicePtr {
    let rows = call.keys.batch.sequences.len() * projection.count;
    work.scratch.bytes(rows * call.input(1).columns * work.commands.precision().bytes())
}

/// Projects keys and values.
pub fn project(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &LinformerProjection,
    inputs: [DevicePtr; 2],
) -> [DevicePtr; 2] {
    let part = ProjectedRows::new(work, call, projection);
    let mut sums = [0; 2];
    for ((sums, input), weight) in sums.iter_mut().zip(inputs).zip(weights(projection)) {
        *sums = allocate_projected(work, call, projection);
        for (first, span) in part.sequences() {
            if span.is_empty() {
                let bytes = projection.count * part.columns() * part.bytes;
                work.commands.clear(part.rows(*sums, first).ptr, bytes);
                continue;
            }
            work.commands.matmul(MatmulCommand::new(
                work.commands.precision(),
                GemmShape { m: projection.count, n: part.columns(), k: span.len() },
                part.weights(call.weight(weight).compute, false),
                part.rows(input, span.start),
                part.rows(*sums, first),
            ));
        }
    }
    sums
}
