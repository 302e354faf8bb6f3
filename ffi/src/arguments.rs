//! Pointers from outside as what they stand for.

use std::ffi::c_char;
use std::mem::MaybeUninit;

use crate::error::{Failure, Outcome, SISKIN_ERROR_NULL, SISKIN_ERROR_STRUCT_SIZE, SISKIN_ERROR_UTF8};

/// No struct of the header is larger, in any version.
const LARGEST_STRUCT: usize = 1 << 16;

/// Refuses a pointer that cannot be one to `count` values. Where there are none, it does not matter.
pub(crate) fn room<T>(name: &str, start: *const T, count: usize) -> Outcome {
    if count == 0 {
        return Ok(());
    }
    if start.is_null() || !start.is_aligned() {
        return Err(Failure::new(
            SISKIN_ERROR_NULL,
            name,
            format!("is {start:p}, and {count} values are to be there"),
        ));
    }
    if count.checked_mul(size_of::<T>().max(1)).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Failure::argument(name, format!("{count} values do not fit into memory")));
    }
    Ok(())
}

/// `count` values from `start` on. Where there are none, the pointer does not matter.
///
/// # Safety
/// The pointer is null or good for so many values, which nobody changes meanwhile.
pub(crate) unsafe fn values<'a, T>(name: &str, start: *const T, count: usize) -> Outcome<&'a [T]> {
    room(name, start, count)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's promise; address and size were checked.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// A text of `length` bytes. Where there are none, the pointer does not matter.
///
/// # Safety
/// As for [`values`].
pub(crate) unsafe fn text<'a>(name: &str, start: *const c_char, length: usize) -> Outcome<&'a str> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { values(name, start.cast::<u8>(), length) }?;
    std::str::from_utf8(bytes).map_err(|error| Failure::new(SISKIN_ERROR_UTF8, name, error.to_string()))
}

/// A text, or nothing where it is empty.
///
/// # Safety
/// As for [`values`].
pub(crate) unsafe fn text_or_none(
    name: &str,
    start: *const c_char,
    length: usize,
) -> Outcome<Option<String>> {
    // SAFETY: the caller's promise.
    let text = unsafe { text(name, start, length) }?;
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// The largest number up to which a double tells all whole ones apart.
const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Where an output goes.
///
/// # Safety
/// The pointer is null or may be written, by nobody else meanwhile.
pub(crate) unsafe fn place<'a, T>(name: &str, out: *mut T) -> Outcome<&'a mut MaybeUninit<T>> {
    if out.is_null() || !out.is_aligned() {
        return Err(Failure::new(
            SISKIN_ERROR_NULL,
            name,
            format!("is {out:p}; give the address of a variable"),
        ));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { &mut *out.cast() })
}

/// Where a struct goes that says its own size: bytes that the caller does not know of are not written.
pub(crate) struct Frame<T> {
    out: *mut T,
    size: usize,
}

impl<T: Copy> Frame<T> {
    /// Looks at the struct's first field.
    ///
    /// # Safety
    /// The pointer is null, or points to a struct whose first field is its size in bytes.
    pub(crate) unsafe fn new(name: &str, out: *mut T) -> Outcome<Self> {
        // SAFETY: the caller's promise.
        let size = unsafe { place(name, out.cast::<usize>())?.assume_init() };
        if !(size_of::<usize>()..=LARGEST_STRUCT).contains(&size) {
            let message = format!("is {size}; set it to the size of the struct");
            return Err(Failure::new(SISKIN_ERROR_STRUCT_SIZE, &format!("{name}.struct_size"), message));
        }
        Ok(Self { out, size })
    }

    /// Writes what the caller knows of, but for the size.
    ///
    /// # Safety
    /// So many bytes may be written there, by nobody else meanwhile.
    pub(crate) unsafe fn fill(self, value: &T) {
        let (head, known) = (size_of::<usize>(), size_of::<T>().min(self.size));
        let from = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: the caller's promise; both are at least as long as their first field.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(head), self.out.cast::<u8>().add(head), known - head)
        };
    }
}

/// A whole number that came as a double.
pub(crate) fn whole(name: &str, value: f64) -> Outcome<usize> {
    if (0.0..=MOST_WHOLE).contains(&value) && value.fract() == 0.0 {
        return Ok(value as usize);
    }
    Err(Failure::argument(name, format!("is {value}; give a whole number from 0")))
}

/// What a yes or no that came as a double means.
pub(crate) fn truth(name: &str, value: f64) -> Outcome<bool> {
    match value {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => Err(Failure::argument(name, format!("is {value}; give 0 or 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Two {
        struct_size: usize,
        a: u32,
        b: u32,
    }

    #[test]
    fn a_struct_is_filled_as_far_as_both_know_it() {
        let known = Two { struct_size: 0, a: 1, b: 2 };
        for (size, wanted) in [(size_of::<Two>(), (1, 2)), (12, (1, 9)), (8, (9, 9)), (4096, (1, 2))] {
            let mut out = Two { struct_size: size, a: 9, b: 9 };
            // SAFETY: no more is written than `known` has.
            unsafe { Frame::new("out", &raw mut out).ok().unwrap().fill(&known) };
            assert_eq!((out.struct_size, (out.a, out.b)), (size, wanted));
        }
        for size in [0, 7, usize::MAX] {
            let mut out = Two { struct_size: size, a: 9, b: 9 };
            // SAFETY: the struct is there.
            assert!(unsafe { Frame::new("out", &raw mut out) }.is_err());
        }
    }

    #[test]
    fn texts_are_checked() {
        // SAFETY: the bytes are there.
        unsafe {
            assert_eq!(text("t", std::ptr::null(), 0).ok(), Some(""));
            assert!(text("t", std::ptr::null(), 1).is_err());
            assert!(text("t", b"\xff".as_ptr().cast(), 1).is_err());
            assert!(text("t", c"a".as_ptr(), usize::MAX).is_err());
        }
    }
}
