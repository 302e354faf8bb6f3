//! Recurrent states, updated token by token: the arithmetic of a step does not depend on the batch.

use siskin_kernels::ops::recurrence::{Function, PANEL, RecurrenceInputs};

use siskin_graph::{LinearAttention, STATE_PANEL, StateUpdate};

const _: () = assert!(STATE_PANEL == PANEL);

/// Added to the denominator of [`StateUpdate::Additive`].
const EPSILON: f32 = 1e-6;

/// Columns of a causal conv1d per chunk of work.
pub(super) const COLUMNS: usize = 256;

/// Causal conv1d of one row: `history` holds the inputs of the last tokens before this row, oldest first, and is
/// shifted to include this row. `weights` are those of these columns.
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

/// Returns the number of scratch f32 values of [`LinearAttentionHead`].
pub(super) fn scratch_size(attention: &LinearAttention) -> usize {
    attention.key_size + 2 * attention.state_columns()
}

/// A head of linear attention, with scratch memory padded to whole panels.
pub(super) struct LinearAttentionHead<'a> {
    attention: &'a LinearAttention,
    head: usize,
    kernel: Function,
    zeros: &'a mut [f32],
    value: &'a mut [f32],
    result: &'a mut [f32],
}

impl<'a> LinearAttentionHead<'a> {
    /// Creates a head; `scratch` has [`scratch_size`] values.
    pub(super) fn new(
        attention: &'a LinearAttention,
        head: usize,
        kernel: Function,
        scratch: &'a mut [f32],
    ) -> Self {
        let scratch = &mut scratch[..scratch_size(attention)];
        scratch.fill(0.0);
        let (zeros, rest) = scratch.split_at_mut(attention.key_size);
        let (value, result) = rest.split_at_mut(attention.state_columns());
        Self { attention, head, kernel, zeros, value, result }
    }

    /// Runs the rows of a sequence through the state of the head; `input` returns an input of the recurrence for a row.
    /// `out` provides the head's columns of a row's result.
    pub(super) fn run<'b>(
        &mut self,
        rows: impl Iterator<Item = usize> + Clone,
        input: impl Fn(usize, usize) -> &'b [f32],
        mut out: impl FnMut(usize, &mut dyn FnMut(&mut [f32])),
        state: &mut [f32],
    ) {
        let whole = self.attention.rule == StateUpdate::BidirectionalAdditive;
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

    /// Processes one token; its key and value update the state only if `learns` is set.
    fn step<'b>(&mut self, input: impl Fn(usize) -> &'b [f32], learns: bool, state: &mut [f32]) {
        let r = self.attention;
        let part = |number: usize, heads: usize, size: usize| {
            let head = self.head * heads / r.heads;
            &input(number)[head * size..(head + 1) * size]
        };
        let query = part(0, r.query_heads, r.key_size);
        let key = if learns { part(1, r.key_heads, r.key_size) } else { &*self.zeros };
        let (decay, rate) = match r.rule {
            StateUpdate::GatedDelta => (part(3, r.heads, 1)[0], Some(part(4, r.heads, 1)[0])),
            StateUpdate::Additive | StateUpdate::BidirectionalAdditive => (1.0, None),
        };
        self.value[..r.value_size].copy_from_slice(part(2, r.value_heads, r.value_size));
        if r.rule != StateUpdate::GatedDelta {
            // The extra column accumulates the sum of the keys, which is the normalizer.
            self.value[r.value_size] = 1.0;
        }
        (self.kernel)(&RecurrenceInputs { query, key, value: self.value, decay, rate }, state, self.result);
    }

    /// Writes the result of the last token.
    fn finish(&self, out: &mut [f32]) {
        let (result, rest) = self.result.split_at(self.attention.value_size);
        out.copy_from_slice(result);
        if self.attention.rule != StateUpdate::GatedDelta {
            let sum = rest[0] + EPSILON;
            out.iter_mut().for_each(|x| *x /= sum);
        }
    }
}

/// Scales each group of `group` columns to the L2 norm `factor`.
pub(super) fn unit(group: usize, epsilon: f32, factor: f32, x: &[f32], out: &mut [f32]) {
    for (x, out) in x.chunks(group).zip(out.chunks_mut(group)) {
        let square = x.iter().fold(0.0, |sum, &x| sum + f64::from(x) * f64::from(x));
        let scale = (f64::from(factor) / libm::sqrt(square + f64::from(epsilon))) as f32;
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * scale);
    }
}

/// `exp(−exp(log) · softplus(x + bias))`, column-wise.
pub(super) fn decay(log: &[f32], bias: &[f32], x: &[f32], out: &mut [f32]) {
    for (((out, x), log), bias) in out.iter_mut().zip(x).zip(log).zip(bias) {
        let sum = x + bias;
        let softplus = if sum > 20.0 { sum } else { libm::log1pf(libm::expf(sum)) };
        *out = libm::expf(-libm::expf(*log) * softplus);
    }
}

/// Repeats every column `times` times.
pub(super) fn repeat(times: usize, x: &[f32], out: &mut [f32]) {
    out.chunks_mut(times).zip(x).for_each(|(out, x)| out.fill(*x));
}

/// Writes the weighted sum of `rows`, in order.
pub(super) fn mix<'a>(weights: &[f32], rows: impl Iterator<Item = &'a [f32]>, out: &mut [f32]) {
    out.fill(0.0);
    for (weight, row) in weights.iter().zip(rows) {
        out.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * x);
    }
}
