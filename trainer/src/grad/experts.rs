//! Mixture of experts: router, dispatch, expert matmuls, combine.
//!
//! The output of [`Route`] holds for each row the weights of the chosen experts, then their indices, which have no
//! gradient.

use siskin_graph::op::{Combine, Dispatch, ExpertLinear, Route, Routing};

use super::{GradientRule, RuleBackward, RuleCall, table};
use crate::gemm::{MatrixOutput, MatrixView, multiply_parallel};
use crate::real::Real;

/// Returns the softmax of a row's scores.
fn softmax<T: Real>(scores: &[T]) -> Vec<T> {
    let max = scores.iter().copied().fold(scores[0], T::max);
    let mut probabilities: Vec<T> = scores.iter().map(|score| (*score - max).exp()).collect();
    let sum: T = probabilities.iter().copied().sum();
    probabilities.iter_mut().for_each(|probability| *probability /= sum);
    probabilities
}

impl<T: Real> GradientRule<T> for Route {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { routing } = self;
        table::each(out, call.columns(), |row, out| {
            let scores = table::row(inputs[0], routing.experts, row);
            let probabilities = softmax(scores);
            let (weights, numbers) = out.split_at_mut(routing.top_k);
            for choice in 0..routing.top_k {
                let taken = |expert: &usize| numbers[..choice].iter().any(|n| n.f64() == *expert as f64);
                let better =
                    |best: usize, expert: usize| if scores[expert] > scores[best] { expert } else { best };
                let expert = (0..scores.len()).filter(|expert| !taken(expert)).reduce(better).unwrap_or(0);
                weights[choice] = probabilities[expert];
                numbers[choice] = T::of(expert as f64);
            }
            if routing.normalize {
                let sum: T = weights.iter().copied().sum();
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
        });
    }

    fn reads(&self) -> super::Reads {
        super::Reads::BOTH
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { routing } = self;
        let columns = call.columns();
        let Some(to) = &mut back.input_gradients[0] else { return };
        table::each(to, routing.experts, |row, to| {
            let probabilities = softmax(table::row(back.inputs[0], routing.experts, row));
            let chosen = &table::row(back.output, columns, row)[routing.top_k..];
            let gradient = table::row(back.gradient, columns, row);
            // The gradients of the probabilities.
            let mut probability_gradient = vec![T::ZERO; routing.experts];
            let place = |choice: usize| chosen[choice].f64() as usize;
            let sum: T = (0..routing.top_k).map(|choice| probabilities[place(choice)]).sum();
            let inner: T = (0..routing.top_k).map(|c| gradient[c] * probabilities[place(c)]).sum();
            for (choice, g) in gradient.iter().enumerate().take(routing.top_k) {
                probability_gradient[place(choice)] =
                    if routing.normalize { *g / sum - inner / (sum * sum) } else { *g };
            }
            let inner: T = probability_gradient
                .iter()
                .zip(&probabilities)
                .map(|(probability_gradient, probability)| *probability_gradient * *probability)
                .sum();
            for ((to, probability), probability_gradient) in
                to.iter_mut().zip(&probabilities).zip(&probability_gradient)
            {
                *to += *probability * (*probability_gradient - inner);
            }
        });
    }
}

/// The slot of each choice: the slots of an expert are contiguous, in the order of the rows.
struct Slots {
    /// The first slot of each expert, and the end of the last.
    starts: Vec<usize>,
    /// The slot of each choice of each row; `None` beyond the expert's capacity.
    places: Vec<Option<usize>>,
    /// The choice (row · chosen + choice) of each slot.
    owners: Vec<usize>,
}

impl Slots {
    fn new<T: Real>(call: &RuleCall<'_, T>, routing: &Routing, routed: &[T]) -> Self {
        let rows = &call.sequences().rows;
        let number = |index: usize| {
            let (row, choice) = (index / routing.top_k, index % routing.top_k);
            routed[row * 2 * routing.top_k + routing.top_k + choice].f64() as usize
        };
        let mut of_expert: Vec<Vec<usize>> = vec![Vec::new(); routing.experts];
        let mut taken = vec![0; routing.experts];
        for index in 0..rows.len() * routing.top_k {
            let row = index / routing.top_k;
            if rows[row].position == 0 && index % routing.top_k == 0 {
                taken.fill(0);
            }
            let expert = number(index);
            if routing.capacity.is_none_or(|max| taken[expert] < max) {
                of_expert[expert].push(index);
            }
            taken[expert] += 1;
        }
        let mut starts = vec![0];
        let (mut places, mut owners) = (vec![None; rows.len() * routing.top_k], Vec::new());
        for indices in of_expert {
            for index in indices {
                places[index] = Some(owners.len());
                owners.push(index);
            }
            starts.push(owners.len());
        }
        Self { starts, places, owners }
    }
}

