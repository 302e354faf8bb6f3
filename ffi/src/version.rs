//! The version of the library.

use std::ffi::c_char;

/// The version of the interface that this header describes. Functions and values are only ever added, each time with a
/// higher number; a breaking change gets another library name.
pub const SISKIN_ABI_VERSION: u32 = 1;

/// Returns the version of the interface that the library implements. A program runs with a library whose number is not
/// below the `SISKIN_ABI_VERSION` that it was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn siskin_abi_version() -> u32 {
    SISKIN_ABI_VERSION
}

/// Returns the version of the library, such as `0.1.0`, as a NUL-terminated text with static lifetime.
#[unsafe(no_mangle)]
pub extern "C" fn siskin_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
