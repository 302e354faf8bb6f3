//! Rotary position embedding.

use siskin_graph::Op;

use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::real::Real;

/// Rotates pairs of columns by the angles of a position.
pub(super) struct RopeRule;

/// Returns the cosines and sines of every row.
fn rotations<T: Real>(call: &RuleCall<'_, T>, rope: usize) -> (Vec<f32>, usize) {
    let rope = &call.program.ropes[rope];
    let width = 2 * rope.frequencies.len();
    let texts = call.sequences();
    let mut all = vec![0.0; texts.rows.len() * width];
    for (row, out) in texts.rows.iter().zip(all.chunks_mut(width.max(1))) {
        siskin_backend::rope_cos_sin(rope, row.position, texts.sequences[row.sequence].rows.len(), out);
    }
    (all, width)
}

/// Rotates the heads of a row, or rotates them back.
fn rotate<T: Real>(rotations: &[f32], head_size: usize, back: bool, x: &[T], mut set: impl FnMut(usize, T)) {
    let pairs = rotations.len() / 2;
    for (head, x) in x.chunks(head_size).enumerate() {
        for pair in 0..pairs {
            let cosine = T::of(f64::from(rotations[pair]));
            let sine = T::of(f64::from(rotations[pairs + pair]));
            let sine = if back { -sine } else { sine };
            let (a, b) = (x[pair], x[pair + pairs]);
            set(head * head_size + pair, a * cosine - b * sine);
            set(head * head_size + pair + pairs, b * cosine + a * sine);
        }
        (2 * pairs..head_size).for_each(|i| set(head * head_size + i, x[i]));
    }
}

impl<T: Real> GradientRule<T> for RopeRule {
    fn reads(&self) -> Reads {
        Reads::NOTHING
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Op::Rope { rope, head_size } = call.node.op else { return };
        let ((rotations, width), columns) = (rotations(call, rope), call.columns());
        table::each(out, columns, |row, out| {
            let x = table::row(inputs[0], columns, row);
            rotate(table::row(&rotations, width, row), head_size, false, x, |i, x| out[i] = x);
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let Op::Rope { rope, head_size } = call.node.op else { return };
        let ((rotations, width), columns) = (rotations(call, rope), call.columns());
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, columns, |row, to| {
                let g = table::row(back.gradient, columns, row);
                rotate(table::row(&rotations, width, row), head_size, true, g, |i, g| to[i] += g);
            });
        }
    }
}
