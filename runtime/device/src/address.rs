//! Addresses in device memory.

/// An address in the memory of a device; 0: none.
pub type DevicePtr = u64;

/// The alignment of allocations and tables, in bytes.
pub const ALIGNMENT: usize = 256;

/// Rounds a size up to the alignment.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}
