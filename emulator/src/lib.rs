//! Instructions that the machine of a test does not have.
//!
//! AMX, the matrix instructions of some Intel processors: where they trap, a signal handler decodes them and carries
//! them out on tiles in memory, a set for each thread. The very code that ships runs, some thousand times slower.
//!
//! CUDA: [`cuda`] runs kernels without a graphics processor.

pub mod cuda;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod decode;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tiles;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod trap;

/// Carries out AMX instructions that trap, in all threads from now on. False where that cannot be done: only 64-bit
/// Linux on x86 can.
pub fn install() -> bool {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    return trap::install();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    false
}
