//! RMSNorm (arXiv:1910.07467) and LayerNorm (arXiv:1607.06450) over groups of columns.
//!
//! Contract: sums run over a sixteen-lane virtual vector (lane l accumulates columns l, l + 16, …, one fused
//! multiply-add each) and are reduced by the fixed tree. `y = (x − mean) · r · weight + bias` with
//! `r = 1 / √(variance + ε)`, each operation rounded once; RMSNorm has no mean, and the bias is optional.

use crate::float;
use crate::ops::instantiate::instantiate;
use crate::simd::{Simd, each_vector};

/// The parameters of a norm.
#[derive(Clone, Copy, Debug)]
pub struct NormArguments<'a> {
    /// Subtract the mean first (LayerNorm).
    pub centered: bool,
    /// Factor per column; its length is the group size.
    pub weight: &'a [f32],
    /// Bias per column of the group, or empty.
    pub bias: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// Normalizes each group of `x` into `out` of the same length.
pub type Function = fn(&NormArguments<'_>, &[f32], &mut [f32]);

instantiate!(LIST: Function = "norm" body(arguments: &NormArguments<'_>, x: &[f32], out: &mut [f32]));

#[inline(always)]
fn body<S: Simd>(s: S, arguments: &NormArguments<'_>, x: &[f32], out: &mut [f32]) {
    let group = arguments.weight.len().max(1);
    for (x, out) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)) {
        one_group(s, arguments, x, out);
    }
}

#[inline(always)]
fn one_group<S: Simd>(s: S, arguments: &NormArguments<'_>, x: &[f32], out: &mut [f32]) {
    let count = x.len() as f32;
    let mean = if arguments.centered { sum(s, x, |_, x| x) / count } else { 0.0 };
    let mean_lanes = s.splat(mean);
    let mut squares = s.splat(0.0);
    let (chunks, rest) = x.as_chunks();
    for chunk in chunks {
        let centered = s.sub(s.load(chunk), mean_lanes);
        squares = s.fma(centered, centered, squares);
    }
    if !rest.is_empty() {
        // Missing lanes hold the mean, so that they contribute zero.
        let centered = s.sub(s.load_part(rest, mean), mean_lanes);
        squares = s.fma(centered, centered, squares);
    }
    let scale = s.splat(1.0 / float::sqrt(s.sum(squares) / count + arguments.epsilon));
    let (weight, bias) = (arguments.weight, arguments.bias);
    if bias.is_empty() {
        each_vector!(s, [x, weight] => out, s.mul(s.mul(s.sub(x, mean_lanes), scale), weight));
    } else {
        each_vector!(s, [x, weight, bias] => out, {
            s.add(s.mul(s.mul(s.sub(x, mean_lanes), scale), weight), bias)
        });
    }
}

#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32], term: impl Fn(S, S::F) -> S::F) -> f32 {
    let mut total = s.splat(0.0);
    for chunk in x.chunks(16) {
        total = s.add(total, term(s, s.load_part(chunk, 0.0)));
    }
    s.sum(total)
}

/// The scalar reference of the operation.
pub fn reference(arguments: &NormArguments<'_>, x: &[f32], out: &mut [f32]) {
    let group = arguments.weight.len();
    let lanes_of = |values: &mut dyn Iterator<Item = f32>, squared: bool| {
        let mut lanes = [0.0_f32; 16];
        for (column, value) in values.enumerate() {
            let lane = &mut lanes[column % 16];
            *lane = if squared { float::fma(value, value, *lane) } else { *lane + value };
        }
        crate::simd::tree(lanes, |a, b| a + b)
    };
    for (x, out) in x.chunks_exact(group).zip(out.chunks_exact_mut(group)) {
        let count = group as f32;
        let mean = if arguments.centered { lanes_of(&mut x.iter().copied(), false) / count } else { 0.0 };
        let variance = lanes_of(&mut x.iter().map(|x| x - mean), true) / count;
        let scale = 1.0 / float::sqrt(variance + arguments.epsilon);
        for (column, (x, out)) in x.iter().zip(out).enumerate() {
            *out = (x - mean) * scale * arguments.weight[column];
            if let Some(bias) = arguments.bias.get(column) {
                *out += bias;
            }
        }
    }
}
