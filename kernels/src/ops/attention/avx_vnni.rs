//! Attention with AVX2, and with the dot products of AVX-VNNI for integer caches.

use super::flash::attend_with_instructions;
use super::instructions::Instructions;
use super::{AttentionArguments, Function, HeadCache, KeySpan, Query};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::{Avx2, AvxVnni};

pub(super) const KERNEL: Kernel<Function> =
    Kernel::new("attention-avxvnni", CpuFeatures::AVX2.with(CpuFeatures::AVXVNNI), avx_vnni);

fn avx_vnni(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    // SAFETY: the kernel list selects this entry only if the processor has AVX2 and AVX-VNNI.
    unsafe { shell(arguments, queries, cache, span, scratch, out) }
}

#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn shell(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let dots = AvxVnni::inside();
    let instructions = Instructions { vectors: Avx2::inside(), dots: Some(dots), matrices: None::<AvxVnni> };
    attend_with_instructions(instructions, arguments, queries, cache, span, scratch, out);
}
