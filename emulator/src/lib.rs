//! Emulation of instructions that the test machine does not support.
//!
//! AMX, the matrix instructions of some Intel processors: a signal handler decodes trapped instructions and executes
//! them on tiles in memory, one set per thread. It runs the code that ships, about a thousand times slower.
//!
//! CUDA: [`cuda`] runs kernels without a GPU.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod amx_tiles;
pub mod cuda;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod decode;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trap;

/// Installs the handler that executes trapped AMX instructions, for all threads. Returns false if that is unsupported:
/// it requires 64-bit Linux on x86.
pub fn install() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return trap::install();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    false
}
