//! Memory use of sessions.

/// The memory that a session uses or would use, in bytes. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_memory {
    /// `sizeof(siskin_memory)`.
    pub struct_size: usize,
    /// Activations and small weights: allocated up front.
    pub activations: u64,
    /// The KV cache: reserved up front, committed as it fills.
    pub cache: u64,
    /// The mapped model file: clean pages, which the system may evict and read again.
    pub mapped: u64,
}

impl From<siskin::SessionMemory> for siskin_memory {
    fn from(memory: siskin::SessionMemory) -> Self {
        Self {
            struct_size: 0,
            activations: memory.arena as u64,
            cache: memory.cache as u64,
            mapped: memory.mapped as u64,
        }
    }
}
