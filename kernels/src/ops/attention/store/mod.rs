//! Writes keys and values in the layout of [`HeadCache`](super::HeadCache).

mod int14;

use half::slice::HalfFloatSliceExt;

use super::{BLOCK, CacheType, PANEL, digits, padded};

/// The key and the value of one position, of one head.
pub type Pair<'a> = (&'a [f32], &'a [f32]);

/// Elements of a row that are converted at a time.
const RUN: usize = 64;

/// Writes the pairs of one head to consecutive slots of a block, starting with `slot`. [`PANEL`] pairs that
/// fill an aligned panel are much faster than single pairs.
pub fn store(cache: CacheType, slot: usize, pairs: &[Pair<'_>], keys: &mut [u32], values: &mut [u32]) {
    if let Ok(pairs) = <&[Pair<'_>; PANEL]>::try_from(pairs)
        && slot.is_multiple_of(PANEL)
    {
        return store_panel(cache, slot, pairs, keys, values);
    }
    for (slot, (key, value)) in (slot..).zip(pairs) {
        store_pair(cache, slot, key, value, keys, values);
    }
}

/// Returns the first word of the panel that holds a slot, for keys of `words` words per position.
const fn panel_start(slot: usize, words: usize) -> usize {
    slot / PANEL * PANEL * words
}

fn store_pair(
    cache: CacheType,
    slot: usize,
    key: &[f32],
    value: &[f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let columns = padded(key.len());
    match cache {
        CacheType::Int8 => {
            let scale = |words: &[u32]| words.len() - BLOCK + slot;
            let (key_scale, value_scale) = (scale(keys), scale(values));
            let mut bytes = [0; RUN];
            let row = RowScale::of(key, 127.0);
            keys[key_scale] = row.scale.to_bits();
            let panel = keys[panel_start(slot, columns / 4)..].as_chunks_mut::<PANEL>().0;
            for (panel, key) in panel.chunks_mut(RUN / 4).zip(key.chunks(RUN)) {
                row.integers(key, &mut bytes);
                for (word, four) in panel.iter_mut().zip(bytes[..padded(key.len())].as_chunks().0) {
                    word[slot % PANEL] = u32::from_le_bytes(*four);
                }
            }
            let row = RowScale::of(value, 127.0);
            values[value_scale] = row.scale.to_bits();
            for (start, value) in (0..).step_by(RUN).zip(value.chunks(RUN)) {
                row.integers(value, &mut bytes);
                for (e, byte) in (start..).zip(&bytes[..value.len()]) {
                    let (word, shift) = (&mut values[value_word(e, slot)], slot % 4 * 8);
                    *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
                }
            }
        }
        CacheType::Int14 => int14::store(slot, &[(key, value)], keys, values),
        CacheType::F32 => {
            let panel = keys[panel_start(slot, columns)..].as_chunks_mut::<PANEL>().0;
            for (column, k) in panel.iter_mut().zip(key) {
                column[slot % PANEL] = k.to_bits();
            }
            store_bits(value, &mut values[slot * columns..]);
        }
        CacheType::F16 => {
            let mut halves = [half::f16::ZERO; RUN];
            let columns_of_runs = keys[panel_start(slot, columns) / 2..].chunks_mut(RUN * PANEL / 2);
            for (columns, key) in columns_of_runs.zip(key.chunks(RUN)) {
                to_halves(key, &mut halves);
                let columns = columns.as_chunks_mut::<{ PANEL / 2 }>().0;
                for (column, k) in columns.iter_mut().zip(&halves[..key.len()]) {
                    let (word, shift) = (&mut column[slot % PANEL / 2], slot % 2 * 16);
                    *word = *word & !(0xffff << shift) | u32::from(k.to_bits()) << shift;
                }
            }
            store_halves(value, &mut values[slot * columns / 2..]);
        }
    }
}

fn store_panel(
    cache: CacheType,
    slot: usize,
    pairs: &[Pair<'_>; PANEL],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let head_size = pairs[0].0.len();
    let columns = padded(head_size);
    match cache {
        CacheType::Int8 => {
            let scales = |words: &[u32]| words.len() - BLOCK + slot;
            let (key_scales, value_scales) = (scales(keys), scales(values));
            let mut rows = [[0; RUN]; PANEL];
            let row_scales = pairs.map(|(key, _)| RowScale::of(key, 127.0));
            keys[key_scales..][..PANEL].copy_from_slice(&row_scales.map(|row| row.scale.to_bits()));
            let panel = keys[panel_start(slot, columns / 4)..].as_chunks_mut::<PANEL>().0;
            for (start, panel) in (0..head_size).step_by(RUN).zip(panel.chunks_mut(RUN / 4)) {
                let count = RUN.min(head_size - start);
                for ((scale, (key, _)), row) in row_scales.iter().zip(pairs).zip(&mut rows) {
                    scale.integers(&key[start..start + count], row);
                }
                turn(&rows.each_ref().map(|row| row[..padded(count)].as_chunks().0), |e, column| {
                    panel[e] = column.map(u32::from_le_bytes);
                });
            }
            let row_scales = pairs.map(|(_, value)| RowScale::of(value, 127.0));
            values[value_scales..][..PANEL].copy_from_slice(&row_scales.map(|row| row.scale.to_bits()));
            for start in (0..head_size).step_by(RUN) {
                let count = RUN.min(head_size - start);
                for ((scale, (_, value)), row) in row_scales.iter().zip(pairs).zip(&mut rows) {
                    scale.integers(&value[start..start + count], row);
                }
                for (i, four) in rows.as_chunks::<4>().0.iter().enumerate() {
                    for e in 0..count {
                        values[value_word(start + e, slot + 4 * i)] =
                            u32::from_le_bytes(four.each_ref().map(|row| row[e]));
                    }
                }
            }
        }
        CacheType::Int14 => int14::store(slot, pairs, keys, values),
        CacheType::F32 => {
            let panel = keys[panel_start(slot, columns)..].as_chunks_mut::<PANEL>().0;
            turn(&pairs.map(|(key, _)| key), |e, column| panel[e] = column.map(f32::to_bits));
            for ((_, value), words) in pairs.iter().zip(values[slot * columns..].chunks_mut(columns)) {
                store_bits(value, words);
            }
        }
        CacheType::F16 => {
            let mut halves = [[half::f16::ZERO; RUN]; PANEL];
            let panel = keys[panel_start(slot, columns) / 2..].as_chunks_mut::<{ PANEL / 2 }>().0;
            for (start, panel) in (0..head_size).step_by(RUN).zip(panel.chunks_mut(RUN)) {
                let count = RUN.min(head_size - start);
                for ((key, _), halves) in pairs.iter().zip(&mut halves) {
                    to_halves(&key[start..start + count], halves);
                }
                turn(&halves.each_ref().map(|row| &row[..count]), |e, column| {
                    for (word, pair) in panel[e].iter_mut().zip(column.as_chunks::<2>().0) {
                        *word = two_halves(*pair);
                    }
                });
            }
            for ((_, value), words) in pairs.iter().zip(values[slot * columns / 2..].chunks_mut(columns / 2))
            {
                store_halves(value, words);
            }
        }
    }
}

/// Transposes rows of equal length: calls `take` with each column.
#[inline(always)]
fn turn<T: Copy>(rows: &[&[T]; PANEL], mut take: impl FnMut(usize, [T; PANEL])) {
    let length = rows[0].len();
    let rows = rows.map(|row| &row[..length]);
    for e in 0..length {
        take(e, rows.map(|row| row[e]));
    }
}

fn store_bits(value: &[f32], words: &mut [u32]) {
    for (word, v) in words.iter_mut().zip(value) {
        *word = v.to_bits();
    }
}

// Not inlined: the conversion code is long, with both the F16C path and the fallback.
#[inline(never)]
fn to_halves(numbers: &[f32], halves: &mut [half::f16; RUN]) {
    halves[..numbers.len()].convert_from_f32_slice(numbers);
}

fn store_halves(value: &[f32], words: &mut [u32]) {
    let mut halves = [half::f16::ZERO; RUN];
    for (words, value) in words.chunks_mut(RUN / 2).zip(value.chunks(RUN)) {
        let count = value.len().next_multiple_of(2);
        halves[count - 1] = half::f16::ZERO;
        to_halves(value, &mut halves);
        for (word, pair) in words.iter_mut().zip(halves[..count].as_chunks().0) {
            *word = two_halves(*pair);
        }
    }
}

fn two_halves([low, high]: [half::f16; 2]) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
}

/// Returns the word of int8 values that holds column `e` of a slot.
const fn value_word(e: usize, slot: usize) -> usize {
    e / 16 * 4 * BLOCK + slot / 4 * 16 + e % 16
}

/// The scale of a quantized row.
#[derive(Clone, Copy)]
struct RowScale {
    /// NaN if an element of the row is not finite.
    scale: f32,
    /// Zero if all integers are zero.
    inverse: f32,
}

// The loops have no branches and no saturating conversions, so that they vectorize on any processor.
impl RowScale {
    #[inline(never)]
    fn of(x: &[f32], max_code: f32) -> Self {
        const INFINITE: i32 = 0x7f80_0000;
        // The magnitudes of floats are ordered like their bit patterns; infinity and NaN come last.
        let largest = x.iter().fold(0, |largest: i32, x| largest.max(x.abs().to_bits() as i32));
        let (scale, inverse) = match largest < INFINITE {
            true => digits::scales(f32::from_bits(largest as u32), max_code),
            false => (f32::NAN, 0.0),
        };
        Self { scale, inverse }
    }

    /// Writes the integers of some elements of the row, then zeros.
    #[inline(never)]
    fn integers(self, x: &[f32], bytes: &mut [u8; RUN]) {
        let (row, rest) = bytes.split_at_mut(x.len());
        if self.inverse == 0.0 {
            row.fill(0);
        } else {
            for (byte, x) in row.iter_mut().zip(x) {
                *byte = crate::float::round_to_bits(x * self.inverse) as u8;
            }
        }
        rest.fill(0);
    }
}