impl<T: Real> GradientRule<T> for Dispatch {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { routing } = self;
        let (slots, columns) = (Slots::new(call, &routing, inputs[1]), call.columns());
        table::each(out, columns, |slot, out| match slots.owners.get(slot) {
            Some(index) => out.copy_from_slice(table::row(inputs[0], columns, index / routing.top_k)),
            None => out.fill(T::ZERO),
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { routing } = self;
        let (slots, columns) = (Slots::new(call, &routing, back.inputs[1]), call.columns());
        let Some(to) = &mut back.input_gradients[0] else { return };
        table::each(to, columns, |row, to| {
            let places = &slots.places[row * routing.top_k..(row + 1) * routing.top_k];
            for slot in places.iter().flatten() {
                let from = table::row(back.gradient, columns, *slot);
                to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
            }
        });
    }
}

impl<T: Real> GradientRule<T> for ExpertLinear {
    fn takes_packed(&self) -> bool {
        true
    }

    fn flops(&self, call: &RuleCall<'_, T>) -> f64 {
        2.0 * call.rows as f64 * call.columns() as f64 * call.input(0).columns as f64
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let Self { routing, weights, biases } = self;
        let (slots, depth, columns) =
            (Slots::new(call, routing, inputs[1]), call.input(0).columns, call.columns());
        out.fill(T::ZERO);
        for (expert, &weight) in weights.iter().enumerate() {
            let (first, end) = (slots.starts[expert], slots.starts[expert + 1]);
            if first == end {
                continue;
            }
            let x = MatrixView::new(&inputs[0][first * depth..], end - first, depth, depth);
            let numbers = call.matrix(weight).part(0..columns);
            let w = MatrixView::new(&numbers, columns, depth, depth);
            let out = &mut out[first * columns..end * columns];
            multiply_parallel(T::ONE, x, w.transposed(), false, MatrixOutput::new(out, columns));
            if let Some(&bias) = biases.get(expert) {
                let bias = call.weight(bias);
                let add = |out: &mut [T]| out.iter_mut().zip(bias).for_each(|(out, bias)| *out += *bias);
                out.chunks_mut(columns).for_each(add);
            }
        }
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let Self { routing, weights, biases } = self;
        let (slots, depth, columns) =
            (Slots::new(call, routing, back.inputs[1]), call.input(0).columns, call.columns());
        for (expert, &weight) in weights.iter().enumerate() {
            let (first, end) = (slots.starts[expert], slots.starts[expert + 1]);
            if first == end {
                continue;
            }
            let x = MatrixView::new(&back.inputs[0][first * depth..], end - first, depth, depth);
            let gradient = &back.gradient[first * columns..end * columns];
            let g = MatrixView::new(gradient, end - first, columns, columns);
            if let Some(to) = &mut back.input_gradients[0] {
                let numbers = call.matrix(weight).part(0..columns);
                let w = MatrixView::new(&numbers, columns, depth, depth);
                let to = MatrixOutput::new(&mut to[first * depth..end * depth], depth);
                multiply_parallel(T::ONE, g, w, true, to);
            }
            if let Some(to) = back.weight_gradients.of(weight) {
                multiply_parallel(T::ONE, g.transposed(), x, true, MatrixOutput::new(to, depth));
            }
            if let Some(sums) = biases.get(expert).and_then(|&bias| back.weight_gradients.of(bias)) {
                for from in gradient.chunks(columns) {
                    sums.iter_mut().zip(from).for_each(|(sum, from)| *sum += *from);
                }
            }
        }
    }
}

impl<T: Real> GradientRule<T> for Combine {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { routing } = self;
        let (slots, columns) = (Slots::new(call, &routing, inputs[1]), call.columns());
        table::each(out, columns, |row, out| {
            out.fill(T::ZERO);
            let weights = table::row(inputs[1], 2 * routing.top_k, row);
            for (choice, weight) in weights.iter().enumerate().take(routing.top_k) {
                let Some(slot) = slots.places[row * routing.top_k + choice] else { continue };
                let from = table::row(inputs[0], columns, slot);
                out.iter_mut().zip(from).for_each(|(out, from)| *out += *weight * *from);
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { routing } = self;
        let (slots, columns) = (Slots::new(call, &routing, back.inputs[1]), call.columns());
        let wide = 2 * routing.top_k;
        let [given, routed] = back.input_gradients else { return };
        if let Some(to) = given {
            table::each(to, columns, |slot, to| {
                let Some(&index) = slots.owners.get(slot) else { return };
                let (row, choice) = (index / routing.top_k, index % routing.top_k);
                let weight = table::row(back.inputs[1], wide, row)[choice];
                let from = table::row(back.gradient, columns, row);
                to.iter_mut().zip(from).for_each(|(to, from)| *to += weight * *from);
            });
        }
        if let Some(to) = routed {
            table::each(to, wide, |row, to| {
                let gradient = table::row(back.gradient, columns, row);
                for (choice, to) in to.iter_mut().enumerate().take(routing.top_k) {
                    let Some(slot) = slots.places[row * routing.top_k + choice] else { continue };
                    let from = table::row(back.inputs[0], columns, slot);
                    *to += gradient.iter().zip(from).map(|(g, x)| *g * *x).sum();
                }
            });
        }
    }
}
