//! NVIDIA's libraries, which are loaded at run time, and their errors.

use cudarc::driver::sys;
use siskin_format::{Error, ErrorKind, Result};

/// Returns the error of a failed call.
pub(super) fn failed(what: &str, error: impl std::fmt::Debug) -> Error {
    let error = format!("{error:?}");
    let message = format!("CUDA cannot {what}: {error}");
    match ["OUT_OF_MEMORY", "ALLOC_FAILED"].iter().any(|name| error.contains(name)) {
        true => Error::new(ErrorKind::Memory, "device", message),
        false => Error::unsupported("device", message),
    }
}

/// Turns the result of a call that does `what` into ours.
pub(super) fn check<T, E: std::fmt::Debug>(what: &str, outcome: std::result::Result<T, E>) -> Result<T> {
    outcome.map_err(|error| failed(what, error))
}

/// Rejects machines that lack a library, since calls into a missing library abort the process.
pub(super) fn need_libraries() -> Result<()> {
    // SAFETY: opens the libraries, whose initializers have no other side effects.
    let there = unsafe {
        [
            sys::is_culib_present(),
            cudarc::nvrtc::sys::is_culib_present(),
            cudarc::cublaslt::sys::is_culib_present(),
        ]
    };
    let advice = [
        "no CUDA driver: libcuda cannot be loaded; install NVIDIA's driver, or use the CPU",
        "no NVRTC: libnvrtc cannot be loaded; install the CUDA toolkit, or use the CPU",
        "no cuBLASLt: libcublasLt cannot be loaded; install the CUDA toolkit, or use the CPU",
    ];
    match there.iter().zip(advice).find(|(there, _)| !**there) {
        Some((_, advice)) => Err(Error::unsupported("device", advice)),
        None => Ok(()),
    }
}
