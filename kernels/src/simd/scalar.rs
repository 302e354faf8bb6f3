//! Sixteen lanes without vector instructions.

use half::f16;

use super::{IntegerDot, IntegersOf, LANES, Simd, outline_with};
use crate::float;

/// The portable implementation.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn each<A: Copy, B>(a: [A; LANES], function: impl Fn(A) -> B) -> [B; LANES] {
    a.map(function)
}

#[inline(always)]
fn both<A: Copy, B>(a: [A; LANES], b: [A; LANES], function: impl Fn(A, A) -> B) -> [B; LANES] {
    core::array::from_fn(|i| function(a[i], b[i]))
}

outline_with!(Scalar);

impl Simd for Scalar {
    const REGISTERS: usize = 1;
    type F = [f32; LANES];
    type I = [i32; LANES];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::F {
        *x
    }
    #[inline(always)]
    fn store(self, x: Self::F, out: &mut [f32; LANES]) {
        *out = x;
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        core::array::from_fn(|i| float::fma(a[i], b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        both(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        each(a, f32::abs)
    }
    #[inline(always)]
    fn select_less(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F {
        core::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }
    #[inline(always)]
    fn round(self, x: Self::F) -> Self::I {
        each(x, |x| float::round(x) as i32)
    }
    #[inline(always)]
    fn float(self, x: Self::I) -> Self::F {
        each(x, |x| x as f32)
    }
    #[inline(always)]
    fn power_of_two(self, x: Self::I) -> Self::F {
        each(x, |x| f32::from_bits(((x + 127) << 23) as u32))
    }
    #[inline(always)]
    fn store_bytes(self, x: Self::I, out: &mut [i8; LANES]) {
        *out = each(x, |x| x as i8);
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        [x; LANES]
    }
    #[inline(always)]
    fn store_shorts(self, x: Self::I, out: &mut [i16; LANES]) {
        for (out, x) in out.iter_mut().zip(x) {
            *out = x as i16;
        }
    }
    #[inline(always)]
    fn load_halves(self, x: &[u32; LANES / 2]) -> Self::F {
        core::array::from_fn(|i| f16::from_bits((x[i / 2] >> (i % 2 * 16)) as u16).to_f32())
    }
}

impl IntegerDot for Scalar {
    type Vectors = Self;
    const DOT_BIAS: i32 = 0;
    type Sums = [i32; LANES];
    type Quads = [[i16; 4]; LANES];
    const SUMS: usize = 2;

    #[inline(always)]
    fn vectors(self) -> Self {
        self
    }
    #[inline(always)]
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self> {
        let a = a.to_le_bytes();
        core::array::from_fn(|i| {
            let products = lanes[i].to_le_bytes().into_iter().zip(a);
            products.fold(sum[i], |sum, (x, a)| sum + i32::from(x as i8) * i32::from(a as i8))
        })
    }
    #[inline(always)]
    fn zero_sums(self) -> Self::Sums {
        [0; LANES]
    }
    #[inline(always)]
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads {
        core::array::from_fn(|i| {
            let [high, low] = [high[i], low[i]].map(u32::to_le_bytes);
            core::array::from_fn(|e| i16::from(high[e] as i8) * 128 + i16::from(low[e] as i8))
        })
    }
    #[inline(always)]
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums {
        let factors = [0, 16, 32, 48].map(|shift| (factors >> shift) as i16);
        core::array::from_fn(|i| {
            let products = quads[i].into_iter().zip(factors);
            products.fold(sums[i], |sum, (x, y)| sum.wrapping_add(i32::from(x) * i32::from(y)))
        })
    }
    #[inline(always)]
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self> {
        sums
    }
}
