//! Software prefetch.

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Prefetches the cache line at `address` into L2. The address need not be valid. No-op on architectures
/// without a prefetch instruction.
#[inline(always)]
pub fn prefetch_l2(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction; it never faults and has no architectural
        // effect.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction never faults and has no architectural effect.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
