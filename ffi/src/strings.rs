//! Lists of strings.

use std::ffi::c_char;

use crate::arguments::{output, text};
use crate::error::siskin_error;
use crate::guard::{self, Handle};

/// A list of strings: a batch of texts, which a call processes together. Freed with `siskin_strings_free`.
pub struct siskin_strings {
    _opaque: [u8; 0],
}

impl Handle for siskin_strings {
    type Inner = Vec<String>;
    type Control = ();
    const MAGIC: [u8; 8] = *b"SISKstrs";
    const NAME: &'static str = "strings";
}

/// Creates an empty list.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_strings_new(out: *mut *mut siskin_strings) -> *mut siskin_error {
    // SAFETY: pointer contract: `out` is null or writable.
    unsafe { guard::create(out, || Ok((Vec::new(), ()))) }
}

/// Appends a copy of a string.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_strings_add(
    strings: *mut siskin_strings,
    text: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `strings` is null or live; `text` is a string of `length` bytes.
    unsafe {
        guard::exclusive(strings, |strings, ()| {
            strings.push(self::text("text", text, length)?.to_owned());
            Ok(())
        })
    }
}

/// Returns the number of strings.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_strings_count(
    strings: *const siskin_strings,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `strings` is null or live; `count` is null or writable.
    unsafe {
        guard::shared(strings, |strings| {
            output("count", count)?.write(strings.len());
            Ok(())
        })
    }
}

/// Removes all strings.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_strings_clear(strings: *mut siskin_strings) -> *mut siskin_error {
    // SAFETY: pointer contract: `strings` is null or live.
    unsafe {
        guard::exclusive(strings, |strings, ()| {
            strings.clear();
            Ok(())
        })
    }
}

/// Frees a list. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_strings_free(strings: *mut siskin_strings) {
    // SAFETY: pointer contract: `strings` is null or live, and not used afterwards.
    unsafe { guard::free(strings) }
}
