//! What sessions take of memory.

/// What a session holds in memory, or would hold, in bytes. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct siskin_memory {
    /// `sizeof(siskin_memory)`.
    pub struct_size: usize,
    /// Activations and small weights: taken at once.
    pub activations: u64,
    /// Keys and values: reserved, and taken as they fill.
    pub cache: u64,
    /// The model's file: pages of it that the system may drop and read again.
    pub mapped: u64,
}

impl From<siskin::Memory> for siskin_memory {
    fn from(memory: siskin::Memory) -> Self {
        Self {
            struct_size: 0,
            activations: memory.arena as u64,
            cache: memory.cache as u64,
            mapped: memory.mapped as u64,
        }
    }
}
