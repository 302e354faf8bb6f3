//! Linear attention with a recurrent state of constant size, including the gated delta rule
//! (arXiv:2412.06464): the state is a matrix that each token's key and value update and its query reads.
//!
//! Contract: the state has a row for each key column and a column for each value column. For each token
//! - every element of the state is multiplied by the decay;
//! - the update is the value or, with a rate (delta rule), `(value − read) · rate`, where `read` is, column
//!   by column, the chain `fma(k[i], state[i], …)` from zero in order of i;
//! - `state[i] = fma(k[i], update, state[i])`;
//! - the output is, column by column, the chain `fma(q[i], state[i], …)` from zero in order of i.
//!
//! Columns are independent of each other, so a call may process a subset of them.

use crate::float;
use crate::ops::instantiate::instantiate;
use crate::simd::{LANES, Simd};

/// Interleaved columns of a state panel.
pub const PANEL: usize = LANES;

/// The inputs of one token.
#[derive(Clone, Copy, Debug)]
pub struct RecurrenceInputs<'a> {
    /// The query vector.
    pub query: &'a [f32],
    /// The key vector, as many columns as the query.
    pub key: &'a [f32],
    /// The value vector, a whole number of panels.
    pub value: &'a [f32],
    /// Factor on the previous state.
    pub decay: f32,
    /// Learning rate of the delta rule: the fraction of the value read for the key that is replaced. `None`
    /// adds the value.
    pub rate: Option<f32>,
}

/// Updates the state with a token and writes its output, as many columns as the value. The state is stored in
/// panels of [`PANEL`] columns: row-major, with the panel's columns interleaved.
pub type Function = fn(&RecurrenceInputs<'_>, &mut [f32], &mut [f32]);

instantiate!(LIST: Function = "recurrence" body(token: &RecurrenceInputs<'_>, state: &mut [f32], out: &mut [f32]));

/// Panels that are processed together, to hide the latency of the multiply-add chains.
const TOGETHER: usize = 4;

#[inline(always)]
fn body<S: Simd>(s: S, token: &RecurrenceInputs<'_>, state: &mut [f32], out: &mut [f32]) {
    let rows = token.key.len();
    let values = token.value.as_chunks::<LANES>().0;
    let outs = out.as_chunks_mut::<LANES>().0;
    let state = state.as_chunks_mut::<LANES>().0;
    let whole = values.len().min(outs.len()).min(state.len() / rows.max(1));
    let mut panel = 0;
    while panel + TOGETHER <= whole {
        let state = &mut state[panel * rows..(panel + TOGETHER) * rows];
        panels::<S, TOGETHER>(s, token, &values[panel..], state, &mut outs[panel..]);
        panel += TOGETHER;
    }
    while panel < whole {
        panels::<S, 1>(
            s,
            token,
            &values[panel..],
            &mut state[panel * rows..(panel + 1) * rows],
            &mut outs[panel..],
        );
        panel += 1;
    }
}

/// Processes `P` panels. `state` holds the rows of one panel after those of another.
#[inline(always)]
fn panels<S: Simd, const P: usize>(
    s: S,
    token: &RecurrenceInputs<'_>,
    values: &[[f32; LANES]],
    state: &mut [[f32; LANES]],
    out: &mut [[f32; LANES]],
) {
    let rows = token.key.len();
    let mut changes = [s.splat(0.0); P];
    for (change, value) in changes.iter_mut().zip(values) {
        *change = s.load(value);
    }
    if token.rate.is_some() || token.decay != 1.0 {
        let decay = s.splat(token.decay);
        let mut reads = [s.splat(0.0); P];
        for (row, key) in token.key.iter().enumerate() {
            let key = s.splat(*key);
            for (panel, read) in reads.iter_mut().enumerate() {
                let place = &mut state[panel * rows + row];
                let kept = s.mul(s.load(place), decay);
                s.store(kept, place);
                *read = s.fma(key, kept, *read);
            }
        }
        if let Some(rate) = token.rate {
            for (change, read) in changes.iter_mut().zip(&reads) {
                *change = s.mul(s.sub(*change, *read), s.splat(rate));
            }
        }
    }
    let mut sums = [s.splat(0.0); P];
    for (row, (key, query)) in token.key.iter().zip(token.query).enumerate() {
        let (key, query) = (s.splat(*key), s.splat(*query));
        for (panel, (sum, change)) in sums.iter_mut().zip(&changes).enumerate() {
            let place = &mut state[panel * rows + row];
            let grown = s.fma(key, *change, s.load(place));
            s.store(grown, place);
            *sum = s.fma(query, grown, *sum);
        }
    }
    for (sum, out) in sums.iter().zip(out) {
        s.store(*sum, out);
    }
}

/// The scalar reference of the operation.
pub fn reference(token: &RecurrenceInputs<'_>, state: &mut [f32], out: &mut [f32]) {
    let rows = token.key.len();
    let place = |row: usize, column: usize| (column / PANEL * rows + row) * PANEL + column % PANEL;
    for (column, (value, out)) in token.value.iter().zip(out).enumerate() {
        let mut read = 0.0;
        for (row, key) in token.key.iter().enumerate() {
            let kept = &mut state[place(row, column)];
            *kept *= token.decay;
            read = float::fma(*key, *kept, read);
        }
        let change = token.rate.map_or(*value, |rate| (value - read) * rate);
        *out = 0.0;
        for (row, (key, query)) in token.key.iter().zip(token.query).enumerate() {
            let grown = &mut state[place(row, column)];
            *grown = float::fma(*key, change, *grown);
            *out = float::fma(*query, *grown, *out);
        }
    }
}
