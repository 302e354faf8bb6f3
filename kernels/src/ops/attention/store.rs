//! Writing keys and values where [`Cache`](super::Cache) says that they lie.

use half::slice::HalfFloatSliceExt;

use super::{BLOCK, CacheType, PANEL, int8, padded};

/// A key and the value of the same position, of one head.
pub type Pair<'a> = (&'a [f32], &'a [f32]);

/// f16 that are made of f32 at once.
const HALVES: usize = 64;

/// Writes the pairs of one head at slots of a block that follow each other, from `slot` on. [`PANEL`] pairs that fill
/// a panel take a small part of the time that they take one by one.
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

/// The first word of the panel that holds a slot, of keys that take `words` words a position.
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
            let [key_scale, value_scale] = [&mut *keys, &mut *values].map(|words| words.len() - BLOCK + slot);
            let mut bytes = [0; int8::MOST_COLUMNS];
            keys[key_scale] = quantise(key, &mut bytes);
            let panel = keys[panel_start(slot, columns / 4)..].as_chunks_mut::<PANEL>().0;
            for (word, four) in panel.iter_mut().zip(bytes[..columns].as_chunks().0) {
                word[slot % PANEL] = u32::from_le_bytes(*four);
            }
            values[value_scale] = quantise(value, &mut bytes);
            for (e, byte) in bytes[..value.len()].iter().enumerate() {
                let (word, shift) = (&mut values[value_word(e, slot)], slot % 4 * 8);
                *word = *word & !(0xff << shift) | u32::from(*byte) << shift;
            }
        }
        CacheType::F32 => {
            let panel = keys[panel_start(slot, columns)..].as_chunks_mut::<PANEL>().0;
            for (column, k) in panel.iter_mut().zip(key) {
                column[slot % PANEL] = k.to_bits();
            }
            store_bits(value, &mut values[slot * columns..]);
        }
        CacheType::F16 => {
            let mut halves = [half::f16::ZERO; HALVES];
            let columns_of_runs = keys[panel_start(slot, columns) / 2..].chunks_mut(HALVES * PANEL / 2);
            for (columns, key) in columns_of_runs.zip(key.chunks(HALVES)) {
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
            let [key_scales, value_scales] =
                [&mut *keys, &mut *values].map(|words| words.len() - BLOCK + slot);
            let mut rows = [[0; int8::MOST_COLUMNS]; PANEL];
            for (i, ((key, _), row)) in pairs.iter().zip(&mut rows).enumerate() {
                keys[key_scales + i] = quantise(key, row);
            }
            let panel = keys[panel_start(slot, columns / 4)..].as_chunks_mut::<PANEL>().0;
            turn(&rows.each_ref().map(|row| &row.as_chunks().0[..columns / 4]), |e, column| {
                panel[e] = column.map(u32::from_le_bytes);
            });
            for (i, ((_, value), row)) in pairs.iter().zip(&mut rows).enumerate() {
                values[value_scales + i] = quantise(value, row);
            }
            for (i, four) in rows.as_chunks::<4>().0.iter().enumerate() {
                for e in 0..head_size {
                    values[value_word(e, slot + 4 * i)] =
                        u32::from_le_bytes(four.each_ref().map(|row| row[e]));
                }
            }
        }
        CacheType::F32 => {
            let panel = keys[panel_start(slot, columns)..].as_chunks_mut::<PANEL>().0;
            turn(&pairs.map(|(key, _)| key), |e, column| panel[e] = column.map(f32::to_bits));
            for ((_, value), words) in pairs.iter().zip(values[slot * columns..].chunks_mut(columns)) {
                store_bits(value, words);
            }
        }
        CacheType::F16 => {
            let mut halves = [[half::f16::ZERO; HALVES]; PANEL];
            let panel = keys[panel_start(slot, columns) / 2..].as_chunks_mut::<{ PANEL / 2 }>().0;
            for (start, panel) in (0..head_size).step_by(HALVES).zip(panel.chunks_mut(HALVES)) {
                let count = HALVES.min(head_size - start);
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

/// Hands on rows of one length column by column.
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

// The conversion is long, for processors with and without it.
#[inline(never)]
fn to_halves(numbers: &[f32], halves: &mut [half::f16; HALVES]) {
    halves[..numbers.len()].convert_from_f32_slice(numbers);
}

fn store_halves(value: &[f32], words: &mut [u32]) {
    let mut halves = [half::f16::ZERO; HALVES];
    for (words, value) in words.chunks_mut(HALVES / 2).zip(value.chunks(HALVES)) {
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

/// The word of values of eight bits that holds column `e` of a slot.
const fn value_word(e: usize, slot: usize) -> usize {
    e / 16 * 4 * BLOCK + slot / 4 * 16 + e % 16
}

/// Makes the numbers of a row integers and all bytes behind them zero. Gives the bits of what an integer is worth: not a
/// number where the row is not finite.
#[inline(never)]
fn quantise(x: &[f32], bytes: &mut [u8; int8::MOST_COLUMNS]) -> u32 {
    let largest = x.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let (scale, inverse) = match x.iter().all(|x| x.is_finite()) {
        true => int8::scales(largest, 127.0),
        false => (f32::NAN, 0.0),
    };
    let (row, rest) = bytes.split_at_mut(x.len());
    for (byte, x) in row.iter_mut().zip(x) {
        *byte = crate::float::round((x * inverse).clamp(-127.0, 127.0)) as i8 as u8;
    }
    rest.fill(0);
    scale.to_bits()
}
