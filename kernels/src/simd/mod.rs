//! Sixteen-lane f32 vectors on every machine.
//!
//! A row operation is written once, generic over [`Simd`], and instantiated for each instruction set by
//! [`instantiate!`](crate::ops::instantiate). All implementations produce the same bits: every method is one
//! correctly rounded IEEE operation per lane, and reductions use a fixed tree.

mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dotprod;
#[cfg(target_arch = "aarch64")]
mod neon_i8mm;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx_vnni::AvxVnni;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon_dotprod::NeonDotprod;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon_i8mm::NeonI8mm;
pub(crate) use scalar::Scalar;

/// Lanes of the virtual vector.
pub(crate) const LANES: usize = 16;

/// A token that proves that the processor has an instruction set.
pub(crate) trait InstructionSet: Copy {
    /// Runs the code in a function of its own, compiled for the instruction set. All loops of an operation in one
    /// function would take the compiler several times as long.
    fn outline(self, code: impl Outlined<Self>);
}

/// Code for any instruction set, to be compiled as a function of its own. Implementations of `run` are
/// `#[inline(always)]`.
pub(crate) trait Outlined<S> {
    fn run(self, s: S);
}

/// Implements [`InstructionSet`] for a token type, with the features that its functions are compiled for.
macro_rules! outline_with {
    ($token:ty) => {
        impl $crate::simd::InstructionSet for $token {
            #[inline(never)]
            fn outline(self, code: impl $crate::simd::Outlined<Self>) {
                code.run(self);
            }
        }
    };
    ($token:ty, $features:literal) => {
        impl $crate::simd::InstructionSet for $token {
            #[inline(always)]
            fn outline(self, code: impl $crate::simd::Outlined<Self>) {
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn outlined(token: $token, code: impl $crate::simd::Outlined<$token>) {
                    code.run(token);
                }
                // SAFETY: the token proves that the processor has the features.
                unsafe { outlined(self, code) }
            }
        }
    };
}
pub(crate) use outline_with;

/// The operations that row kernels use. A value of an implementing type is a token that proves that the
/// processor has the instructions.
pub(crate) trait Simd: InstructionSet {
    /// Number of sixteen-lane vectors that fit in the registers.
    const REGISTERS: usize;
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;

