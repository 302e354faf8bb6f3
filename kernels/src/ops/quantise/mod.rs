//! Activations as 8-bit integers, made once and used by every product: with one scale per 32 columns, or
//! rotated and with one scale per row.
//!
//! Contract: `scale = largest |x| / 127`, `q = round(x · (127 / largest))`, ties to even; a block whose
//! largest magnitude is below 2^−100 is all zero. Sums of q are kept per 16 columns, and per 32 also
//! multiplied by the scale. `rotated.rs` has the contract of the other kind. In both, a row with a number that is not finite has zeros with scales of NaN, so that every
//! product of it is NaN.

mod rotated;

pub(crate) use rotated::LIST as ROTATED_LIST;
pub use rotated::reference as reference_rotated;

use crate::simd::{LANES, Simd, instantiate};

/// Columns that share a scale.
pub const BLOCK: usize = 32;

/// How a quantised row of some columns lies in 32-bit words: the integers (four to a word), then a scale per
/// 32, then the scaled sum per 32, then a sum per 16. Columns are padded to a multiple of 256 with zeros.
///
/// In rotated rows all scales are the same, and the first scaled sum is in its place the sum of all integers, as
/// an integer; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    padded: usize,
}

impl Layout {
    /// The layout of rows of `columns`.
    pub const fn new(columns: usize) -> Self {
        Self { padded: columns.next_multiple_of(256) }
    }

    /// 32-bit words of a row.
    pub const fn words(self) -> usize {
        self.padded / 8 * 3
    }

    /// Where the scales begin.
    pub const fn scales(self) -> usize {
        self.padded / 4
    }

    /// Where the scaled sums begin.
    pub const fn scaled_sums(self) -> usize {
        self.scales() + self.padded / BLOCK
    }

    /// Where the sums begin.
    pub const fn sums(self) -> usize {
        self.scaled_sums() + self.padded / BLOCK
    }
}

/// Quantises the row `x` into `out` of [`Layout::words`].
pub type Function = fn(x: &[f32], out: &mut [i32]);

instantiate!(LIST: Function = "quantise" body(x: &[f32], out: &mut [i32]));

/// Blocks that are worked on together.
const TOGETHER: usize = 4;
/// Vectors of so many blocks.
const VECTORS: usize = TOGETHER * BLOCK / LANES;

#[inline(always)]
fn body<S: Simd>(s: S, x: &[f32], out: &mut [i32]) {
    let layout = Layout::new(x.len());
    // Stays zero unless a number is not finite.
    let mut poison = s.splat(0.0);
    for first in (0..layout.padded / BLOCK).step_by(TOGETHER) {
        let start = (first * BLOCK).min(x.len());
        let vectors: [S::F; VECTORS] = load(s, &x[start..(start + TOGETHER * BLOCK).min(x.len())]);
        let mut largest = [s.splat(0.0); TOGETHER];
        for (pair, largest) in vectors.as_chunks::<2>().0.iter().zip(&mut largest) {
            poison = s.add(poison, s.add(s.sub(pair[0], pair[0]), s.sub(pair[1], pair[1])));
            *largest = s.max(s.abs(pair[0]), s.abs(pair[1]));
        }
        let scales = scales_of(s.largest_of_each(largest));
        let mut rounded = [s.round(s.splat(0.0)); VECTORS];
        for (i, rounded) in rounded.iter_mut().enumerate() {
            *rounded = s.round(s.mul(vectors[i], s.splat(scales.1[i / 2])));
        }
        for (half, rounded) in rounded.as_chunks::<4>().0.iter().enumerate() {
            let mut bytes = [[0; LANES]; 4];
            let sums = s.store_bytes_of_each(*rounded, &mut bytes);
            for pair in 0..2 {
                let block = 2 * half + pair;
                let (bytes, sums) = (&bytes.as_chunks().0[pair], sums.as_chunks().0[pair]);
                finish_block(layout, first + block, bytes, sums, scales.0[block], out);
            }
        }
    }
    if s.sum(poison) != 0.0 {
        poison_row(layout, out);
    }
}

/// The columns of `N` vectors, zeros where there are fewer.
#[inline(always)]
fn load<S: Simd, const N: usize>(s: S, x: &[f32]) -> [S::F; N] {
    let mut vectors = [s.splat(0.0); N];
    match x.as_chunks::<LANES>() {
        (whole, []) if whole.len() == N => {
            for (vector, x) in vectors.iter_mut().zip(whole) {
                *vector = s.load(x);
            }
        }
        _ => {
            for (vector, x) in vectors.iter_mut().zip(x.chunks(LANES)) {
                *vector = s.load_part(x, 0.0);
            }
        }
    }
    vectors
}

/// The row of numbers that are not all finite.
fn poison_row(layout: Layout, out: &mut [i32]) {
    out[..layout.words()].fill(0);
    out[layout.scales()..layout.sums()].fill(f32::NAN.to_bits() as i32);
}

