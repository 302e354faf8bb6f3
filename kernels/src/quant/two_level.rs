//! Searches for the scales of super-blocks (K-quants): blocks of 256 whose sub-blocks have small integer
//! factors of a common f16 scale.

use super::bit_fields::{BlockFields, half};
use super::search::{
    ImportanceWeights, IntegerLevels, Levels, Reach, affine, error, half_bits, inverse, nearest, put_codes,
    symmetric,
};

/// Iterations of fitting the common scale to the factors and the factors to the common scale.
const ROUNDS: usize = 3;

/// Fills `parts` for weight = d · factor · level, with signed factors from `lowest` to −`lowest` − 1.
pub(super) fn symmetric_factors<L: Levels>(
    values: &[f32],
    given: Option<&[f32]>,
    (levels, reach, sub_block, lowest): (L, Reach, usize, f32),
    parts: &mut BlockFields,
) {
    let weights = ImportanceWeights::new(given);
    let mut wanted = [0.0; 16];
    let mut largest: f32 = 0.0;
    for (s, (x, wanted)) in values.chunks_exact(sub_block).zip(&mut wanted).enumerate() {
        *wanted = symmetric(x, weights.from(s * sub_block), levels, reach);
        if wanted.abs() > largest.abs() {
            largest = *wanted;
        }
    }
    let mut d = half(half_bits(largest / lowest));
    let mut best = (f32::INFINITY, 0.0, [0.0; 16]);
    for _ in 0..ROUNDS {
        let mut factors = [0.0; 16];
        let (mut total, mut cross, mut square) = (0.0, 0.0, 0.0);
        for (s, x) in values.chunks_exact(sub_block).enumerate() {
            let w = weights.from(s * sub_block);
            let middle = nearest((wanted[s] * inverse(d)).max(lowest).min(-lowest - 1.0));
            let mut found = (f32::INFINITY, middle);
            for factor in [middle, middle - 1.0, middle + 1.0] {
                let factor = factor.max(lowest).min(-lowest - 1.0);
                let error = error(x, w, levels, d * factor, 0.0);
                if error < found.0 {
                    found = (error, factor);
                }
            }
            factors[s] = found.1;
            total += found.0;
            for (&x, &w) in x.iter().zip(w) {
                let level = found.1 * levels.level(x * inverse(d * found.1));
                cross += w * x * level;
                square += w * level * level;
            }
        }
        if total < best.0 {
            best = (total, d, factors);
        }
        d = half(half_bits(cross * inverse(square)));
    }
    let (_, d, factors) = best;
    parts.d[0] = half_bits(d);
    for (s, x) in values.chunks_exact(sub_block).enumerate() {
        parts.scales[s] = factors[s] as i8 as u8;
        put_codes(x, levels, d * factors[s], 0.0, &mut parts.codes[s * sub_block..][..sub_block]);
    }
}

/// A candidate solution except for the codes.
#[derive(Clone, Copy)]
struct Choice {
    d: f32,
    m: f32,
    factors: [f32; 16],
    min_factors: [f32; 16],
}

/// Fills `parts` for weight = d · factor · code − m · min factor, with codes up to `top` and factors from 0
/// to `limit`.
pub(super) fn affine_factors(
    values: &[f32],
    given: Option<&[f32]>,
    (top, sub_block, limit): (f32, usize, f32),
    parts: &mut BlockFields,
) {
    let weights = ImportanceWeights::new(given);
    let (mut scales, mut mins) = ([0.0; 16], [0.0; 16]);
    for (s, x) in values.chunks_exact(sub_block).enumerate() {
        let (scale, min) = affine(x, weights.from(s * sub_block), top, false);
        (scales[s], mins[s]) = (scale, -min);
    }
    let highest = |all: &[f32; 16]| all.iter().fold(0.0, |high: f32, &x| high.max(x));
    let common = |high: f32| half(half_bits(high / limit));
    let (d, m) = (common(highest(&scales)), common(highest(&mins)));
    let mut choice = Choice { d, m, factors: [0.0; 16], min_factors: [0.0; 16] };
    let mut best = (f32::INFINITY, choice);
    for _ in 0..ROUNDS {
        let mut total = 0.0;
        for (s, x) in values.chunks_exact(sub_block).enumerate() {
            total += choose_factors(
                x,
                weights.from(s * sub_block),
                (top, limit),
                (scales[s], mins[s]),
                s,
                &mut choice,
            );
        }
        if total < best.0 {
            best = (total, choice);
        }
        refit(values, &weights, top, sub_block, &mut choice);
    }
    let choice = best.1;
    (parts.d[0], parts.m[0]) = (half_bits(choice.d), half_bits(choice.m));
    for (s, x) in values.chunks_exact(sub_block).enumerate() {
        let (scale, min) = (choice.d * choice.factors[s], -(choice.m * choice.min_factors[s]));
        (parts.scales[s], parts.mins[s]) = (choice.factors[s] as u8, choice.min_factors[s] as u8);
        put_codes(x, IntegerLevels(0.0, top), scale, min, &mut parts.codes[s * sub_block..][..sub_block]);
    }
}

/// Sets the factors of sub-block `s` to the best ones near the wanted scale and minimum; returns the error.
fn choose_factors(
    x: &[f32],
    w: &[f32],
    (top, limit): (f32, f32),
    wanted: (f32, f32),
    s: usize,
    choice: &mut Choice,
) -> f32 {
    let middle = |wanted: f32, common: f32| nearest((wanted * inverse(common)).max(0.0).min(limit));
    let (factor, min_factor) = (middle(wanted.0, choice.d), middle(wanted.1, choice.m));
    let mut best = f32::INFINITY;
    (choice.factors[s], choice.min_factors[s]) = (factor, min_factor);
    for near in [0.0, -1.0, 1.0] {
        for min_near in [0.0, -1.0, 1.0] {
            let (f, m) = ((factor + near).max(0.0).min(limit), (min_factor + min_near).max(0.0).min(limit));
            let error = error(x, w, IntegerLevels(0.0, top), choice.d * f, -(choice.m * m));
            if error < best {
                best = error;
                (choice.factors[s], choice.min_factors[s]) = (f, m);
            }
        }
    }
    best
}

/// Refits the common scale and minimum by least squares to the factors and the codes that they lead to.
fn refit(values: &[f32], weights: &ImportanceWeights, top: f32, sub_block: usize, choice: &mut Choice) {
    let levels = IntegerLevels(0.0, top);
    let (mut aa, mut ab, mut bb, mut ax, mut bx) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (s, x) in values.chunks_exact(sub_block).enumerate() {
        let (scale, min) = (choice.d * choice.factors[s], -(choice.m * choice.min_factors[s]));
        for (&x, &w) in x.iter().zip(weights.from(s * sub_block)) {
            let a = choice.factors[s] * levels.level((x - min) * inverse(scale));
            let b = -choice.min_factors[s];
            aa += w * a * a;
            ab += w * a * b;
            bb += w * b * b;
            ax += w * a * x;
            bx += w * b * x;
        }
    }
    let determinant = aa * bb - ab * ab;
    if determinant > 0.0 {
        choice.d = half(half_bits((bb * ax - ab * bx) / determinant));
        choice.m = half(half_bits((aa * bx - ab * ax) / determinant));
    } else {
        choice.d = half(half_bits(ax * inverse(aa)));
    }
}
