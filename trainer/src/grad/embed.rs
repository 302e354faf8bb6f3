//! The inputs of a graph: embedding lookups, sinusoidal positions, and external features.

use siskin_graph::{Op, op};

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::batch::BatchRow;
use crate::real::Real;

/// Embedding lookup by token, segment or position.
pub(super) struct Embed;

/// Returns the table, and a function from a row of the batch to its row of the table.
fn place<T: Real>(call: &RuleCall<'_, T>) -> Option<(usize, impl Fn(usize) -> usize + Sync)> {
    let rows = &call.sequences().rows;
    let op = &call.node.op;
    let number: fn(&BatchRow) -> usize = if let Op::EmbedSegment(_) = op {
        |row| row.segment as usize
    } else if let Op::EmbedPosition(_) = op {
        |row| row.position
    } else {
        |row| row.token as usize
    };
    let offset = if let Op::EmbedPosition(op::EmbedPosition { offset, .. }) = op { *offset } else { 0 };
    let table = *op.weights().first()?;
    Some((table, move |row: usize| number(&rows[row]) + offset))
}

impl<T: Real> GradientRule<T> for Embed {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Some((weight, number)) = place(call) else { return };
        let matrix = call.matrix(weight);
        table::each(out, call.columns(), |row, out| matrix.row(number(row), out));
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let Some((weight, number)) = place(call) else { return };
        let columns = call.columns();
        let Some(to) = back.weight_gradients.of(weight) else { return };
        for row in 0..call.rows {
            let from = table::row(back.gradient, columns, row);
            let to = &mut to[number(row) * columns..][..columns];
            to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
        }
    }
}

/// Sinusoidal position embedding: sines, then cosines of a position's angles.
pub(super) struct Sine;

impl<T: Real> GradientRule<T> for Sine {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Op::SinusoidalPositions(op::SinusoidalPositions { rope, offset }) = call.node.op else { return };
        let (table, columns) = (&call.program.graph.ropes[rope], call.columns());
        let mut turns = vec![0.0; columns];
        for (row, out) in call.sequences().rows.iter().zip(out.chunks_mut(columns.max(1))) {
            siskin_kernels::ops::rope::turns(
                &table.frequencies,
                table.magnitude,
                (row.position + offset) as u32,
                &mut turns,
            );
            turns.rotate_left(columns / 2);
            out.iter_mut().zip(&turns).for_each(|(out, turn)| *out = T::of(f64::from(*turn)));
        }
    }

    fn backward(&self, _: &RuleCall<'_, T>, _: RuleBackward<'_, '_, T>) {}
}

/// The features that the caller supplied.
pub(super) struct SuppliedFeatures;

impl<T: Real> GradientRule<T> for SuppliedFeatures {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
        let features = &call.sequences().features;
        out.iter_mut().zip(features).for_each(|(out, feature)| *out = T::of(f64::from(*feature)));
    }

    fn backward(&self, _: &RuleCall<'_, T>, _: RuleBackward<'_, '_, T>) {}
}