    /// Returns whether the registers can hold several interleaved vectors in a long function.
    #[inline(always)]
    fn overlaps(self) -> bool {
        Self::REGISTERS >= 32
    }

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; LANES]) -> Self::F;
    fn store(self, x: Self::F, out: &mut [f32; LANES]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a · b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Returns `a > b ? a : b` for each lane, also for NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Returns `a < b ? a : b` for each lane, also for NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// Returns `a < b ? x : y` for each lane.
    fn select_less(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// Rounds to the nearest integer, ties to even; unspecified for |x| from 2^22 on and for NaN.
    fn round(self, x: Self::F) -> Self::I;
    fn float(self, x: Self::I) -> Self::F;
    /// Returns 2^x for x from −126 to 127.
    fn power_of_two(self, x: Self::I) -> Self::F;
    /// Stores the low byte of each lane.
    fn store_bytes(self, x: Self::I, out: &mut [i8; LANES]);
    /// Stores the low sixteen bits of integers that fit in them.
    fn store_shorts(self, x: Self::I, out: &mut [i16; LANES]);
    /// Loads sixteen f16, two in each word, the first in its low half.
    fn load_halves(self, x: &[u32; LANES / 2]) -> Self::F;
    /// Loads sixteen f32 from their bit patterns.
    fn load_words(self, x: &[u32; LANES]) -> Self::F {
        self.load(&x.map(f32::from_bits))
    }

    fn splat_int(self, x: i32) -> Self::I;

    /// Computes a stage of the Hadamard transform within the lanes, `APART` being 1, 2, 4 or 8: with y the
    /// lane `APART` away, `x + y` in lanes whose index has that bit clear, `y − x` in the others.
    #[inline(always)]
    fn butterfly<const APART: usize>(self, x: Self::F) -> Self::F {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        for i in (0..LANES).filter(|i| i & APART == 0) {
            let (a, b) = (lanes[i], lanes[i + APART]);
            (lanes[i], lanes[i + APART]) = (a + b, a - b);
        }
        self.load(&lanes)
    }

    /// Prefetches the cache line of a value that is read later into L2, which allows more outstanding
    /// requests than L1.
    #[inline(always)]
    fn prefetch<T>(self, _number: &T) {}

    /// Returns the sum, reduced by the fixed tree: lanes 8 apart, then 4, 2, 1.
    fn sum(self, x: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        tree(lanes, |a, b| a + b)
    }

    /// Returns the largest lane, reduced by the fixed tree.
    fn largest(self, x: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        tree(lanes, |a, b| if a > b { a } else { b })
    }

    /// Returns the largest lane of each vector; unspecified for a vector with NaN.
    #[inline(always)]
    fn largest_of_each(self, x: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = x;
        [self.largest(a), self.largest(b), self.largest(c), self.largest(d)]
    }

    /// Stores integers from −127 to 127 as bytes, and returns the sum of each vector; unspecified for other
    /// integers.
    #[inline(always)]
    fn store_bytes_of_each(self, x: [Self::I; 4], out: &mut [[i8; LANES]; 4]) -> [i32; 4] {
        let mut sums = [0; 4];
        for ((x, out), sum) in x.into_iter().zip(out).zip(&mut sums) {
            self.store_bytes(x, out);
            *sum = self.sum(self.float(x)) as i32;
        }
        sums
    }

    /// Loads up to sixteen floats; the missing lanes are set to `fill`.
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> Self::F {
        match x.first_chunk() {
            Some(whole) => self.load(whole),
            None => {
                let mut lanes = [fill; LANES];
                lanes[..x.len()].copy_from_slice(x);
                self.load(&lanes)
            }
        }
    }

    /// Stores as many lanes as fit in `out`.
    #[inline(always)]
    fn store_part(self, x: Self::F, out: &mut [f32]) {
        match out.first_chunk_mut() {
            Some(whole) => self.store(x, whole),
            None => {
                let mut lanes = [0.0; LANES];
                self.store(x, &mut lanes);
                out.copy_from_slice(&lanes[..out.len()]);
            }
        }
    }
}

/// Dot products of integers, for which some processors have instructions beside those of [`Simd`].
pub(crate) trait IntegerDot: InstructionSet {
    /// The vectors that the sums are in.
    type Vectors: Simd;

    fn vectors(self) -> Self::Vectors;

    /// The bias that [`IntegerDot::dot`] adds to every byte of the lanes.
    const DOT_BIAS: i32;

    /// Adds to each lane the dot product of its four signed bytes, plus the bias, with those of `a`; no byte
    /// of either may be −128.
    fn dot(self, sum: IntegersOf<Self>, lanes: &[u32; LANES], a: i32) -> IntegersOf<Self>;

    /// Sixteen sums of products of 14-bit integers, modulo 2^32.
    type Sums: Copy;
    /// Four 14-bit integers for each of sixteen lanes.
    type Quads: Copy;
    /// Number of [`IntegerDot::Sums`] per vector of lanes for which there are registers.
    const SUMS: usize;

    fn zero_sums(self) -> Self::Sums;
    /// Returns the integers `128 · high + low` of bytes from −64 to 63, four for each lane.
    fn quads(self, high: &[u32; LANES], low: &[u32; LANES]) -> Self::Quads;
    /// Packs 14-bit integers, four at a time, as the factors of [`IntegerDot::add_products`].
    #[inline(always)]
    fn factors(integers: &[i16; LANES]) -> [u64; LANES / 4] {
        let mut factors = [0; LANES / 4];
        for (factors, &[a, b, c, d]) in factors.iter_mut().zip(integers.as_chunks::<4>().0) {
            let (lower, upper) = (a as u16 as u32 | (b as u32) << 16, c as u16 as u32 | (d as u32) << 16);
            *factors = u64::from(lower) | u64::from(upper) << 32;
        }
        factors
    }
    /// Adds to each lane the dot product of its four integers with the factors.
    fn add_products(self, sums: Self::Sums, quads: Self::Quads, factors: u64) -> Self::Sums;
    /// Returns the sum of each lane.
    fn totals(self, sums: Self::Sums) -> IntegersOf<Self>;
}

/// Sixteen i32 of an instruction set.
pub(crate) type IntegersOf<D> = <<D as IntegerDot>::Vectors as Simd>::I;

/// Reduces lanes 8 apart, then 4, 2 and 1.
#[inline(always)]
pub(crate) fn tree<T: Copy>(mut lanes: [T; LANES], combine: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = combine(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Computes `$out` from rows of the same length, sixteen columns at a time: in `$value`, the name of a row
/// denotes its current vector.
macro_rules! each_vector {
    ($s:ident, [$($x:ident),+] => $out:ident, $value:expr) => {{
        let (whole, rest) = $out.as_chunks_mut::<{ $crate::simd::LANES }>();
        $(let $x = $x[..16 * whole.len() + rest.len()].as_chunks::<{ $crate::simd::LANES }>();)+
        for (i, out) in whole.iter_mut().enumerate() {
            $(let $x = $s.load(&$x.0[i]);)+
            $s.store($value, out);
        }
        if !rest.is_empty() {
            $(let $x = $s.load_part($x.1, 0.0);)+
            $s.store_part($value, rest);
        }
    }};
}
pub(crate) use each_vector;

/// Vectors that are interleaved in long functions, to hide instruction latency.
pub(crate) const TOGETHER: usize = 4;

/// [`each_vector!`] for long functions: in `$value`, the name of a row denotes an array of its current
/// vectors, and the value is an array of the same length. If the registers cannot hold several vectors, they
/// are processed one by one.
macro_rules! each_run {
    ($s:ident, [$($x:ident),+] => $out:ident, $value:expr) => {{
        use $crate::simd::{LANES, TOGETHER, load_each};
        let (whole, rest) = $out.as_chunks_mut::<LANES>();
        $(let $x = $x[..LANES * whole.len() + rest.len()].as_chunks::<LANES>();)+
        let together = if $s.overlaps() { whole.len() / TOGETHER * TOGETHER } else { 0 };
        let (runs, singles) = whole.split_at_mut(together);
        let runs = runs.as_chunks_mut::<TOGETHER>().0;
        $(let $x = ($x.0[..together].as_chunks::<TOGETHER>().0, &$x.0[together..], $x.1);)+
        for (i, out) in runs.iter_mut().enumerate() {
            $(let $x = load_each($s, &$x.0[i]);)+
            for (value, out) in $value.into_iter().zip(out) {
                $s.store(value, out);
            }
        }
        for (i, out) in singles.iter_mut().enumerate() {
            $(let $x = [$s.load(&$x.1[i])];)+
            let [value] = $value;
            $s.store(value, out);
        }
        if !rest.is_empty() {
            $(let $x = [$s.load_part($x.2, 0.0)];)+
            let [value] = $value;
            $s.store_part(value, rest);
        }
    }};
}
pub(crate) use each_run;

/// Loads `N` vectors.
#[inline(always)]
pub(crate) fn load_each<S: Simd, const N: usize>(s: S, x: &[[f32; LANES]; N]) -> [S::F; N] {
    let mut vectors = [s.splat(0.0); N];
    for (vector, x) in vectors.iter_mut().zip(x) {
        *vector = s.load(x);
    }
    vectors
}
