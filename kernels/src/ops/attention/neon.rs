//! Attention with NEON, and with its byte dot products and matrix products for integer caches: one function for all, since
//! only the inner loops differ.

use super::flash::attend_with_instructions;
use super::instructions::Instructions;
use super::{AttentionArguments, Function, HeadCache, KeySpan, Query};
use crate::CpuFeatures;
use crate::ops::Kernel;
use crate::simd::{Neon, NeonDotprod, NeonI8mm};

pub(super) const NEON: Kernel<Function> = Kernel::new("attention-neon", CpuFeatures::NEON, neon);
pub(super) const DOTPROD: Kernel<Function> =
    Kernel::new("attention-dotprod", CpuFeatures::NEON.with(CpuFeatures::DOTPROD), dotprod);
pub(super) const I8MM: Kernel<Function> =
    Kernel::new("attention-i8mm", CpuFeatures::NEON.with(CpuFeatures::DOTPROD).with(CpuFeatures::I8MM), i8mm);

fn neon(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    attend(None, None, arguments, queries, cache, span, scratch, out);
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
    attend(Some(dots), None, arguments, queries, cache, span, scratch, out);
}

fn i8mm(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    // SAFETY: the kernel list selects this entry only if the processor has dot and matrix products.
    let matrices = unsafe { NeonI8mm::inside() };
    let several = (queries.len() > 1).then_some(matrices);
    attend(Some(matrices.dotprod()), several, arguments, queries, cache, span, scratch, out);
}

#[inline(never)]
fn attend(
    dots: Option<NeonDotprod>,
    matrices: Option<NeonI8mm>,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let instructions = Instructions { vectors: Neon::inside(), dots, matrices };
    attend_with_instructions(instructions, arguments, queries, cache, span, scratch, out);
}
