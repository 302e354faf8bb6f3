//! The scalar types of training: f32, and f64 for gradient checks.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use siskin_device::GemmShape;

use crate::fast_math;

/// A floating-point type.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + Sum
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// Rounds to the nearest value.
    fn of(number: f64) -> Self;
    /// Converts to f64.
    fn f64(self) -> f64;
    /// e^self.
    fn exp(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// ln(1 + self).
    fn ln_1p(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// Returns true if it is neither infinite nor NaN.
    fn is_finite(self) -> bool;

    /// Computes `c = alpha · a · b + beta · c`: see [`gemm`](crate::gemm).
    ///
    /// # Safety
    /// `a` (m × k), `b` (k × n) and `c` (m × n) must be valid at all offsets that sizes and strides give, and those
    /// of `c` distinct.
    unsafe fn gemm_raw(
        shape: GemmShape,
        alpha: Self,
        a: (*const Self, [isize; 2]),
        b: (*const Self, [isize; 2]),
        beta: Self,
        c: (*mut Self, [isize; 2]),
    );

    /// The maximum.
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

macro_rules! real {
    ($type:ident, $gemm:ident, $exp:path, $tanh:path, $erf:path) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline]
            fn of(number: f64) -> Self {
                number as Self
            }
            #[inline]
            fn f64(self) -> f64 {
                f64::from(self)
            }
            #[inline]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline]
            fn ln(self) -> Self {
                $type::ln(self)
            }
            #[inline]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            #[inline]
            fn tanh(self) -> Self {
                $tanh(self)
            }
            #[inline]
            fn erf(self) -> Self {
                $erf(self)
            }
            #[inline]
            fn ln_1p(self) -> Self {
                $type::ln_1p(self)
            }
            #[inline]
            fn abs(self) -> Self {
                $type::abs(self)
            }
            #[inline]
            fn is_finite(self) -> bool {
                $type::is_finite(self)
            }

            unsafe fn gemm_raw(
                GemmShape { m, n, k }: GemmShape,
                alpha: Self,
                (a, [a_row, a_column]): (*const Self, [isize; 2]),
                (b, [b_row, b_column]): (*const Self, [isize; 2]),
                beta: Self,
                (c, [c_row, c_column]): (*mut Self, [isize; 2]),
            ) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    matrixmultiply::$gemm(
                        m, k, n, alpha, a, a_row, a_column, b, b_row, b_column, beta, c, c_row, c_column,
                    );
                }
            }
        }
    };
}

real!(f32, sgemm, fast_math::exp, fast_math::tanh, libm::erff);
real!(f64, dgemm, f64::exp, f64::tanh, libm::erf);
