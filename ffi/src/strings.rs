//! A batch of texts.

use std::ffi::c_char;

use crate::arguments::{place, text};
use crate::error::siskin_error;
use crate::guard::{self, Handle};

/// A batch of texts that are encoded or generated for together. Freed with `siskin_texts_free`.
pub struct siskin_texts {
    _opaque: [u8; 0],
}

impl Handle for siskin_texts {
    type Inner = Vec<String>;
    type Remote = ();
    const MAGIC: [u8; 8] = *b"SISKtext";
    const NAME: &'static str = "texts";
}

/// Creates an empty batch.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_texts_new(out: *mut *mut siskin_texts) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::made(out, || Ok((Vec::new(), ()))) }
}

/// Adds a text of `length` bytes of UTF-8, which is copied.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_texts_add(
    texts: *mut siskin_texts,
    text: *const c_char,
    length: usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(texts, |texts, ()| {
            texts.push(self::text("text", text, length)?.to_owned());
            Ok(())
        })
    }
}

/// Returns the number of texts.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_texts_count(
    texts: *const siskin_texts,
    count: *mut usize,
) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::shared(texts, |texts| {
            place("count", count)?.write(texts.len());
            Ok(())
        })
    }
}

/// Removes all texts.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_texts_clear(texts: *mut siskin_texts) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::alone(texts, |texts, ()| {
            texts.clear();
            Ok(())
        })
    }
}

/// Frees a batch. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_texts_free(texts: *mut siskin_texts) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(texts) }
}
