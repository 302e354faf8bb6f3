//! The few instructions of which products are made, some output rows at a time.

use super::Function;
use super::formats::{QuantPlane, ScaleScheme};
use super::run::MatmulShare;
use super::tile::{self, QuantisedRow};

/// Vectors of [`MatmulSimd::WIDTH`] output rows. A value of an implementing type is the proof that the processor
/// has the instructions; a vector of bytes holds four columns of each row.
///
/// Pointers given to the loading methods must be valid for the bytes that the method names.
pub(super) trait MatmulSimd: Copy {
    /// Output rows of a vector: a divisor of 16.
    const WIDTH: usize;
    /// What [`MatmulSimd::dot_signed`] adds to every weight; the tile takes it back through the sum of the row.
    const SIGNED_BIAS: i32;
    /// Where floats are multiplied as another kernel does: that one.
    const FLOATS: Option<Function> = None;
    /// Whether many rows of W4i are done sooner when its weights are made bytes first.
    const WIDE: bool;
    /// Four bytes for each row.
    type B: Copy;
    /// A running integer dot product for each row.
    type D: Copy;
    /// A small number for each row.
    type W: Copy;
    /// A float for each row.
    type F: Copy;

    /// Asks for the line at an address, which need not be valid, into the second cache.
    #[inline(always)]
    fn prefetch(self, _from: *const u8) {}

    /// `4 · WIDTH` bytes.
    unsafe fn bytes(self, from: *const u8) -> Self::B;
    /// `(byte >> SHIFT) & MASK`; MASK has no bit above `7 − SHIFT`.
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B;
    /// `byte << SHIFT`, for bytes whose top bits are zero.
    fn raise<const SHIFT: u32>(self, x: Self::B) -> Self::B;
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// The table's entry for each byte, which is below 16.
    fn look_up(self, x: Self::B, table: &[i8; 16]) -> Self::B;

    /// Signed bytes times the factors of their rows; every product fits a byte.
    fn times(self, x: Self::B, factors: Self::W) -> Self::B;
    unsafe fn store_bytes(self, x: Self::B, to: *mut u8);

    /// A dot product that begins at `initial`.
    fn start(self, initial: i32) -> Self::D;
    /// Adds the products of unsigned weights below 64 with the four integers in `a`.
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D;
    /// Adds the products of signed weights with the four integers in `a`, none of which is −128.
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D;
    /// Makes room for more [`MatmulSimd::dot_small`] where sums are narrow.
    fn settle(self, sum: Self::D) -> Self::D;
    /// The dot product as a float; `initial` as given to [`MatmulSimd::start`].
    fn finish(self, sum: Self::D, initial: i32) -> Self::F;

    /// `WIDTH` words of 16 bits, one for each row.
    unsafe fn words(self, from: *const u8) -> Self::W;
    /// The factor whose code is the four bits from `SHIFT` on of each word, for [`MatmulSimd::weigh`] and [`MatmulSimd::times`].
    fn factors<const SHIFT: u32>(self, words: Self::W) -> Self::W;
    /// A dot product of sixteen columns with weights below 20, for [`MatmulSimd::weigh`]. `initial` and the product with it
    /// fit 16 bits.
    #[inline(always)]
    fn start_short(self, initial: i32) -> Self::D {
        self.start(initial)
    }
    /// Adds a dot product that was begun by [`MatmulSimd::start_short`] times the factors to a total.
    fn weigh(self, total: Self::D, dot: Self::D, factors: Self::W) -> Self::D;

    /// Adds the products of all `blocks` blocks to `sums`: where the processor multiplies more than a row at once, an
    /// inner loop of its own.
    ///
    /// # Safety
    /// As for [`tile::integers`].
    #[inline(always)]
    unsafe fn integers<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
        self,
        panels: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantisedRow; M],
        blocks: usize,
        sums: &mut [[Self::F; V]; M],
    ) {
        // SAFETY: the caller's promise.
        unsafe { tile::integers::<Self, P, S, M, V>(self, panels, lanes, rows, blocks, sums) }
    }

    /// Computes those rows of a part of block types that are done sooner in another way; returns the first that is left.
    #[inline(always)]
    fn some_rows<P: QuantPlane, S: ScaleScheme>(self, part: &MatmulShare<'_>) -> usize {
        part.rows.start
    }

    /// The same for W4i.
    #[inline(always)]
    fn some_book_rows(self, part: &MatmulShare<'_>) -> usize {
        part.rows.start
    }

    fn splat(self, x: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn negate(self, a: Self::F) -> Self::F;
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `WIDTH` f32.
    unsafe fn floats(self, from: *const f32) -> Self::F;
    unsafe fn store(self, x: Self::F, to: *mut f32);
    /// `WIDTH` f16.
    unsafe fn halves(self, from: *const u8) -> Self::F;
    /// `WIDTH` bf16.
    unsafe fn brains(self, from: *const u8) -> Self::F;
    /// `WIDTH` signed bytes as floats.
    unsafe fn signed(self, from: *const u8) -> Self::F;
    /// `(byte >> SHIFT) & MASK` of `WIDTH` bytes, as floats.
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F;
    /// The low and the high halves of `WIDTH` pairs of f16.
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F);
    /// The low and the high halves of `WIDTH` pairs of bf16.
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F);
}
