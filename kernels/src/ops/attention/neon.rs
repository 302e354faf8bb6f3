//! Attention with NEON, and with its byte dot products for integer caches: one function for both, since only the inner
//! loops differ.

use super::flash::attend_with_instructions;
use super::instructions::Instructions;
use super::{AttentionArguments, Function, HeadCache, KeySpan, Query};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::{Neon, NeonDotprod};

pub(super) const NEON: Kernel<Function> = Kernel::new("attention-neon", CpuFeatures::NEON, neon);
pub(super) const DOTPROD: Kernel<Function> =
    Kernel::new("attention-dotprod", CpuFeatures::NEON.with(CpuFeatures::DOTPROD), dotprod);

fn neon(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    attend(None, arguments, queries, cache, span, scratch, out);
}

fn dotprod(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    // SAFETY: the kernel list selects this entry only if the processor has dot products.
    let dots = unsafe { NeonDotprod::inside() };
    attend(Some(dots), arguments, queries, cache, span, scratch, out);
}

#[inline(never)]
fn attend(
    dots: Option<NeonDotprod>,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let instructions = Instructions { vectors: Neon::inside(), dots };
    attend_with_instructions(instructions, arguments, queries, cache, span, scratch, out);
}
