//! What goes through states of constant size, token by token: each step is the same whatever the batch.

use siskin_kernels::ops::recurrence::{Function, PANEL, Token};

use crate::graph::{Recurrence, RecurrenceRule, STATE_PANEL};

const _: () = assert!(STATE_PANEL == PANEL);

/// Added to what results of [`RecurrenceRule::Sum`] are divided by.
const EPSILON: f32 = 1e-6;

/// Columns of a convolution that a worker takes at once.
pub(super) const COLUMNS: usize = 256;

/// Sums each column over its last numbers: `history` has those before this row, the oldest first, and has the newest
/// after it. `weights` are the factors of these columns.
pub(super) fn convolve(taps: usize, weights: &[f32], history: &mut [f32], x: &[f32], out: &mut [f32]) {
    let columns = x.len();
    for (column, (x, out)) in x.iter().zip(out).enumerate() {
        let weights = &weights[column * taps..(column + 1) * taps];
        let past = weights.iter().enumerate().take(taps - 1);
        let sum = past.fold(0.0, |sum, (tap, weight)| sum + weight * history[tap * columns + column]);
        *out = sum + weights[taps - 1] * x;
    }
    if taps > 1 {
        history.copy_within(columns.., 0);
        history[(taps - 2) * columns..].copy_from_slice(x);
    }
}

/// Numbers that [`Head`] works with.
pub(super) fn scratch_size(recurrence: &Recurrence) -> usize {
    recurrence.key_size + 2 * recurrence.state_columns()
}

/// A head of a recurrence, and the place for what a token brings in whole panels.
pub(super) struct Head<'a> {
    recurrence: &'a Recurrence,
    head: usize,
    kernel: Function,
    zeros: &'a mut [f32],
    value: &'a mut [f32],
    result: &'a mut [f32],
}

impl<'a> Head<'a> {
    /// `scratch` has [`scratch_size`] numbers.
    pub(super) fn new(
        recurrence: &'a Recurrence,
        head: usize,
        kernel: Function,
        scratch: &'a mut [f32],
    ) -> Self {
        let scratch = &mut scratch[..scratch_size(recurrence)];
        scratch.fill(0.0);
        let (zeros, rest) = scratch.split_at_mut(recurrence.key_size);
        let (value, result) = rest.split_at_mut(recurrence.state_columns());
        Self { recurrence, head, kernel, zeros, value, result }
    }

    /// Takes the rows of a sequence, each as the recurrence's inputs, through the state of the head. `out` gives the
    /// head's columns of a row's result.
    pub(super) fn run<'b>(
        &mut self,
        rows: impl Iterator<Item = usize> + Clone,
        input: impl Fn(usize, usize) -> &'b [f32],
        mut out: impl FnMut(usize, &mut dyn FnMut(&mut [f32])),
        state: &mut [f32],
    ) {
        let whole = self.recurrence.rule == RecurrenceRule::WholeSum;
        if whole {
            for row in rows.clone() {
                self.step(|number| input(number, row), true, state);
            }
        }
        for row in rows {
            self.step(|number| input(number, row), !whole, state);
            out(row, &mut |out| self.finish(out));
        }
    }

    /// One token; its key and value count where `learns` is set.
    fn step<'b>(&mut self, input: impl Fn(usize) -> &'b [f32], learns: bool, state: &mut [f32]) {
        let r = self.recurrence;
        let part = |number: usize, heads: usize, size: usize| {
            let head = self.head * heads / r.heads;
            &input(number)[head * size..(head + 1) * size]
        };
        let query = part(0, r.query_heads, r.key_size);
        let key = if learns { part(1, r.key_heads, r.key_size) } else { &*self.zeros };
        let (decay, rate) = match r.rule {
            RecurrenceRule::Delta => (part(3, r.heads, 1)[0], Some(part(4, r.heads, 1)[0])),
            RecurrenceRule::Sum | RecurrenceRule::WholeSum => (1.0, None),
        };
        self.value[..r.value_size].copy_from_slice(part(2, r.value_heads, r.value_size));
        if r.rule != RecurrenceRule::Delta {
            // The last column gathers the keys themselves.
            self.value[r.value_size] = 1.0;
        }
        (self.kernel)(&Token { query, key, value: self.value, decay, rate }, state, self.result);
    }

    /// The result of the last token.
    fn finish(&self, out: &mut [f32]) {
        let (result, rest) = self.result.split_at(self.recurrence.value_size);
        out.copy_from_slice(result);
        if self.recurrence.rule != RecurrenceRule::Delta {
            let sum = rest[0] + EPSILON;
            out.iter_mut().for_each(|x| *x /= sum);
        }
    }
}

/// Runs of `group` columns brought to the length `factor`.
pub(super) fn unit(group: usize, epsilon: f32, factor: f32, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks(group).zip(out.chunks_mut(group)) {
        let square = x.iter().fold(0.0, |sum, &x| sum + f64::from(x) * f64::from(x));
        let scale = (f64::from(factor) / libm::sqrt(square + f64::from(epsilon))) as f32;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale);
    }
}

/// `exp(−exp(log) · softplus(x + bias))`, column by column.
pub(super) fn decay(log: &[f32], bias: &[f32], x: &[f32], out: &mut [f32]) {
    for (((out, x), log), bias) in out.iter_mut().zip(x).zip(log).zip(bias) {
        let sum = x + bias;
        let softplus = if sum > 20.0 { sum } else { libm::log1pf(libm::expf(sum)) };
        *out = libm::expf(-libm::expf(*log) * softplus);
    }
}

/// Every column `times` times, side by side.
pub(super) fn repeat(times: usize, x: &[f32], out: &mut [f32]) {
    out.chunks_mut(times).zip(x).for_each(|(out, x)| out.fill(*x));
}

/// The weighted sum of `rows`, in order.
pub(super) fn mix<'a>(weights: &[f32], rows: impl Iterator<Item = &'a [f32]>, out: &mut [f32]) {
    out.fill(0.0);
    for (weight, row) in weights.iter().zip(rows) {
        out.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
    }
}
