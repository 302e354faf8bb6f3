//! Linear attention with a recurrent state of constant size, and its causal convolution and decay gates.

use rayon::prelude::*;
use siskin_graph::op::{CausalConv1d, DecayGate, LinearAttention, StateUpdate};

use super::elementwise::sigmoid;
use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::real::Real;

/// Added to the denominator of normalized linear attention, as in the runtime.
const EPSILON: f64 = 1e-6;

impl<T: Real> GradientRule<T> for DecayGate {
    fn reads(&self) -> Reads {
        Reads::BOTH
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { log, bias } = self;
        let (log, bias, columns) = (call.weight(log), call.weight(bias), call.columns());
        table::each(out, columns, |row, out| {
            for (i, x) in table::row(inputs[0], columns, row).iter().enumerate() {
                out[i] = (-log[i].exp() * softplus(*x + bias[i])).exp();
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { log, bias } = self;
        let (logs, biases, columns) = (call.weight(log), call.weight(bias), call.columns());
        // The derivatives of the output by `x + bias` and by `log`.
        let gate_gradients = |row: usize, i: usize| {
            let at = row * columns + i;
            let sum = back.inputs[0][at] + biases[i];
            let state_gradient = -back.gradient[at] * back.output[at] * logs[i].exp();
            (state_gradient * sigmoid(sum), state_gradient * softplus(sum))
        };
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, columns, |row, to| {
                to.iter_mut().enumerate().for_each(|(i, to)| *to += gate_gradients(row, i).0);
            });
        }
        for (weight, of_log) in [(log, true), (bias, false)] {
            let Some(sums) = back.weight_gradients.of(weight) else { continue };
            table::sum_rows(call.rows, sums, |row, sums| {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let (inner, by_log) = gate_gradients(row, i);
                    *sum += if of_log { by_log } else { inner };
                }
            });
        }
    }
}

fn softplus<T: Real>(x: T) -> T {
    if x > T::of(20.0) { x } else { x.exp().ln_1p() }
}

impl<T: Real> GradientRule<T> for CausalConv1d {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { taps, weight, .. } = self;
        let (weight, columns, rows) = (call.weight(weight), call.columns(), &call.sequences().rows);
        table::each(out, columns, |row, out| {
            for (i, out) in out.iter_mut().enumerate() {
                let tap_count = taps.min(rows[row].position + 1);
                *out = (0..tap_count)
                    .map(|ago| weight[(i + 1) * taps - 1 - ago] * inputs[0][(row - ago) * columns + i])
                    .sum();
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { taps, weight, .. } = self;
        let (factors, columns, texts) = (call.weight(weight), call.columns(), call.sequences());
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, columns, |row, to| {
                let end = texts.sequences[texts.rows[row].sequence].rows.end;
                for (i, to) in to.iter_mut().enumerate() {
                    let tap_count = taps.min(end - row);
                    *to += (0..tap_count)
                        .map(|later| {
                            factors[(i + 1) * taps - 1 - later] * back.gradient[(row + later) * columns + i]
                        })
                        .sum();
                }
            });
        }
        if let Some(sums) = back.weight_gradients.of(weight) {
            table::sum_rows(call.rows, sums, |row, sums| {
                for (i, g) in table::row(back.gradient, columns, row).iter().enumerate() {
                    for ago in 0..taps.min(texts.rows[row].position + 1) {
                        sums[(i + 1) * taps - 1 - ago] += *g * back.inputs[0][(row - ago) * columns + i];
                    }
                }
            });
        }
    }
}

/// The inputs of a head: queries, keys and values of a sequence, and with [`StateUpdate::GatedDelta`] decays and rates,
/// token by token; or their gradients.
struct Tokens<T> {
    parts: Vec<Vec<T>>,
    count: usize,
}

