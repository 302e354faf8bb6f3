//! Searches for the scales and factors with the least error.

use super::{GROUP, Grid};
use crate::quant::search::inverse;

/// Number of smaller factors that are tried below the one that reaches all values.
const FEWER: i8 = 4;

/// Returns the weights of group `index`.
pub(super) fn part(weights: Option<&[f32]>, index: usize) -> Option<&[f32]> {
    weights.map(|weights| &weights[index * GROUP..][..GROUP])
}

/// See [`RowType::scale`](super::RowType::scale).
pub(super) fn scale<G: Grid>(rotated: &[f32], weights: Option<&[f32]>) -> f32 {
    let max_abs = rotated.iter().fold(0.0, |max_abs: f32, x| max_abs.max(x.abs()));
    let largest = G::FACTORS.map_or(1.0, |factors| f32::from(*factors.end()));
    let whole = max_abs / largest / G::ENDS[0].abs();
    // Covers values too small for a normal reciprocal.
    if !(whole.is_normal() && (1.0 / whole).is_normal()) {
        return 0.0;
    }
    let (from, to, steps) = G::REACH;
    let mut best = (f64::INFINITY, G::stored(whole));
    for step in 0..=steps {
        let scale = G::stored(whole * (from + (to - from) * step as f32 / steps as f32));
        let groups = rotated.chunks_exact(GROUP).enumerate();
        let error: f64 =
            groups.map(|(index, group)| f64::from(choose::<G>(scale, group, part(weights, index)).0)).sum();
        if scale.is_normal() && error < best.0 {
            best = (error, scale);
        }
    }
    best.1
}

/// See [`RowType::factor`](super::RowType::factor).
pub(super) fn factor<G: Grid>(scale: f32, group: &[f32], weights: Option<&[f32]>) -> i8 {
    choose::<G>(scale, group, weights).1
}

/// Returns the least error and its factor.
fn choose<G: Grid>(scale: f32, group: &[f32], weights: Option<&[f32]>) -> (f32, i8) {
    let Some(factors) = G::FACTORS else { return (error::<G>(scale, group, weights), 1) };
    let max_abs = group.iter().fold(0.0, |max_abs: f32, x| max_abs.max(x.abs()));
    // The cast saturates if the scale is zero.
    let reaching = ((max_abs / (scale * G::ENDS[0].abs())) as i8).saturating_add(1);
    let reaching = reaching.clamp(*factors.start(), *factors.end());
    let mut best = (f32::INFINITY, reaching);
    for magnitude in reaching.saturating_sub(FEWER).max(*factors.start())..=reaching {
        for factor in [magnitude, -magnitude] {
            let error = error::<G>(scale * f32::from(factor), group, weights);
            if error < best.0 {
                best = (error, factor);
            }
        }
    }
    best
}

/// Returns the weighted squared error of sixteen columns.
#[inline(always)]
fn error<G: Grid>(step: f32, group: &[f32], weights: Option<&[f32]>) -> f32 {
    let [low, high] = G::ENDS;
    let inverse = inverse(step);
    let mut errors = [0.0; GROUP];
    for (error, &x) in errors.iter_mut().zip(group) {
        let off = x - step * G::level((x * inverse).max(low).min(high));
        *error = off * off;
    }
    if let Some(weights) = weights {
        errors.iter_mut().zip(weights).for_each(|(error, weight)| *error *= weight);
    }
    errors.iter().sum()
}

/// Returns the q nearest to a value in steps of `step`.
pub(super) fn integer<G: Grid>(step: f32, x: f32) -> i16 {
    let [low, high] = G::ENDS;
    // NaN becomes the lowest q.
    G::level((x * inverse(step)).max(low).min(high)) as i16
}