/// The scale and its inverse for a block of this largest magnitude.
#[inline(always)]
fn scale_of(largest: f32) -> (f32, f32) {
    const SMALLEST: f32 = 7.888_609e-31;
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / 127.0, 127.0 / largest) }
}

/// The same for several blocks.
#[inline(always)]
fn scales_of(largest: [f32; TOGETHER]) -> ([f32; TOGETHER], [f32; TOGETHER]) {
    let mut scales = ([0.0; TOGETHER], [0.0; TOGETHER]);
    for (i, largest) in largest.into_iter().enumerate() {
        (scales.0[i], scales.1[i]) = scale_of(largest);
    }
    scales
}

#[inline(always)]
fn finish_block(
    layout: Layout,
    block: usize,
    bytes: &[[i8; LANES]; 2],
    sums: [i32; 2],
    scale: f32,
    out: &mut [i32],
) {
    for (half, bytes) in bytes.iter().enumerate() {
        let words = &mut out[(2 * block + half) * 4..][..4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
        }
    }
    out[layout.sums() + 2 * block..][..2].copy_from_slice(&sums);
    out[layout.scales() + block] = scale.to_bits() as i32;
    // It wraps only in a row that is not finite, which is poisoned in the end.
    out[layout.scaled_sums() + block] = (scale * sums[0].wrapping_add(sums[1]) as f32).to_bits() as i32;
}

/// A quantised row, for reading.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    layout: Layout,
    words: &'a [i32],
}

impl<'a> Row<'a> {
    /// The row in `words` of [`Layout::words`].
    pub fn new(layout: Layout, words: &'a [i32]) -> Self {
        Self { layout, words }
    }

    /// The integer of a column.
    pub fn value(&self, column: usize) -> i32 {
        i32::from(self.words[column / 4].to_le_bytes()[column % 4] as i8)
    }

    /// The words that hold the integers of some columns, four in each; both ends are multiples of four.
    pub fn words(&self, columns: core::ops::Range<usize>) -> &'a [i32] {
        &self.words[columns.start / 4..columns.end / 4]
    }

    /// The scale of the block of 32 that holds a column.
    pub fn scale(&self, column: usize) -> f32 {
        f32::from_bits(self.words[self.layout.scales() + column / BLOCK] as u32)
    }
}

/// The same in plain words.
pub fn reference(x: &[f32], out: &mut [i32]) {
    let layout = Layout::new(x.len());
    if x.iter().any(|x| !x.is_finite()) {
        return poison_row(layout, out);
    }
    for block in 0..layout.padded / BLOCK {
        let value = |i: usize| x.get(block * BLOCK + i).copied().unwrap_or(0.0);
        let largest = (0..BLOCK).map(|i| value(i).abs()).fold(0.0, f32::max);
        let (scale, inverse) = scale_of(largest);
        let mut bytes = [[0_i8; LANES]; 2];
        for i in 0..BLOCK {
            let scaled = (value(i) * inverse).clamp(-127.0, 127.0);
            bytes[i / LANES][i % LANES] = crate::float::round(scaled) as i8;
        }
        let sums = bytes.map(|bytes| bytes.iter().map(|&byte| i32::from(byte)).sum());
        finish_block(layout, block, &bytes, sums, scale, out);
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Row, reference};
    use crate::ops::testing::{Random, tables};

    #[test]
    fn all_kernels_give_the_reference_bits() {
        let mut random = Random::new(7);
        for columns in [1, 16, 31, 32, 33, 576, 640, 1536, 2049] {
            let mut x = random.vector(columns, 10.0);
            x[columns / 2] = 1e-38;
            if columns > 64 {
                x[32..64].fill(0.0);
                x[..32].fill(1e-33);
            }
            let mut want = vec![0; Layout::new(columns).words()];
            reference(&x, &mut want);
            for table in tables() {
                let mut got = vec![-1; want.len()];
                table.quantise()(&x, &mut got);
                assert!(got == want, "{} {columns}", table.cpu().features());
            }
        }
    }

    #[test]
    fn values_come_back_within_half_a_step() {
        let x = Random::new(8).vector(300, 3.0);
        let layout = Layout::new(300);
        let mut words = vec![0; layout.words()];
        tables()[0].quantise()(&x, &mut words);
        let row = Row::new(layout, &words);
        for (column, &x) in x.iter().enumerate() {
            let back = row.value(column) as f32 * row.scale(column);
            assert!((back - x).abs() <= row.scale(column) * 0.5001, "{column}: {x} became {back}");
        }
    }

    #[test]
    fn a_number_that_is_not_finite_does_not_hide() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in 0..70 {
                let mut x = vec![1.0; 70];
                x[place] = bad;
                let mut want = vec![0; Layout::new(70).words()];
                reference(&x, &mut want);
                assert!((0..70).all(|column| Row::new(Layout::new(70), &want).scale(column).is_nan()));
                for table in tables() {
                    let mut words = vec![-1; want.len()];
                    table.quantise()(&x, &mut words);
                    assert!(words == want, "{} {bad} {place}", table.cpu().features());
                }
            }
        }
    }
}
