//! Kernel lists from generic bodies.

/// Creates a list of kernels from one generic body.
///
/// `instantiate!(LIST: Type = "op" body(argument: Type, …))` defines `pub(crate) static LIST`, an array of
/// [`Kernel`](crate::ops::Kernel) whose functions run `body::<Isa>(token, argument, …)`, best first.
macro_rules! instantiate {
    ($list:ident: $function:ty = $op:literal $body:ident($($argument:ident: $type:ty),*)) => {
        pub(crate) static $list: &[$crate::ops::Kernel<$function>] = &{
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn avx512_shell($($argument: $type),*) {
                $body($crate::simd::Avx512::inside(), $($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            fn avx512($($argument: $type),*) {
                // SAFETY: the kernel list selects this entry only if the processor has AVX-512.
                unsafe { avx512_shell($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2_shell($($argument: $type),*) {
                $body($crate::simd::Avx2::inside(), $($argument),*)
            }
            #[cfg(target_arch = "x86_64")]
            fn avx2($($argument: $type),*) {
                // SAFETY: the kernel list selects this entry only if the processor has AVX2.
                unsafe { avx2_shell($($argument),*) }
            }
            #[cfg(target_arch = "aarch64")]
            fn neon($($argument: $type),*) {
                $body($crate::simd::Neon::inside(), $($argument),*)
            }
            #[cfg(any(feature = "portable", not(all(target_arch = "aarch64", target_feature = "neon"))))]
            fn scalar($($argument: $type),*) {
                $body($crate::simd::Scalar, $($argument),*)
            }
            [
                #[cfg(target_arch = "x86_64")]
                $crate::ops::Kernel::new(concat!($op, "-avx512"), $crate::CpuFeatures::AVX512, avx512 as $function),
                #[cfg(target_arch = "x86_64")]
                $crate::ops::Kernel::new(concat!($op, "-avx2"), $crate::CpuFeatures::AVX2, avx2 as $function),
                #[cfg(target_arch = "aarch64")]
                $crate::ops::Kernel::new(concat!($op, "-neon"), $crate::CpuFeatures::NEON, neon as $function),
                #[cfg(any(feature = "portable", not(all(target_arch = "aarch64", target_feature = "neon"))))]
                $crate::ops::Kernel::new(concat!($op, "-scalar"), $crate::CpuFeatures::NONE, scalar as $function),
            ]
        };
    };
}
pub(crate) use instantiate;
