//! The instruction-set abstraction of the matmul microkernels, one vector of output rows at a time.

use super::Function;
use super::formats::{QuantPlane, ScaleScheme};
use super::run::MatmulShare;
use super::tile::{self, LoopExtent, QuantizedRow};
use crate::simd::InstructionSet;

/// Vectors of [`MatmulSimd::WIDTH`] output rows. A value of an implementing type is a token that proves that
/// the processor has the instructions; a vector of bytes holds four columns of each row.
///
/// Pointers passed to the load methods must be readable, and those passed to the store methods writable, for the values
/// that the method names.
pub(super) trait MatmulSimd: InstructionSet {
    /// Output rows per vector: a divisor of 16.
    const WIDTH: usize;
    /// What [`MatmulSimd::dot_signed`] adds to every weight; the tile compensates with the sum of the row.
    const SIGNED_BIAS: i32;
    /// The kernel that multiplies floats, if it is not this one.
    const FLOATS: Option<Function> = None;
    /// Whether tiles of several rows are compiled for size: as half the unrolled loop, and with a shared epilogue.
    const COMPACT: bool;
    /// Whether many rows of W4i are faster if its weights are first unpacked to int8.
    const WIDE: bool;
    /// Four bytes for each row.
    type B: Copy;
    /// A running integer dot product for each row.
    type D: Copy;
    /// A small integer for each row.
    type W: Copy;
    /// A f32 for each row.
    type F: Copy;

    /// Prefetches the cache line at an address, which need not be valid, into L2.
    #[inline(always)]
    fn prefetch(self, _from: *const u8) {}

    /// Loads `4 · WIDTH` bytes.
    unsafe fn bytes(self, from: *const u8) -> Self::B;
    /// Returns `(byte >> SHIFT) & MASK`; MASK has no bit above `7 − SHIFT`.
    fn bits<const SHIFT: u32, const MASK: u8>(self, x: Self::B) -> Self::B;
    /// Returns `byte << SHIFT`, for bytes whose top bits are zero.
    fn raise<const SHIFT: u32>(self, x: Self::B) -> Self::B;
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Looks up each byte, which is below 16, in the table.
    fn look_up(self, x: Self::B, table: &[i8; 16]) -> Self::B;

    /// Multiplies signed bytes by the factors of their rows; every product fits into a byte.
    fn times(self, x: Self::B, factors: Self::W) -> Self::B;
    /// Stores `4 · WIDTH` bytes.
    unsafe fn store_bytes(self, x: Self::B, to: *mut u8);

    /// Starts a dot product at `initial`.
    fn start(self, initial: i32) -> Self::D;
    /// Adds the products of unsigned weights below 64 with the four integers in `a`.
    fn dot_small(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D;
    /// Adds the products of signed weights with the four integers in `a`, none of which is −128.
    fn dot_signed(self, sum: Self::D, weights: Self::B, a: i32) -> Self::D;
    /// Widens narrow intermediate sums, so that more [`MatmulSimd::dot_small`] may follow.
    fn settle(self, sum: Self::D) -> Self::D;
    /// Returns the dot product as a float; `initial` as passed to [`MatmulSimd::start`].
    fn finish(self, sum: Self::D, initial: i32) -> Self::F;

    /// Loads `WIDTH` 16-bit words, one for each row.
    unsafe fn words(self, from: *const u8) -> Self::W;
    /// Returns the factors encoded by the four bits from `SHIFT` on of each word, for [`MatmulSimd::weigh`]
    /// and [`MatmulSimd::times`].
    fn factors<const SHIFT: u32>(self, words: Self::W) -> Self::W;
    /// Starts a dot product of sixteen columns with weights below 20, for [`MatmulSimd::weigh`]. `initial`
    /// and the dot product including it fit into 16 bits.
    #[inline(always)]
    fn start_short(self, initial: i32) -> Self::D {
        self.start(initial)
    }
    /// Adds a dot product started by [`MatmulSimd::start_short`], times the factors, to a total.
    fn weigh(self, total: Self::D, dot: Self::D, factors: Self::W) -> Self::D;

    /// Adds the products of the blocks to `sums`. Overridden where the processor multiplies several
    /// rows per instruction.
    ///
    /// # Safety
    /// As for [`tile::integers`].
    #[inline(always)]
    unsafe fn integers<P: QuantPlane, S: ScaleScheme, const M: usize, const V: usize>(
        self,
        panels: &[*const u8; V],
        lanes: &[usize; V],
        rows: &[QuantizedRow; M],
        blocks: LoopExtent,
        sums: &mut [[Self::F; V]; M],
    ) {
        // SAFETY: the arguments are passed on unchanged, and this method has the contract of `tile::integers`.
        unsafe { tile::integers::<Self, P, S, M, V>(self, panels, lanes, rows, blocks, sums) }
    }

    /// Computes the rows of a share of block types for which another method is faster; returns the first
    /// remaining row.
    #[inline(always)]
    fn some_rows<P: QuantPlane, S: ScaleScheme>(self, part: &MatmulShare<'_>) -> usize {
        part.rows.start
    }

    /// [`MatmulSimd::some_rows`] for W4i.
    #[inline(always)]
    fn some_book_rows(self, part: &MatmulShare<'_>) -> usize {
        part.rows.start
    }

    fn splat(self, x: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn negate(self, a: Self::F) -> Self::F;
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Loads `WIDTH` f32.
    unsafe fn floats(self, from: *const f32) -> Self::F;
    /// Stores `WIDTH` f32.
    unsafe fn store(self, x: Self::F, to: *mut f32);
    /// Loads `WIDTH` f16.
    unsafe fn halves(self, from: *const u8) -> Self::F;
    /// Loads `WIDTH` bf16.
    unsafe fn brains(self, from: *const u8) -> Self::F;
    /// Loads `WIDTH` signed bytes as floats.
    unsafe fn signed(self, from: *const u8) -> Self::F;
    /// Loads `(byte >> SHIFT) & MASK` of `WIDTH` bytes, as floats.
    unsafe fn unsigned<const SHIFT: u32, const MASK: u8>(self, from: *const u8) -> Self::F;
    /// Loads `WIDTH` pairs of f16: the first elements and the second elements.
    unsafe fn half_pairs(self, from: *const u8) -> (Self::F, Self::F);
    /// Loads `WIDTH` pairs of bf16: the first elements and the second elements.
    unsafe fn brain_pairs(self, from: *const u8) -> (Self::F, Self::F);
}
