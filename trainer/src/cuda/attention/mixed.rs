//! Keys and values that are sums over the positions of a text, each with its weights.

use std::ops::Range;

use siskin::graph::Projection;

use crate::batch::Texts;
use crate::cuda::op::{Call, To, Work};
use crate::cuda::tape::{Matrix, Place, Product};

/// Texts of as many rows as there are sums.
pub(super) fn texts(of: &Texts, projection: &Projection) -> Texts {
    let span = |text: usize| text * projection.count..(text + 1) * projection.count;
    Texts { spans: (0..of.spans.len()).map(span).collect(), ..Texts::default() }
}

/// Where tables of a text's rows and of its sums are, in one of keys or values.
struct Part<'a> {
    call: &'a Call<'a>,
    projection: &'a Projection,
    /// Bytes of a number.
    bytes: usize,
}

impl Part<'_> {
    fn columns(&self) -> usize {
        self.call.input(1).columns
    }

    /// Rows of a table from `row` on.
    fn rows(&self, table: Place, row: usize) -> Matrix {
        let stride = self.columns();
        Matrix { place: table + (row * stride * self.bytes) as Place, stride, turned: false }
    }

    /// The weights of sums, for as many positions as a text has.
    fn weights(&self, place: Place, turned: bool) -> Matrix {
        Matrix { place, stride: self.projection.positions, turned }
    }
}

/// The weights of the sums of keys and of values.
fn tables(projection: &Projection) -> [usize; 2] {
    [projection.keys, projection.values]
}

fn part<'a>(work: &Work<'_>, call: &'a Call<'a>, projection: &'a Projection) -> Part<'a> {
    Part { call, projection, bytes: work.tape.precision.bytes() }
}

/// Calls `write` with each text's number and rows.
fn each_text(call: &Call<'_>, mut write: impl FnMut(usize, &Range<usize>)) {
    let texts = call.input(1).side.texts(call.batch);
    texts.spans.iter().enumerate().for_each(|(text, span)| write(text, span));
}

/// A table for the sums of keys or values.
pub(super) fn room(work: &mut Work<'_>, call: &Call<'_>, projection: &Projection) -> Place {
    let rows = call.input(1).side.texts(call.batch).spans.len() * projection.count;
    work.scratch.bytes(rows * call.input(1).columns * work.tape.precision.bytes())
}

/// The sums of keys and of values.
pub(super) fn mix(
    work: &mut Work<'_>,
    call: &Call<'_>,
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
            work.tape.multiply(Product {
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

/// Whether anybody wants the gradients of the sums of keys (0) or of values (1).
pub(super) fn is_wanted(call: &Call<'_>, projection: &Projection, which: usize, to: Option<To>) -> bool {
    to.is_some() || call.weight(tables(projection)[which]).gradient > 0
}

/// Makes the gradients of sums those of keys or values, and of weights.
pub(super) fn unmix(
    work: &mut Work<'_>,
    call: &Call<'_>,
    projection: &Projection,
    (which, input, given): (usize, Place, Place),
    to: Option<To>,
) {
    let part = part(work, call, projection);
    let weight = call.weight(tables(projection)[which]);
    each_text(call, |text, span| {
        let given = part.rows(given, text * projection.count);
        if let Some(to) = to {
            work.tape.multiply(Product {
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
            work.tape.multiply(Product {
                precision: work.tape.precision,
                shape: [projection.count, span.len(), part.columns()],
                a: given,
                b: Matrix { turned: true, ..part.rows(input, span.start) },
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
