//! Linformer: keys and values that are projected over the positions of a sequence.

use std::ops::Range;

use siskin::graph::Projection;

use crate::batch::BatchSequences;
use crate::cuda::op::{OpCall, TapeBuilder, To};
use crate::cuda::tape::{DeviceMatrix, Place, TapeMatmul};

/// Returns sequences with as many rows as there are projected positions.
pub(super) fn texts(of: &BatchSequences, projection: &Projection) -> BatchSequences {
    let span = |text: usize| text * projection.count..(text + 1) * projection.count;
    BatchSequences { spans: (0..of.spans.len()).map(span).collect(), ..BatchSequences::default() }
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
    fn rows(&self, table: Place, row: usize) -> DeviceMatrix {
        let stride = self.columns();
        DeviceMatrix { place: table + (row * stride * self.bytes) as Place, stride, turned: false }
    }

    /// Returns the projection weights.
    fn weights(&self, place: Place, turned: bool) -> DeviceMatrix {
        DeviceMatrix { place, stride: self.projection.positions, turned }
    }
}

/// Returns the projection weights of keys and of values.
fn tables(projection: &Projection) -> [usize; 2] {
    [projection.keys, projection.values]
}

fn part<'a>(work: &TapeBuilder<'_>, call: &'a OpCall<'a>, projection: &'a Projection) -> Part<'a> {
    Part { call, projection, bytes: work.tape.precision.bytes() }
}

/// Calls `write` with each sequence's index and rows.
fn each_text(call: &OpCall<'_>, mut write: impl FnMut(usize, &Range<usize>)) {
    let texts = call.input(1).side.texts(call.batch);
    texts.spans.iter().enumerate().for_each(|(text, span)| write(text, span));
}

/// Allocates a table for projected keys or values.
pub(super) fn room(work: &mut TapeBuilder<'_>, call: &OpCall<'_>, projection: &Projection) -> Place {
    let rows = call.input(1).side.texts(call.batch).spans.len() * projection.count;
    work.scratch.bytes(rows * call.input(1).columns * work.tape.precision.bytes())
}

/// Projects keys and values.
pub(super) fn mix(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    projection: &Projection,
    inputs: [Place; 2],
) -> [Place; 2] {
    let part = part(work, call, projection);
    let mut sums = [0; 2];
    for ((sums, input), weight) in sums.iter_mut().zip(inputs).zip(tables(projection)) {
        *sums = room(work, call, projection);
        each_text(call, |text, span| {
            if span.is_empty() {
                let bytes = projection.count * part.columns() * part.bytes;
                work.tape.clear(part.rows(*sums, text * projection.count).place, bytes);
                return;
            }
            work.tape.multiply(TapeMatmul {
                precision: work.tape.precision,
                shape: [projection.count, part.columns(), span.len()],
                a: part.weights(call.weight(weight).numbers, false),
                b: part.rows(input, span.start),
                out: part.rows(*sums, text * projection.count),
                floats: false,
                add: false,
                bias: 0,
                before: 0,
                eights: None,
            });
        });
    }
    sums
}

/// Returns true if the gradients of projected keys (0) or values (1) are needed.
pub(super) fn is_wanted(call: &OpCall<'_>, projection: &Projection, which: usize, to: Option<To>) -> bool {
    to.is_some() || call.weight(tables(projection)[which]).gradient > 0
}

/// Backpropagates the gradients of projected rows to keys or values, and to the weights.
pub(super) fn unmix(
    work: &mut TapeBuilder<'_>,
    call: &OpCall<'_>,
    projection: &Projection,
    (which, input, given): (usize, Place, Place),
    to: Option<To>,
) {
    let part = part(work, call, projection);
    let weight = call.weight(tables(projection)[which]);
    each_text(call, |text, span| {
        let given = part.rows(given, text * projection.count);
        if let Some(to) = to {
            work.tape.multiply(TapeMatmul {
                precision: work.tape.precision,
                shape: [span.len(), part.columns(), projection.count],
                a: part.weights(weight.numbers, true),
                b: given,
                out: part.rows(to.place, span.start),
                floats: false,
                add: to.add,
                bias: 0,
                before: 0,
                eights: None,
            });
        }
        if weight.gradient > 0 {
            work.tape.multiply(TapeMatmul {
                precision: work.tape.precision,
                shape: [projection.count, span.len(), part.columns()],
                a: given,
                b: DeviceMatrix { turned: true, ..part.rows(input, span.start) },
                out: part.weights(weight.gradient, false),
                floats: true,
                add: true,
                bias: 0,
                before: 0,
                eights: None,
            });
        }
    });
}
