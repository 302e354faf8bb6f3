//! The version of the library.

use std::ffi::c_char;

/// The ABI version of this header. It increases when functions, constants or struct fields are added. Nothing is ever
/// removed or changed; a breaking change would ship under a new library name.
pub const SISKIN_ABI_VERSION: u32 = 1;

/// Returns the ABI version of the library. A program can use the library if this is at least the `SISKIN_ABI_VERSION`
/// that the program was compiled with.
#[unsafe(no_mangle)]
pub extern "C" fn siskin_abi_version() -> u32 {
    SISKIN_ABI_VERSION
}

/// Returns the version of the library, such as `0.1.0`: a static, NUL-terminated string.
#[unsafe(no_mangle)]
pub extern "C" fn siskin_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
