//! int8 quantization of activations, done once and shared by all matmuls: with one scale per 32 columns, or
//! rotated with one scale per row.
//!
//! Contract: `scale = largest |x| / 127`, `q = round(x · (127 / largest))`, ties to even; a block whose
//! largest magnitude is below 2^−100 becomes all zero. Sums of q are stored per 16 columns, and, multiplied
//! by the scale, per 32 columns. `rotated.rs` has the contract of the other kind. In both, a row with NaN or
//! infinity becomes zeros with NaN scales, so that every product with it is NaN.

mod rotated;

pub(crate) use rotated::LIST as ROTATED_LIST;
pub use rotated::reference as reference_rotated;

use crate::ops::instantiate::instantiate;
use crate::simd::{LANES, Simd};

/// Columns that share a scale.
pub const BLOCK: usize = 32;

/// Layout of a quantized row in 32-bit words: the integers (four to a word), then a scale per 32 columns,
/// then the scaled sum per 32, then a sum per 16. Columns are padded with zeros to a multiple of 256.
///
/// In rotated rows all scales are equal, and the first scaled sum is replaced by the sum of all integers, as
/// an integer; the other scaled sums are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedRowLayout {
    padded: usize,
}

impl QuantizedRowLayout {
    /// Returns the layout of rows of `columns`.
    pub const fn new(columns: usize) -> Self {
        Self { padded: columns.next_multiple_of(256) }
    }

    /// Returns the number of 32-bit words of a row.
    pub const fn words(self) -> usize {
        self.padded / 8 * 3
    }

    /// Returns the offset of the scales.
    pub const fn scales(self) -> usize {
        self.padded / 4
    }

    /// Returns the offset of the scaled sums.
    pub const fn scaled_sums(self) -> usize {
        self.scales() + self.padded / BLOCK
    }

    /// Returns the offset of the sums.
    pub const fn sums(self) -> usize {
        self.scaled_sums() + self.padded / BLOCK
    }
}

/// Quantizes the row `x` into `out` of [`QuantizedRowLayout::words`].
pub type Function = fn(x: &[f32], out: &mut [i32]);

instantiate!(LIST: Function = "quantize" body(x: &[f32], out: &mut [i32]));

/// Blocks that are processed together.
const TOGETHER: usize = 4;
/// Vectors in [`TOGETHER`] blocks.
const VECTORS: usize = TOGETHER * BLOCK / LANES;

#[inline(always)]
fn body<S: Simd>(s: S, x: &[f32], out: &mut [i32]) {
    let layout = QuantizedRowLayout::new(x.len());
    let zero = s.splat(0.0);
    // Stays zero unless an element is not finite.
    let mut poison = zero;
    let (integers, rest) = out[..layout.words()].split_at_mut(layout.scales());
    let (scales, rest) = rest.split_at_mut(layout.padded / BLOCK);
    let (scaled_sums, sums) = rest.split_at_mut(layout.padded / BLOCK);
    let outputs = integers.as_chunks_mut::<{ TOGETHER * BLOCK / 4 }>().0.iter_mut();
    let outputs = outputs.zip(scales.as_chunks_mut::<TOGETHER>().0);
    let outputs = outputs.zip(scaled_sums.as_chunks_mut::<TOGETHER>().0);
    let outputs = outputs.zip(sums.as_chunks_mut::<VECTORS>().0);
    let columns = x.chunks(TOGETHER * BLOCK).chain(core::iter::repeat::<&[f32]>(&[]));
    for ((((integers, scales), scaled_sums), sums), columns) in outputs.zip(columns) {
        let vectors: [S::F; VECTORS] = load(s, columns);
        let mut largest = [zero; TOGETHER];
        for (pair, largest) in vectors.as_chunks::<2>().0.iter().zip(&mut largest) {
            poison = s.add(poison, s.add(s.mul(pair[0], zero), s.mul(pair[1], zero)));
            *largest = s.max(s.abs(pair[0]), s.abs(pair[1]));
        }
        let worth = scales_of(s.largest_of_each(largest));
        let mut rounded = [s.round(zero); VECTORS];
        for (i, rounded) in rounded.iter_mut().enumerate() {
            *rounded = s.round(s.mul(vectors[i], s.splat(worth.1[i / 2])));
        }
        let mut bytes = [[0; LANES]; VECTORS];
        for (half, rounded) in rounded.as_chunks::<4>().0.iter().enumerate() {
            sums.as_chunks_mut().0[half] =
                s.store_bytes_of_each(*rounded, &mut bytes.as_chunks_mut().0[half]);
        }
        for (word, bytes) in integers.iter_mut().zip(bytes.as_flattened().as_chunks::<4>().0) {
            *word = i32::from_le_bytes(bytes.map(|byte| byte as u8));
        }
        for i in 0..TOGETHER {
            scales[i] = worth.0[i].to_bits() as i32;
            // Overflow is possible only in a row that is not finite, which is poisoned at the end.
            let sum = sums[2 * i].wrapping_add(sums[2 * i + 1]);
            scaled_sums[i] = (worth.0[i] * sum as f32).to_bits() as i32;
        }
    }
    if s.sum(poison) != 0.0 {
        poison_row(layout, out);
    }
}