/// Returns the heads of each input, and the columns of a head.
fn shapes(r: &LinearAttention) -> Vec<(usize, usize)> {
    let mut shapes =
        vec![(r.query_heads, r.key_size), (r.key_heads, r.key_size), (r.value_heads, r.value_size)];
    if r.rule == StateUpdate::GatedDelta {
        shapes.extend([(r.heads, 1), (r.heads, 1)]);
    }
    shapes
}

/// Returns the columns of a head in an input.
fn columns_of(r: &LinearAttention, head: usize, (heads, size): (usize, usize)) -> std::ops::Range<usize> {
    let own = head * heads / r.heads;
    own * size..(own + 1) * size
}

fn each_head<T: Real, R: Send>(
    call: &RuleCall<'_, T>,
    r: &LinearAttention,
    inputs: &[&[T]],
    work: impl Fn(usize, usize, Tokens<T>) -> R + Sync,
) -> Vec<R> {
    let sequences = &call.sequences().sequences;
    let task = |task: usize| {
        let (text, head) = (task / r.heads, task % r.heads);
        let gather = |(table, shape): (&&[T], (usize, usize))| -> Vec<T> {
            let columns = columns_of(r, head, shape);
            let rows = sequences[text].rows.clone().map(|row| table::row(table, shape.0 * shape.1, row));
            rows.flat_map(|row| &row[columns.clone()]).copied().collect()
        };
        let parts = inputs.iter().zip(shapes(r)).map(gather).collect();
        work(text, head, Tokens { parts, count: sequences[text].rows.len() })
    };
    (0..sequences.len() * r.heads).into_par_iter().map(task).collect()
}

/// A state matrix; its rows are key dimensions.
struct RecurrentState<T> {
    numbers: Vec<T>,
    columns: usize,
}

impl<T: Real> RecurrentState<T> {
    /// Returns `left · self`, one element per column.
    fn read(&self, left: &[T]) -> Vec<T> {
        let mut out = vec![T::ZERO; self.columns];
        for (factor, row) in left.iter().zip(self.numbers.chunks(self.columns)) {
            out.iter_mut().zip(row).for_each(|(out, x)| *out += *factor * *x);
        }
        out
    }

    /// Returns `self · right`, one element per row.
    fn multiply_right(&self, right: &[T]) -> impl Iterator<Item = T> + '_ {
        let right = right.to_vec();
        self.numbers.chunks(self.columns).map(move |row| row.iter().zip(&right).map(|(x, y)| *x * *y).sum())
    }

    /// Adds `left · rightᵀ`.
    fn add_outer_product(&mut self, left: &[T], right: &[T]) {
        for (factor, row) in left.iter().zip(self.numbers.chunks_mut(self.columns)) {
            row.iter_mut().zip(right).for_each(|(x, y)| *x += *factor * *y);
        }
    }

    fn scale(&mut self, factor: T) {
        self.numbers.iter_mut().for_each(|x| *x *= factor);
    }
}

/// One head of one sequence.
struct RecurrentHead<'a, T> {
    r: &'a LinearAttention,
    tokens: &'a Tokens<T>,
}

