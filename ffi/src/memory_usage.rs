//! Memory usage of sessions.

/// The memory usage of a session in bytes. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_memory_usage {
    /// `sizeof(siskin_memory_usage)`.
    pub struct_size: usize,
    /// Activations and unpacked small weights, allocated when the session is created.
    pub activations: u64,
    /// The KV cache, reserved when the session is created and committed as it fills.
    pub kv_cache: u64,
    /// The memory-mapped model file: clean pages that the system can evict.
    pub mapped_file: u64,
}

impl From<siskin::SessionMemory> for siskin_memory_usage {
    fn from(memory: siskin::SessionMemory) -> Self {
        Self {
            struct_size: 0,
            activations: memory.arena as u64,
            kv_cache: memory.cache as u64,
            mapped_file: memory.mapped as u64,
        }
    }
}
