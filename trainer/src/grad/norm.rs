//! Normalization of groups of columns.

use siskin_graph::op::{L2Normalize, Norm, NormKind};

use super::{GradientRule, RuleBackward, RuleCall, table};
use crate::real::Real;

/// What the elements of a group are normalized by: `(x - mean) * factor`.
struct GroupMoments<T> {
    mean: T,
    factor: T,
}

impl<T: Real> GroupMoments<T> {
    fn new(kind: NormKind, epsilon: T, x: &[T]) -> Self {
        let count = T::of(x.len() as f64);
        let mean = match kind {
            NormKind::Layer => x.iter().copied().sum::<T>() / count,
            NormKind::Rms => T::ZERO,
        };
        let square: T = x.iter().map(|x| (*x - mean) * (*x - mean)).sum();
        Self { mean, factor: T::ONE / (square / count + epsilon).sqrt() }
    }
}

/// A group whose output has a gradient.
struct GroupBackward<'a, T> {
    x: &'a [T],
    weight: &'a [T],
    /// The gradient of the output.
    gradient: &'a [T],
}

impl<T: Real> GradientRule<T> for Norm {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { kind, weight, bias, epsilon, group } = self;
        let (columns, epsilon) = (call.columns(), T::of(f64::from(epsilon)));
        let (weight, bias) = (call.weight(weight), bias.map(|bias| call.weight(bias)));
        table::each(out, columns, |row, out| {
            let x = table::row(inputs[0], columns, row);
            for (run, (x, out)) in x.chunks(group).zip(out.chunks_mut(group)).enumerate() {
                let GroupMoments { mean, factor } = GroupMoments::new(kind, epsilon, x);
                let first = run * group % weight.len();
                for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
                    *out = (*x - mean) * factor * weight[first + i];
                    if let Some(bias) = bias {
                        *out += bias[first + i];
                    }
                }
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { kind, weight, bias, epsilon, group } = self;
        let (columns, epsilon) = (call.columns(), T::of(f64::from(epsilon)));
        let factors = call.weight(weight);
        let (inputs, gradient) = (back.inputs, back.gradient);
        if let Some(to) = &mut back.input_gradients[0] {
            table::each(to, columns, |row, to| {
                let runs = table::row(inputs[0], columns, row).chunks(group);
                let runs = runs.zip(table::row(gradient, columns, row).chunks(group));
                for (run, ((x, g), to)) in runs.zip(to.chunks_mut(group)).enumerate() {
                    let first = run * group % factors.len();
                    let weight = &factors[first..first + x.len()];
                    group_backward(kind, epsilon, &GroupBackward { x, weight, gradient: g }, to);
                }
            });
        }
        if let Some(sums) = back.weight_gradients.of(weight) {
            table::sum_rows(call.rows, sums, |row, sums| {
                let runs = table::row(inputs[0], columns, row).chunks(group);
                for (run, (x, g)) in runs.zip(table::row(gradient, columns, row).chunks(group)).enumerate() {
                    let GroupMoments { mean, factor } = GroupMoments::new(kind, epsilon, x);
                    let first = run * group % factors.len();
                    for (i, (x, g)) in x.iter().zip(g).enumerate() {
                        sums[first + i] += *g * (*x - mean) * factor;
                    }
                }
            });
        }
        if let Some(sums) = bias.and_then(|bias| back.weight_gradients.of(bias)) {
            let width = sums.len();
            table::sum_rows(call.rows, sums, |row, sums| {
                for (i, g) in table::row(gradient, columns, row).iter().enumerate() {
                    sums[i % width] += *g;
                }
            });
        }
    }
}

/// Adds the gradient of a group.
fn group_backward<T: Real>(kind: NormKind, epsilon: T, group: &GroupBackward<'_, T>, to: &mut [T]) {
    let &GroupBackward { x, weight, gradient: g } = group;
    let count = T::of(x.len() as f64);
    let GroupMoments { mean, factor } = GroupMoments::new(kind, epsilon, x);
    let (mut sum, mut inner) = (T::ZERO, T::ZERO);
    for ((x, g), w) in x.iter().zip(g).zip(weight) {
        sum += *g * *w;
        inner += *g * *w * (*x - mean) * factor;
    }
    let sum = if kind == NormKind::Layer { sum / count } else { T::ZERO };
    let inner = inner / count;
    for (((to, x), g), w) in to.iter_mut().zip(x).zip(g).zip(weight) {
        *to += factor * (*g * *w - sum - (*x - mean) * factor * inner);
    }
}

impl<T: Real> GradientRule<T> for L2Normalize {
    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], _: &mut [T]) {
        let &Self { group, epsilon, factor } = self;
        let (columns, epsilon, factor) =
            (call.columns(), T::of(f64::from(epsilon)), T::of(f64::from(factor)));
        table::each(out, columns, |row, out| {
            let x = table::row(inputs[0], columns, row);
            for (x, out) in x.chunks(group).zip(out.chunks_mut(group)) {
                let square: T = x.iter().map(|x| *x * *x).sum();
                let scale = factor / (square + epsilon).sqrt();
                out.iter_mut().zip(x).for_each(|(out, x)| *out = *x * scale);
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let &Self { group, epsilon, factor } = self;
        let (columns, epsilon, factor) =
            (call.columns(), T::of(f64::from(epsilon)), T::of(f64::from(factor)));
        let (inputs, gradient) = (back.inputs, back.gradient);
        let Some(to) = &mut back.input_gradients[0] else { return };
        table::each(to, columns, |row, to| {
            let runs = table::row(inputs[0], columns, row).chunks(group);
            let runs = runs.zip(table::row(gradient, columns, row).chunks(group));
            for ((x, g), to) in runs.zip(to.chunks_mut(group)) {
                let square: T = x.iter().map(|x| *x * *x).sum();
                let length = (square + epsilon).sqrt();
                let inner: T = x.iter().zip(g).map(|(x, g)| *x * *g).sum();
                let inner = inner / (square + epsilon);
                for ((to, x), g) in to.iter_mut().zip(x).zip(g) {
                    *to += factor / length * (*g - *x * inner);
                }
            }
        });
    }
}