impl<T: Real> RecurrentHead<'_, T> {
    fn part(&self, input: usize, token: usize) -> &[T] {
        let size = shapes(self.r)[input].1;
        &self.tokens.parts[input][token * size..(token + 1) * size]
    }

    /// Returns a token's value; for normalized linear attention, with an extra column of one that accumulates the sum
    /// of keys.
    fn value(&self, token: usize) -> Vec<T> {
        let gathers = self.r.rule != StateUpdate::GatedDelta;
        self.part(2, token).iter().copied().chain(gathers.then_some(T::ONE)).collect()
    }

    fn empty(&self) -> RecurrentState<T> {
        let columns = self.r.value_size + usize::from(self.r.rule != StateUpdate::GatedDelta);
        RecurrentState { numbers: vec![T::ZERO; columns * self.r.key_size], columns }
    }

    /// Returns the update of a decayed state.
    fn update(&self, state: &RecurrentState<T>, token: usize) -> Vec<T> {
        let mut change = self.value(token);
        if self.r.rule == StateUpdate::GatedDelta {
            let (read, rate) = (state.read(self.part(1, token)), self.part(4, token)[0]);
            change.iter_mut().zip(read).for_each(|(value, read)| *value = (*value - read) * rate);
        }
        change
    }

    /// Updates the state with a token.
    fn update_state(&self, state: &mut RecurrentState<T>, token: usize) {
        if self.r.rule == StateUpdate::GatedDelta {
            state.scale(self.part(3, token)[0]);
        }
        let change = self.update(state, token);
        state.add_outer_product(self.part(1, token), &change);
    }

    /// Computes the output for a token from the state.
    fn read_out(&self, state: &RecurrentState<T>, token: usize, out: &mut [T]) {
        let output = state.read(self.part(0, token));
        out.copy_from_slice(&output[..self.r.value_size]);
        if self.r.rule != StateUpdate::GatedDelta {
            let sum = output[self.r.value_size] + T::of(EPSILON);
            out.iter_mut().for_each(|x| *x /= sum);
        }
    }

    fn forward(&self) -> Vec<T> {
        let mut out = vec![T::ZERO; self.tokens.count * self.r.value_size];
        let mut state = self.empty();
        let bidirectional = self.r.rule == StateUpdate::BidirectionalAdditive;
        if bidirectional {
            (0..self.tokens.count).for_each(|token| self.update_state(&mut state, token));
        }
        for (token, out) in out.chunks_mut(self.r.value_size).enumerate() {
            if !bidirectional {
                self.update_state(&mut state, token);
            }
            self.read_out(&state, token, out);
        }
        out
    }

    /// Returns the gradient of the state readout before its division.
    fn read_out_backward(&self, state: &RecurrentState<T>, token: usize, gradient: &[T]) -> Vec<T> {
        if self.r.rule == StateUpdate::GatedDelta {
            return gradient.to_vec();
        }
        let output = state.read(self.part(0, token));
        let sum = output[self.r.value_size] + T::of(EPSILON);
        let inner: T = gradient.iter().zip(&output).map(|(g, x)| *g * *x).sum();
        gradient.iter().map(|g| *g / sum).chain([-inner / (sum * sum)]).collect()
    }

    fn backward(&self, gradient: &[T]) -> Vec<Vec<T>> {
        let mut gradients: Vec<Vec<T>> =
            self.tokens.parts.iter().map(|part| vec![T::ZERO; part.len()]).collect();
        // The state after each token.
        let mut states: Vec<RecurrentState<T>> = Vec::with_capacity(self.tokens.count);
        let mut state = self.empty();
        for token in 0..self.tokens.count {
            self.update_state(&mut state, token);
            states.push(RecurrentState { numbers: state.numbers.clone(), columns: state.columns });
        }
        let mut state_gradient = self.empty();
        let bidirectional = self.r.rule == StateUpdate::BidirectionalAdditive;
        let of_token = |token: usize| &gradient[token * self.r.value_size..(token + 1) * self.r.value_size];
        if bidirectional {
            for token in 0..self.tokens.count {
                self.query_backward(&state, token, of_token(token), &mut state_gradient, &mut gradients);
            }
        }
        for token in (0..self.tokens.count).rev() {
            if !bidirectional {
                self.query_backward(
                    &states[token],
                    token,
                    of_token(token),
                    &mut state_gradient,
                    &mut gradients,
                );
            }
            self.update_backward(
                token.checked_sub(1).map(|before| &states[before]),
                token,
                &mut state_gradient,
                &mut gradients,
            );
        }
        gradients
    }

    /// Adds the gradients of a query and of the state it read.
    fn query_backward(
        &self,
        state: &RecurrentState<T>,
        token: usize,
        gradient: &[T],
        state_gradient: &mut RecurrentState<T>,
        gradients: &mut [Vec<T>],
    ) {
        let gradient = self.read_out_backward(state, token, gradient);
        state_gradient.add_outer_product(self.part(0, token), &gradient);
        add(&mut gradients[0], token, state.multiply_right(&gradient), self.r.key_size);
    }

    /// Adds the gradients of a token's inputs, and turns the gradient of the state into that of the previous state.
    fn update_backward(
        &self,
        before: Option<&RecurrentState<T>>,
        token: usize,
        state_gradient: &mut RecurrentState<T>,
        gradients: &mut [Vec<T>],
    ) {
        let (key, size) = (self.part(1, token), self.r.key_size);
        let delta = self.r.rule == StateUpdate::GatedDelta;
        let mut decayed = self.empty();
        if let Some(before) = before {
            decayed.numbers.copy_from_slice(&before.numbers);
        }
        if delta {
            decayed.scale(self.part(3, token)[0]);
        }
        let change = self.update(&decayed, token);
        add(&mut gradients[1], token, state_gradient.multiply_right(&change), size);
        let of_change = state_gradient.read(key);
        if !delta {
            add(&mut gradients[2], token, of_change.into_iter().take(self.r.value_size), self.r.value_size);
            return;
        }
        let rate = self.part(4, token)[0];
        let read = decayed.read(key);
        let differences = self.part(2, token).iter().zip(&read).map(|(value, read)| *value - *read);
        gradients[4][token] += of_change.iter().zip(differences).map(|(g, difference)| *g * difference).sum();
        add(&mut gradients[2], token, of_change.iter().map(|g| *g * rate), self.r.value_size);
        let of_read: Vec<T> = of_change.iter().map(|g| -*g * rate).collect();
        add(&mut gradients[1], token, decayed.multiply_right(&of_read), size);
        state_gradient.add_outer_product(key, &of_read);
        if let Some(before) = before {
            gradients[3][token] +=
                state_gradient.numbers.iter().zip(&before.numbers).map(|(g, x)| *g * *x).sum();
        }
        state_gradient.scale(self.part(3, token)[0]);
    }
}

