//! Attention over keys and values of eight bits: sums of integers, scaled once.

use super::softmax::within;
use super::tile::prefetch_part;
use super::{Arguments, BLOCK, CHUNK, Cache, PANEL, Query, padded};
use crate::simd::Simd;
use core::ops::Range;

/// The largest head whose quantised query fits; words of four columns.
pub(super) const MOST_WORDS: usize = 128;
/// The largest integer of a weight: two digits of seven bits.
const LARGEST: f32 = 16383.0;
/// Words of four positions in a chunk.
const CHUNK_WORDS: usize = CHUNK / 4;

/// A block's keys or values as words, and the scale of each position.
#[derive(Clone, Copy)]
struct Half<'a> {
    words: &'a [[u32; 16]],
    scales: &'a [[u32; 16]],
}

impl<'a> Half<'a> {
    fn new(words: &'a [u32]) -> Self {
        let (words, scales) = words.as_chunks().0.split_at(words.len() / 16 - BLOCK / 16);
        Self { words, scales }
    }
}

/// Integers of a row and what one of them is worth: `q = round(x · (most / largest))`.
#[inline(always)]
fn quantise<S: Simd>(s: S, x: &[f32], words: &mut [i32]) -> (f32, i32) {
    let mut largest = s.splat(0.0);
    let mut poison = s.splat(0.0);
    for part in x.chunks(16) {
        let part = s.load_part(part, 0.0);
        largest = s.max(s.abs(part), largest);
        poison = s.add(poison, s.sub(part, part));
    }
    let (scale, inverse) = scales(s.largest(largest), 127.0);
    let mut sum = 0;
    for (part, words) in x.chunks(16).zip(words.chunks_mut(4)) {
        let scaled = s.mul(s.load_part(part, 0.0), s.splat(inverse));
        let rounded = s.round(s.min(s.max(scaled, s.splat(-127.0)), s.splat(127.0)));
        let mut bytes = [0_i8; 16];
        s.store_bytes(rounded, &mut bytes);
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
        }
        sum += s.sum(s.float(rounded)) as i32;
    }
    (scale + s.sum(poison), sum)
}

/// What an integer is worth and its inverse, where `most` stands for the largest magnitude.
#[inline(always)]
pub(super) fn scales(largest: f32, most: f32) -> (f32, f32) {
    const SMALLEST: f32 = 7.888_609e-31;
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / most, most / largest) }
}

/// The dot products of `Q` queries with the keys of a run of blocks; `scores` begins with the first query's.
#[inline(always)]
pub(super) fn score<S: Simd, const Q: usize, const V: usize>(
    s: S,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    blocks: Range<usize>,
    scores: &mut [f32],
) {
    let mut left = [[0; MOST_WORDS]; Q];
    let mut worth = [(0.0, 0); Q];
    for ((left, worth), query) in left.iter_mut().zip(&mut worth).zip(queries) {
        *worth = quantise(s, query.values, left);
    }
    for block in blocks.clone() {
        let (keys, values) = cache.block(block);
        let next = if block + 1 < blocks.end { cache.block(block + 1).0 } else { values };
        let keys = Half::new(keys);
        let count = keys.words.len() / (BLOCK / PANEL);
        for first in (0..BLOCK / PANEL).step_by(V) {
            let mut dots = [[s.splat_int(0); V]; Q];
            for (dots, worth) in dots.iter_mut().zip(&worth) {
                *dots = [s.splat_int(-S::DOT_BIAS * worth.1); V];
            }
            let panels = &keys.words[first * count..][..V * count];
            for c in 0..count.min(MOST_WORDS) {
                prefetch_part(s, next, (first / V) * count + c, count * (BLOCK / PANEL / V));
                for v in 0..V {
                    let line = &panels[v * count + c];
                    for q in 0..Q {
                        dots[q][v] = s.dot(dots[q][v], line, left[q][c]);
                    }
                }
            }
            for q in 0..Q {
                let to = &mut scores[q * CHUNK + (block * BLOCK + first * PANEL) % CHUNK..];
                for (v, to) in to.as_chunks_mut().0.iter_mut().enumerate().take(V) {
                    let scale = s.mul(s.load_words(&keys.scales[first + v]), s.splat(worth[q].0));
                    s.store(s.mul(s.float(dots[q][v]), scale), to);
                }
            }
        }
    }
}

/// A query's weights as integers of two digits.
#[derive(Clone, Copy)]
struct Digits {
    high: [i32; CHUNK_WORDS],
    low: [i32; CHUNK_WORDS],
    sums: [i32; 2],
    worth: f32,
}

impl Digits {
    const ZERO: Self = Self { high: [0; CHUNK_WORDS], low: [0; CHUNK_WORDS], sums: [0; 2], worth: 0.0 };
}

