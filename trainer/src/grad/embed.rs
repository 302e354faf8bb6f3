//! The inputs of a graph: embedding lookups, sinusoidal positions, and external features.

use siskin_graph::WeightId;
use siskin_graph::op::{Embed, EmbedPosition, EmbedSegment, InputFeatures, SinusoidalPositions};

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::batch::BatchRow;
use crate::real::Real;

/// Rules of lookups: the operation, and the row of its table for a row of the batch.
macro_rules! lookup_rules {
    ($($operation:ident: |$own:ident, $row:ident| $index:expr;)*) => {$(
        impl<T: Real> GradientRule<T> for $operation {
            fn reads(&self) -> Reads {
                Reads::NOTHING
            }

            fn takes_packed(&self) -> bool {
                true
            }

            fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
                let $own = self;
                look_up(call, self.table, |$row| $index, out);
            }

            fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
                let $own = self;
                add_to_table(call, self.table, |$row| $index, back);
            }
        }
    )*};
}

lookup_rules! {
    Embed: |_own, row| row.token as usize;
    EmbedSegment: |_own, row| row.token_type as usize;
    EmbedPosition: |own, row| row.position + own.offset;
}

/// Copies row `index` of a table for each row of the batch.
fn look_up<T: Real>(
    call: &RuleCall<'_, T>,
    table: WeightId,
    index: impl Fn(&BatchRow) -> usize + Sync,
    out: &mut [T],
) {
    let (matrix, rows) = (call.matrix(table), &call.sequences().rows);
    table::each(out, call.columns(), |row, out| matrix.row(index(&rows[row]), out));
}

/// Adds the gradient of each row of the batch to row `index` of the table.
fn add_to_table<T: Real>(
    call: &RuleCall<'_, T>,
    table: WeightId,
    index: impl Fn(&BatchRow) -> usize,
    back: RuleBackward<'_, '_, T>,
) {
    let (rows, columns) = (&call.sequences().rows, call.columns());
    let Some(to) = back.weight_gradients.of(table) else { return };
    for row in 0..call.rows {
        let from = table::row(back.gradient, columns, row);
        let to = &mut to[index(&rows[row]) * columns..][..columns];
        to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
    }
}

impl<T: Real> GradientRule<T> for SinusoidalPositions {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { rope, offset } = self;
        let (table, columns) = (&call.program.graph.ropes[rope], call.columns());
        let mut cos_sin = vec![0.0; columns];
        for (row, out) in call.sequences().rows.iter().zip(out.chunks_mut(columns.max(1))) {
            siskin_kernels::ops::rope::cos_sin(
                &table.frequencies,
                table.magnitude,
                (row.position + offset) as u32,
                &mut cos_sin,
            );
            cos_sin.rotate_left(columns / 2);
            out.iter_mut().zip(&cos_sin).for_each(|(out, turn)| *out = T::of(f64::from(*turn)));
        }
    }

    fn backward(&self, _: &RuleCall<'_, T>, _: RuleBackward<'_, '_, T>) {}
}

impl<T: Real> GradientRule<T> for InputFeatures {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, _: &[&[T]], out: &mut [T], _: &mut [T]) {
        let features = &call.sequences().features;
        out.iter_mut().zip(features).for_each(|(out, feature)| *out = T::of(f64::from(*feature)));
    }

    fn backward(&self, _: &RuleCall<'_, T>, _: RuleBackward<'_, '_, T>) {}
}
