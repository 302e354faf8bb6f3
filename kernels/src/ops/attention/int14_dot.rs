//! Dot products of 14-bit integers with those of an int14 cache.

use crate::simd::{InstructionSet, IntegerDot, LANES, Simd};

/// Four 14-bit integers, packed for some instructions.
pub(super) type Factors = [f32; 2];
/// Sixteen floats.
type FloatsOf<D> = <<D as Int14Dot>::Vectors as Simd>::F;

/// Instructions for int14: those of [`IntegerDot`], or others that take more than four integers per lane.
pub(super) trait Int14Dot: InstructionSet {
    type Vectors: Simd;
    /// What one step takes of an array that has a `T` for every four integers; sixteen integers are whole steps.
    type Step<T>;
    /// The number of equal parts of the lanes; a loop computes the sums of one part.
    const LANE_PARTS: usize;
    /// The sums of a part of the lanes, modulo 2^32.
    type Sums: Copy;
    /// Number of [`Int14Dot::Sums`] per vector of lanes for which there are registers.
    const SUMS: usize;

    fn vectors(self) -> Self::Vectors;
    fn steps<T>(all: &[T]) -> &[Self::Step<T>];
    /// Packs integers as factors.
    fn pack(integers: &[i16; LANES]) -> [Factors; LANES / 4];
    fn zero_sums(self) -> Self::Sums;
    /// Adds to each lane of a part the dot product of its integers, which have these digits, with the factors of a query.
    fn add_products<const Q: usize>(
        self,
        sums: &mut [Self::Sums; Q],
        high: &Self::Step<[u32; 16]>,
        low: &Self::Step<[u32; 16]>,
        lane_part: usize,
        factors: [&Self::Step<Factors>; Q],
    );
    /// Stores the sums of a part of the lanes, times `scale`.
    fn store_scaled(self, sums: Self::Sums, lane_part: usize, scale: FloatsOf<Self>, out: &mut [f32; 16]);
}

impl<D: IntegerDot> Int14Dot for D {
    type Vectors = D::Vectors;
    type Step<T> = T;
    const LANE_PARTS: usize = 1;
    type Sums = D::Sums;
    const SUMS: usize = <D as IntegerDot>::SUMS;

    #[inline(always)]
    fn vectors(self) -> D::Vectors {
        IntegerDot::vectors(self)
    }
    #[inline(always)]
    fn steps<T>(all: &[T]) -> &[T] {
        all
    }
    #[inline(always)]
    fn pack(integers: &[i16; LANES]) -> [Factors; LANES / 4] {
        D::factors(integers).map(|four| [four as u32, (four >> 32) as u32].map(f32::from_bits))
    }
    #[inline(always)]
    fn zero_sums(self) -> D::Sums {
        IntegerDot::zero_sums(self)
    }
    #[inline(always)]
    fn add_products<const Q: usize>(
        self,
        sums: &mut [D::Sums; Q],
        high: &[u32; 16],
        low: &[u32; 16],
        _lane_part: usize,
        factors: [&Factors; Q],
    ) {
        let quads = self.quads(high, low);
        for (sums, factors) in sums.iter_mut().zip(factors) {
            let four = u64::from(factors[0].to_bits()) | u64::from(factors[1].to_bits()) << 32;
            *sums = IntegerDot::add_products(self, *sums, quads, four);
        }
    }
    #[inline(always)]
    fn store_scaled(self, sums: D::Sums, _lane_part: usize, scale: FloatsOf<D>, out: &mut [f32; 16]) {
        let s = IntegerDot::vectors(self);
        s.store(s.mul(s.float(self.totals(sums)), scale), out);
    }
}