fn add<T: Real>(to: &mut [T], token: usize, from: impl Iterator<Item = T>, size: usize) {
    to[token * size..(token + 1) * size].iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

impl<T: Real> GradientRule<T> for LinearAttention {
    fn flops(&self, call: &RuleCall<'_, T>) -> f64 {
        // The update and the query; the delta rule also reads the state with the key.
        let products = if self.rule == StateUpdate::GatedDelta { 3.0 } else { 2.0 };
        let state = self.heads * self.key_size * self.value_size;
        2.0 * products * call.rows as f64 * state as f64
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let r = self;
        let results =
            each_head(call, r, inputs, |_, _, tokens| RecurrentHead { r, tokens: &tokens }.forward());
        let texts = call.sequences();
        table::each(out, call.columns(), |row, out| {
            let place = texts.rows[row];
            for (head, out) in out.chunks_mut(r.value_size).enumerate() {
                let from = &results[place.sequence * r.heads + head];
                out.copy_from_slice(table::row(from, r.value_size, place.position));
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let r = self;
        let texts = call.sequences();
        let results = each_head(call, r, back.inputs, |text, head, tokens| {
            let columns = head * r.value_size..(head + 1) * r.value_size;
            let rows = texts.sequences[text].rows.clone();
            let rows = rows.map(|row| &table::row(back.gradient, call.columns(), row)[columns.clone()]);
            let gradient: Vec<T> = rows.flatten().copied().collect();
            RecurrentHead { r, tokens: &tokens }.backward(&gradient)
        });
        for ((input, shape), to) in shapes(r).into_iter().enumerate().zip(back.input_gradients.iter_mut()) {
            let Some(to) = to else { continue };
            table::each(to, shape.0 * shape.1, |row, to| {
                let place = texts.rows[row];
                for head in 0..r.heads {
                    let from = &results[place.sequence * r.heads + head][input];
                    let from = table::row(from, shape.1, place.position);
                    let to = &mut to[columns_of(r, head, shape)];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
                }
            });
        }
    }
}
