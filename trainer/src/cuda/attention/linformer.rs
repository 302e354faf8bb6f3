//! Linformer: keys and values that are projected over the positions of a sequence.

use std::ops::Range;

use siskin_device::{DeviceMatrix, DevicePtr, GemmShape, MatmulCommand};
use siskin_graph::Projection;

use crate::batch::{BatchSequence, BatchSequences};
use crate::cuda::command_builder::CommandBuilder;
use crate::cuda::op::call::{GradientTarget, OpCall};

/// Returns sequences with as many rows as there are projected positions.
pub(super) fn projected_sequences(of: &BatchSequences, projection: &Projection) -> BatchSequences {
    let sequence = |text: usize| BatchSequence {
        rows: text * projection.count..(text + 1) * projection.count,
        ..BatchSequence::default()
    };
    let sequences = (0..of.sequences.len()).map(sequence).collect();
    BatchSequences { sequences, ..BatchSequences::default() }
}

/// The offsets of a sequence's rows and of its projected rows in a table of keys or values.
struct Part<'a> {
    call: &'a OpCall<'a>,
    projection: &'a Projection,
    /// Bytes per element.
    bytes: usize,
}

impl Part<'_> {
    fn columns(&self) -> usize {
        self.call.input(1).columns
    }

    /// Returns the rows of a table from `row` on.
    fn rows(&self, table: DevicePtr, row: usize) -> DeviceMatrix {
        let stride = self.columns();
        DeviceMatrix { ptr: table + (row * stride * self.bytes) as DevicePtr, stride, transposed: false }
    }

    /// Returns the projection weights.
    fn weights(&self, place: DevicePtr, transposed: bool) -> DeviceMatrix {
        DeviceMatrix { ptr: place, stride: self.projection.positions, transposed }
    }
}

/// Returns the projection weights of keys and of values.
fn tables(projection: &Projection) -> [usize; 2] {
    [projection.keys, projection.values]
}

fn part<'a>(work: &CommandBuilder<'_>, call: &'a OpCall<'a>, projection: &'a Projection) -> Part<'a> {
    Part { call, projection, bytes: work.commands.precision().bytes() }
}

/// Calls `write` with each sequence's index and rows.
fn each_text(call: &OpCall<'_>, mut write: impl FnMut(usize, &Range<usize>)) {
    let texts = call.input_sequences(1);
    texts.spans().enumerate().for_each(|(text, span)| write(text, span));
}

/// Allocates a table for projected keys or values.
pub(super) fn allocate_projected(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &Projection,
) -> DevicePtr {
    let rows = call.input_sequences(1).sequences.len() * projection.count;
    work.scratch.bytes(rows * call.input(1).columns * work.commands.precision().bytes())
}

/// Projects keys and values.
pub(super) fn project(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &Projection,
    inputs: [DevicePtr; 2],
) -> [DevicePtr; 2] {
    let part = part(work, call, projection);
    let mut sums = [0; 2];
    for ((sums, input), weight) in sums.iter_mut().zip(inputs).zip(tables(projection)) {
        *sums = allocate_projected(work, call, projection);
        each_text(call, |text, span| {
            if span.is_empty() {
                let bytes = projection.count * part.columns() * part.bytes;
                work.commands.clear(part.rows(*sums, text * projection.count).ptr, bytes);
                return;
            }
            work.commands.matmul(MatmulCommand {
                precision: work.commands.precision(),
                shape: GemmShape { m: projection.count, n: part.columns(), k: span.len() },
                a: part.weights(call.weight(weight).compute, false),
                b: part.rows(input, span.start),
                out: part.rows(*sums, text * projection.count),
                f32_output: false,
                accumulate: false,
                bias: 0,
                pre_activation: 0,
                fp8: None,
            });
        });
    }
    sums
}

/// Returns true if the gradients of projected keys (0) or values (1) are needed.
pub(super) fn needs_gradient(
    call: &OpCall<'_>,
    projection: &Projection,
    which: usize,
    to: Option<GradientTarget>,
) -> bool {
    to.is_some() || call.weight(tables(projection)[which]).gradient > 0
}

/// The gradient of projected keys (`which`: 0) or values (1).
pub(super) struct ProjectedGradient {
    pub(super) which: usize,
    /// The keys or values before projection.
    pub(super) input: DevicePtr,
    pub(super) gradient: DevicePtr,
}

/// Backpropagates the gradients of projected rows to keys or values, and to the weights.
pub(super) fn project_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &Projection,
    ProjectedGradient { which, input, gradient }: ProjectedGradient,
    to: Option<GradientTarget>,
) {
    let part = part(work, call, projection);
    let weight = call.weight(tables(projection)[which]);
    each_text(call, |text, span| {
        let given = part.rows(gradient, text * projection.count);
        if let Some(to) = to {
            work.commands.matmul(MatmulCommand {
                precision: work.commands.precision(),
                shape: GemmShape { m: span.len(), n: part.columns(), k: projection.count },
                a: part.weights(weight.compute, true),
                b: given,
                out: part.rows(to.ptr, span.start),
                f32_output: false,
                accumulate: to.accumulate,
                bias: 0,
                pre_activation: 0,
                fp8: None,
            });
        }
        if weight.gradient > 0 {
            work.commands.matmul(MatmulCommand {
                precision: work.commands.precision(),
                shape: GemmShape { m: projection.count, n: span.len(), k: part.columns() },
                a: given,
                b: DeviceMatrix { transposed: true, ..part.rows(input, span.start) },
                out: part.weights(weight.gradient, false),
                f32_output: true,
                accumulate: true,
                bias: 0,
                pre_activation: 0,
                fp8: None,
            });
        }
    });
}
