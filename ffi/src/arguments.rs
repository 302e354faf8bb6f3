//! Conversion of C pointers and doubles to Rust values.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::error::{Outcome, PendingError, SISKIN_ERROR_NULL, SISKIN_ERROR_STRUCT_SIZE, SISKIN_ERROR_UTF8};

/// The upper bound of `struct_size`.
const MAX_STRUCT_BYTES: usize = 1 << 16;

/// Rejects a pointer that cannot refer to `count` values. If `count` is zero, the pointer is ignored.
pub(crate) fn check_pointer<T>(name: &str, start: *const T, count: usize) -> Outcome {
    if count == 0 {
        return Ok(());
    }
    if start.is_null() || !start.is_aligned() {
        return Err(PendingError::new(
            SISKIN_ERROR_NULL,
            name,
            format!("must point to {count} values, got {start:p}"),
        ));
    }
    if count.checked_mul(size_of::<T>().max(1)).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(PendingError::argument(name, format!("{count} values do not fit in memory")));
    }
    Ok(())
}

/// Returns `count` values starting at `start`. If `count` is zero, the pointer is ignored.
///
/// # Safety
/// `start` is null or valid for reads of `count` initialized values, which are not modified during `'a`.
pub(crate) unsafe fn values<'a, T>(name: &str, start: *const T, count: usize) -> Outcome<&'a [T]> {
    check_pointer(name, start, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: `check_pointer` rejects null, misaligned addresses and too large sizes; otherwise, `start` is valid for
    // reads of `count` initialized values during `'a` (see `# Safety`).
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// The length of a string that ends at its first zero byte: `SISKIN_NUL_TERMINATED` of the header.
const NUL_TERMINATED: usize = usize::MAX;

/// Returns a UTF-8 string of `length` bytes, or up to its first zero byte if `length` is [`NUL_TERMINATED`]. If
/// `length` is zero, the pointer is ignored.
///
/// # Safety
/// As for [`values`]; with [`NUL_TERMINATED`], `start` is null or readable up to and including a zero byte.
pub(crate) unsafe fn text<'a>(name: &str, start: *const c_char, length: usize) -> Outcome<&'a str> {
    let bytes = if length == NUL_TERMINATED {
        check_pointer(name, start, 1)?;
        // SAFETY: `start` is not null, and readable up to and including a zero byte (see `# Safety`).
        unsafe { CStr::from_ptr(start) }.to_bytes()
    } else {
        // SAFETY: `start` is null, or readable for `length` bytes, all of which are valid `u8` (see `# Safety`).
        unsafe { values(name, start.cast::<u8>(), length) }?
    };
    std::str::from_utf8(bytes).map_err(|error| PendingError::new(SISKIN_ERROR_UTF8, name, error.to_string()))
}

/// Returns a UTF-8 string, or `None` if it is empty.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn text_or_none(
    name: &str,
    start: *const c_char,
    length: usize,
) -> Outcome<Option<String>> {
    // SAFETY: `start` and `length` are what `text` requires; the borrow ends below, with the copy.
    let text = unsafe { text(name, start, length) }?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// 2⁵³: up to this value, every integer has an exact double.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns a reference to an output parameter.
///
/// # Safety
/// `out` is null or valid for writes, with no other access during `'a`.
pub(crate) unsafe fn output<'a, T>(name: &str, out: *mut T) -> Outcome<&'a mut MaybeUninit<T>> {
    if out.is_null() || !out.is_aligned() {
        return Err(PendingError::new(
            SISKIN_ERROR_NULL,
            name,
            format!("expected the address of a variable, got {out:p}"),
        ));
    }
    // SAFETY: `out` is neither null nor misaligned, hence writable and unaliased during `'a` (see `# Safety`).
    Ok(unsafe { &mut *out.cast() })
}

/// An output struct that carries its own size: fields beyond the size that the caller set are not written.
pub(crate) struct SizedOutput<T> {
    out: *mut T,
    size: usize,
}

impl<T: Copy> SizedOutput<T> {
    /// Reads and checks the first field of the struct.
    ///
    /// # Safety
    /// `out` is null, or points to a struct whose first field, its size in bytes, is initialized and not accessed by
    /// others until this function returns.
    pub(crate) unsafe fn new(name: &str, out: *mut T) -> Outcome<Self> {
        // SAFETY: `out` is null, or its first field is an initialized `usize` without other access (see `# Safety`).
        let size = unsafe { output(name, out.cast::<usize>())?.assume_init() };
        if !(size_of::<usize>()..=MAX_STRUCT_BYTES).contains(&size) {
            let message = format!("set it to the size of the struct, not to {size}");
            return Err(PendingError::new(SISKIN_ERROR_STRUCT_SIZE, &format!("{name}.struct_size"), message));
        }
        Ok(Self { out, size })
    }

    /// Writes the fields that fit in the caller's struct, except the size.
    ///
    /// # Safety
    /// The struct is valid for writes of its size, with no other access meanwhile.
    pub(crate) unsafe fn write(self, value: &T) {
        let (first, end) = (size_of::<usize>(), size_of::<T>().min(self.size));
        let from = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: `new` checked that `size` covers the first field, so `first <= end`; `end` bytes of `self.out` are
        // writable (see `# Safety`), `end` bytes of `value` are readable, and only Rust refers to `value`.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(first), self.out.cast::<u8>().add(first), end - first)
        };
    }
}

/// Converts a double to an integer.
pub(crate) fn integer(name: &str, value: f64) -> Outcome<usize> {
    if (0.0..=MAX_EXACT_INTEGER).contains(&value) && value.fract() == 0.0 {
        return Ok(value as usize);
    }
    Err(PendingError::argument(name, format!("expected an integer from 0, got {value}")))
}

/// Converts a double to a float; NaN is rejected.
pub(crate) fn number(name: &str, value: f64) -> Outcome<f32> {
    if value.is_nan() { Err(PendingError::argument(name, "NaN")) } else { Ok(value as f32) }
}

/// Converts a double, 0 or 1, to a boolean.
pub(crate) fn boolean(name: &str, value: f64) -> Outcome<bool> {
    match value {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => Err(PendingError::argument(name, format!("expected 0 or 1, got {value}"))),
    }
}

/// Returns a limit in bytes, of which 0 means none.
pub(crate) fn byte_limit(bytes: u64) -> Option<usize> {
    (bytes > 0).then(|| usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Example {
        struct_size: usize,
        a: u32,
        b: u32,
    }

    #[test]
    fn fields_beyond_the_size_of_the_caller_are_not_written() {
        let value = Example { struct_size: 0, a: 1, b: 2 };
        for (size, expected) in [(size_of::<Example>(), (1, 2)), (12, (1, 9)), (8, (9, 9)), (4096, (1, 2))] {
            let mut out = Example { struct_size: size, a: 9, b: 9 };
            // SAFETY: no more is written than the size of `value`.
            unsafe { SizedOutput::new("out", &raw mut out).ok().unwrap().write(&value) };
            assert_eq!((out.struct_size, (out.a, out.b)), (size, expected));
        }
        for size in [0, 7, usize::MAX] {
            let mut out = Example { struct_size: size, a: 9, b: 9 };
            // SAFETY: the struct is valid.
            assert!(unsafe { SizedOutput::new("out", &raw mut out) }.is_err());
        }
    }

    #[test]
    fn a_text_may_end_at_a_zero_byte() {
        let code = |outcome: Outcome<&str>| crate::error::into_object(outcome.err().unwrap());
        // SAFETY: the bytes are valid up to a zero byte.
        unsafe {
            assert_eq!(text("t", c"a\u{e9}".as_ptr(), NUL_TERMINATED).ok(), Some("a\u{e9}"));
            assert_eq!(text("t", c"ab".as_ptr(), NUL_TERMINATED).ok(), Some("ab"));
            assert_eq!(text_or_none("t", c"".as_ptr(), NUL_TERMINATED).ok(), Some(None));
            for (start, expected) in
                [(std::ptr::null(), SISKIN_ERROR_NULL), (c"\xff".as_ptr(), SISKIN_ERROR_UTF8)]
            {
                let error = code(text("t", start, NUL_TERMINATED));
                assert_eq!(crate::error::siskin_error_code(error), expected);
                crate::error::siskin_error_free(error);
            }
            // Only texts may end at a zero byte.
            assert!(values("v", c"a".as_ptr(), NUL_TERMINATED).is_err());
        }
    }

    #[test]
    fn texts_are_checked() {
        // SAFETY: the bytes are valid.
        unsafe {
            assert_eq!(text("t", std::ptr::null(), 0).ok(), Some(""));
            assert!(text("t", std::ptr::null(), 1).is_err());
            assert!(text("t", b"\xff".as_ptr().cast(), 1).is_err());
            assert!(text("t", c"a".as_ptr(), usize::MAX - 1).is_err());
        }
    }
}