/// Loads `N` vectors, zero-padded.
#[inline(always)]
fn load<S: Simd, const N: usize>(s: S, x: &[f32]) -> [S::F; N] {
    let mut rest = [[0.0; LANES]; N];
    let columns = match x.as_chunks().0.first_chunk() {
        Some(whole) => whole,
        None => {
            rest.as_flattened_mut()[..x.len()].copy_from_slice(x);
            &rest
        }
    };
    let mut vectors = [s.splat(0.0); N];
    for (vector, columns) in vectors.iter_mut().zip(columns) {
        *vector = s.load(columns);
    }
    vectors
}

/// Writes the result for a row that contains NaN or infinity.
fn poison_row(layout: QuantizedRowLayout, out: &mut [i32]) {
    out[..layout.words()].fill(0);
    out[layout.scales()..layout.sums()].fill(f32::NAN.to_bits() as i32);
}

/// A block whose largest magnitude is below 2^−100 becomes all zero.
const SMALLEST: f32 = 7.888_609e-31;

/// Returns the scale of a block and its inverse, given the largest magnitude.
#[inline(always)]
fn scale_of(largest: f32) -> (f32, f32) {
    if largest < SMALLEST { (0.0, 0.0) } else { (largest / 127.0, 127.0 / largest) }
}

/// [`scale_of`] for several blocks.
#[inline(always)]
fn scales_of(largest: [f32; TOGETHER]) -> ([f32; TOGETHER], [f32; TOGETHER]) {
    let (scales, inverses) = (largest.map(|largest| largest / 127.0), largest.map(|largest| 127.0 / largest));
    let kept = |quotients: [f32; TOGETHER]| {
        let mut kept = [0.0; TOGETHER];
        for i in 0..TOGETHER {
            kept[i] = if largest[i] < SMALLEST { 0.0 } else { quotients[i] };
        }
        kept
    };
    (kept(scales), kept(inverses))
}

/// A reader of a quantized row.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedRowReader<'a> {
    layout: QuantizedRowLayout,
    words: &'a [i32],
}

impl<'a> QuantizedRowReader<'a> {
    /// Creates a reader of the row in `words` of [`QuantizedRowLayout::words`].
    pub fn new(layout: QuantizedRowLayout, words: &'a [i32]) -> Self {
        Self { layout, words }
    }

    /// Returns the integer of a column.
    pub fn value(&self, column: usize) -> i32 {
        i32::from(self.words[column / 4].to_le_bytes()[column % 4] as i8)
    }

    /// Returns the words that hold the integers of some columns, four in each; both ends are multiples of
    /// four.
    pub fn words(&self, columns: core::ops::Range<usize>) -> &'a [i32] {
        &self.words[columns.start / 4..columns.end / 4]
    }

    /// Returns the scale of the block of 32 columns that holds a column.
    pub fn scale(&self, column: usize) -> f32 {
        f32::from_bits(self.words[self.layout.scales() + column / BLOCK] as u32)
    }
}

/// The scalar reference of the operation.
pub fn reference(x: &[f32], out: &mut [i32]) {
    let layout = QuantizedRowLayout::new(x.len());
    if x.iter().any(|x| !x.is_finite()) {
        return poison_row(layout, out);
    }
    for block in 0..layout.padded / BLOCK {
        let value = |i: usize| x.get(block * BLOCK + i).copied().unwrap_or(0.0);
        let largest = (0..BLOCK).map(|i| value(i).abs()).fold(0.0, f32::max);
        let (scale, inverse) = scale_of(largest);
        let mut sums = [0, 0];
        for i in 0..BLOCK {
            let scaled = (value(i) * inverse).clamp(-127.0, 127.0);
            let byte = crate::float::round(scaled) as i8;
            let word = &mut out[(block * BLOCK + i) / 4];
            *word = *word & !(0xff << (i % 4 * 8)) | i32::from(byte as u8) << (i % 4 * 8);
            sums[i / LANES] += i32::from(byte);
        }
        out[layout.scales() + block] = scale.to_bits() as i32;
        out[layout.scaled_sums() + block] = (scale * (sums[0] + sums[1]) as f32).to_bits() as i32;
        out[layout.sums() + 2 * block..][..2].copy_from_slice(&sums);
    }
}
