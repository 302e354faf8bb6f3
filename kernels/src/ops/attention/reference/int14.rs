//! Dot products and elements of an int14 cache.

use super::super::int14::{LARGEST, MAX_COLUMNS, row_scales};
use super::super::{AttentionArguments, BLOCK, Query, padded};
use super::{byte, key_index, scale};
use crate::float;
use crate::hadamard::head_width;
use crate::simd::tree;

/// Returns the dot product of a query with a key.
pub(super) fn dot(arguments: &AttentionArguments, query: &Query<'_>, keys: &[u32], slot: usize) -> f32 {
    let mut row = [0.0; MAX_COLUMNS];
    let row = &mut row[..padded(arguments.head_size)];
    row[..query.values.len()].copy_from_slice(query.values);
    let width = head_width(row.len());
    row.chunks_exact_mut(width).for_each(transform);
    let largest = row.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let mut lanes = [0.0; 16];
    row.iter().enumerate().for_each(|(column, x)| lanes[column % 16] += x * x);
    let (query_scale, inverse) = row_scales(largest, tree(lanes, |a, b| a + b));
    if row.iter().any(|x| !x.is_finite()) || !query_scale.is_finite() {
        return f32::NAN;
    }
    let sum = row.iter().enumerate().fold(0_i32, |sum, (column, x)| {
        let whole = float::round((x * inverse).clamp(-LARGEST, LARGEST)) as i32;
        sum.wrapping_add(whole * number(keys, key_index(arguments, slot, column)))
    });
    sum as f32 * (scale(keys, slot) * (query_scale / width as f32))
}

/// Returns the element whose high digit is at `index`.
pub(super) fn number(words: &[u32], index: usize) -> i32 {
    let plane = (words.len() - BLOCK) / 2 * 4;
    i32::from(byte(words, index)) * 128 + i32::from(byte(words, plane + index))
}

/// The Hadamard transform of a block, directly from its definition.
fn transform(block: &mut [f32]) {
    let mut apart = 1;
    while apart < block.len() {
        for i in (0..block.len()).filter(|i| i & apart == 0) {
            (block[i], block[i + apart]) = (block[i] + block[i + apart], block[i] - block[i + apart]);
        }
        apart *= 2;
    }
}
