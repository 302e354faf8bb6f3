//! Stores keys and values as two 7-bit digits.

use super::super::int14::{LARGEST, MAX_COLUMNS, RotatedRowScale};
use super::{BLOCK, PANEL, Pair, RowScale, padded, panel_start, value_word};
use crate::hadamard;
use crate::simd::Scalar;

/// The high digits of a row, then its low digits.
type DigitRow = [[i8; MAX_COLUMNS]; 2];

/// Stores pairs in consecutive slots.
pub(super) fn store(slot: usize, pairs: &[Pair<'_>], keys: &mut [u32], values: &mut [u32]) {
    for (slot, (key, _)) in (slot..).zip(pairs) {
        store_key(slot, key, keys);
    }
    let (aligned, rest) = if slot.is_multiple_of(4) { pairs.as_chunks() } else { (&[][..], pairs) };
    for (slot, four) in (slot..).step_by(4).zip(aligned) {
        store_four_values(slot, four, values);
    }
    for (slot, (_, value)) in (slot + 4 * aligned.len()..).zip(rest) {
        store_value(slot, value, values);
    }
}

fn store_key(slot: usize, key: &[f32], keys: &mut [u32]) {
    let columns = padded(key.len());
    let mut row = [0.0; MAX_COLUMNS];
    let row = &mut row[..columns];
    row[..key.len()].copy_from_slice(key);
    hadamard::transform_head(Scalar, row);
    let mut digits = [[0; MAX_COLUMNS]; 2];
    let (keys, scales) = keys.split_at_mut(keys.len() - BLOCK);
    let RotatedRowScale { scale, inverse } = RotatedRowScale::of(Scalar, row);
    scales[slot] = scale.to_bits();
    split(row, inverse, &mut digits);
    let half = keys.len() / 2;
    for (plane, digits) in keys.chunks_exact_mut(half).zip(&digits) {
        let panel = plane[panel_start(slot, columns / 4)..].as_chunks_mut::<PANEL>().0;
        for (word, four) in panel.iter_mut().zip(digits[..columns].as_chunks::<4>().0) {
            word[slot % PANEL] = u32::from_le_bytes(four.map(|digit| digit as u8));
        }
    }
}

fn store_value(slot: usize, value: &[f32], values: &mut [u32]) {
    let mut digits = [[0; MAX_COLUMNS]; 2];
    let (values, scales) = values.split_at_mut(values.len() - BLOCK);
    scales[slot] = quantize(value, &mut digits).to_bits();
    let half = values.len() / 2;
    for (plane, digits) in values.chunks_exact_mut(half).zip(&digits) {
        for (e, digit) in digits[..value.len()].iter().enumerate() {
            let (word, shift) = (&mut plane[value_word(e, slot)], slot % 4 * 8);
            *word = *word & !(0xff << shift) | u32::from(*digit as u8) << shift;
        }
    }
}

/// Stores the values of four slots that share words.
fn store_four_values(slot: usize, pairs: &[Pair<'_>; 4], values: &mut [u32]) {
    let mut digits = [[[0; MAX_COLUMNS]; 2]; 4];
    let (values, scales) = values.split_at_mut(values.len() - BLOCK);
    for ((i, (_, value)), digits) in (slot..).zip(pairs).zip(&mut digits) {
        scales[i] = quantize(value, digits).to_bits();
    }
    let half = values.len() / 2;
    for (plane, values) in values.chunks_exact_mut(half).enumerate() {
        let rows = digits.each_ref().map(|digits| &digits[plane]);
        for e in 0..pairs[0].1.len() {
            values[value_word(e, slot)] = u32::from_le_bytes(rows.map(|row| row[e] as u8));
        }
    }
}

/// Quantizes a value into digits and returns its scale.
fn quantize(value: &[f32], digits: &mut DigitRow) -> f32 {
    let RowScale { scale, inverse } = RowScale::of(value, LARGEST);
    split(value, inverse, digits);
    scale
}

/// Multiplies a row by the inverse of its scale, which is zero if all integers are, and splits it into digits.
// The loop has no branches and no saturating conversions, so that it vectorizes on any processor.
#[inline(never)]
fn split(x: &[f32], inverse: f32, [high, low]: &mut DigitRow) {
    if inverse == 0.0 {
        high[..x.len()].fill(0);
        low[..x.len()].fill(0);
        return;
    }
    for ((high, low), x) in high.iter_mut().zip(low).zip(x) {
        let whole = crate::float::round_to_bits(x * inverse) as i16;
        let coarse = (whole + 64) >> 7;
        (*high, *low) = (coarse as i8, (whole - coarse * 128) as i8);
    }
}
