//! Single f32 operations that `core` lacks, correctly rounded on every machine.

/// `a · b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    #[cfg(feature = "std")]
    return a.mul_add(b, c);
    #[cfg(not(feature = "std"))]
    return libm::fmaf(a, b, c);
}

/// The square root.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    #[cfg(feature = "std")]
    return x.sqrt();
    #[cfg(not(feature = "std"))]
    return libm::sqrtf(x);
}

/// To the nearest integer, ties to even. Only for |x| below 2^22.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    (x + SHIFT) - SHIFT
}

/// The nearest integer, ties to even, in the low 22 bits; what is above them says nothing. Only for |x| below 2^22.
#[inline(always)]
pub(crate) fn round_to_bits(x: f32) -> u32 {
    (x + SHIFT).to_bits()
}

/// Where the last bit of a number is worth one.
const SHIFT: f32 = 12_582_912.0;
