//! Scalar f32 functions that `core` lacks, correctly rounded on every machine.

/// Returns `a · b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "std")]
    return a.mul_add(b, c);
    #[cfg(not(feature = "std"))]
    return libm::fmaf(a, b, c);
}

/// Returns the square root.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.sqrt();
    #[cfg(not(feature = "std"))]
    return libm::sqrtf(x);
}

/// Rounds to the nearest integer, ties to even. Only for |x| below 2^22.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    (x + SHIFT) - SHIFT
}

/// Returns the nearest integer, ties to even, in the low 22 bits; the higher bits are unspecified. Only for
/// |x| below 2^22.
#[inline(always)]
pub(crate) fn round_to_bits(x: f32) -> u32 {
    (x + SHIFT).to_bits()
}

/// 1.5 · 2^23, at which the unit in the last place of an f32 is one.
const SHIFT: f32 = 12_582_912.0;
