//! Memory that is asked for before it is read.

/// Bytes that come into a cache together.
pub const LINE: usize = 64;

/// Asks for the line of an address, which need not be valid, into the second cache, where the processor takes wishes.
#[inline(always)]
pub fn prefetch_l2(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: every processor of the architecture has the instruction, which reads nothing that anybody sees.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction reads nothing that anybody sees.
    unsafe {
        core::arch::asm!("prfm pldl2keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