/// Takes the scales of the values into the weights of a query, which are zero for positions it does not see.
#[inline(always)]
fn digits<S: Simd>(
    s: S,
    weights: &mut [f32],
    Seen { range, sum }: Seen,
    cache: &dyn Cache,
    blocks: Range<usize>,
) -> Digits {
    let mut digits = Digits::ZERO;
    let weights = weights.as_chunks_mut::<16>().0;
    let vectors = |block: usize| {
        let first = block * BLOCK % CHUNK / 16;
        first..first + BLOCK / 16
    };
    let mut largest = s.splat(0.0);
    for block in blocks.clone() {
        let scales = Half::new(cache.block(block).1).scales;
        for (vector, scale) in vectors(block).zip(scales) {
            let weight = s.mul(s.load(&weights[vector]), s.load_words(scale));
            let weight = within(s, vector, range, weight, s.splat(0.0));
            s.store(weight, &mut weights[vector]);
            largest = s.max(weight, largest);
        }
    }
    let (worth, inverse) = scales(s.largest(largest), LARGEST);
    // The weights of numbers that are not finite are no numbers, and so is their sum.
    digits.worth = worth + 0.0 * sum;
    let mut sums = [s.splat(0.0); 2];
    for vector in blocks.flat_map(vectors) {
        let whole = s.round(s.mul(s.load(&weights[vector]), s.splat(inverse)));
        // Rounding down: what is left after the division lies within 63.5 of its middle.
        let high = s.round(s.fma(s.float(whole), s.splat(1.0 / 128.0), s.splat(-63.5 / 128.0)));
        let low = s.fma(s.float(high), s.splat(-128.0), s.float(whole));
        for (digit, words, sum) in [(high, &mut digits.high, 0), (s.round(low), &mut digits.low, 1)] {
            let mut bytes = [0_i8; 16];
            s.store_bytes(digit, &mut bytes);
            for (word, bytes) in words[vector * 4..].iter_mut().zip(bytes.as_chunks::<4>().0) {
                *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
            }
            sums[sum] = s.add(sums[sum], s.float(digit));
        }
    }
    digits.sums = [s.sum(sums[0]) as i32, s.sum(sums[1]) as i32];
    digits
}

/// What a query sees of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// The positions within the chunk: from, to.
    pub range: (usize, usize),
    /// The sum of the weights.
    pub sum: f32,
}

/// The weighted sums of the values of a run of blocks for `Q` queries; `weights` and `sums` begin with the
/// first query's.
#[inline(always)]
pub(super) fn mix<S: Simd, const Q: usize, const V: usize>(
    s: S,
    arguments: &Arguments,
    seen: &[Seen],
    cache: &dyn Cache,
    blocks: Range<usize>,
    weights: &mut [f32],
    sums: &mut [f32],
) {
    let columns = padded(arguments.head_size);
    let mut left = [Digits::ZERO; Q];
    for (q, left) in left.iter_mut().enumerate() {
        *left = digits(s, &mut weights[q * CHUNK..][..CHUNK], seen[q], cache, blocks.clone());
    }
    let mut vector = 0;
    while vector + V <= columns / 16 {
        strip::<S, Q, V>(s, &left, columns, vector, cache, blocks.clone(), sums);
        vector += V;
    }
    while vector < columns / 16 {
        strip::<S, Q, 1>(s, &left, columns, vector, cache, blocks.clone(), sums);
        vector += 1;
    }
}

/// The sums of `V` vectors of columns.
#[inline(always)]
fn strip<S: Simd, const Q: usize, const V: usize>(
    s: S,
    left: &[Digits; Q],
    columns: usize,
    vector: usize,
    cache: &dyn Cache,
    blocks: Range<usize>,
    sums: &mut [f32],
) {
    let mut high = [[s.splat_int(0); V]; Q];
    let mut low = high;
    for q in 0..Q {
        high[q] = [s.splat_int(-S::DOT_BIAS * left[q].sums[0]); V];
        low[q] = [s.splat_int(-S::DOT_BIAS * left[q].sums[1]); V];
    }
    for block in blocks.clone() {
        let values = &Half::new(cache.block(block).1).words[vector * (BLOCK / 4)..][..V * (BLOCK / 4)];
        let start = block * BLOCK % CHUNK / 4;
        let (first, last) = (start, start + BLOCK / 4);
        assert!(last <= CHUNK_WORDS, "beyond a chunk");
        for group in 0..last - first {
            for v in 0..V {
                let line = &values[v * (BLOCK / 4) + group];
                for q in 0..Q {
                    high[q][v] = s.dot(high[q][v], line, left[q].high[start + group]);
                    low[q][v] = s.dot(low[q][v], line, left[q].low[start + group]);
                }
            }
        }
    }
    for q in 0..Q {
        for v in 0..V {
            let sum = s.fma(s.float(high[q][v]), s.splat(128.0), s.float(low[q][v]));
            let to = &mut sums[q * columns + (vector + v) * 16..];
            s.store_part(s.mul(sum, s.splat(left[q].worth)), &mut to[..16]);
        }
    }
}
