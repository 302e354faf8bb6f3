//! Errors as objects: a stable number, a message and a location.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_char;

use siskin::ErrorKind;

/// A file or folder could not be read or written.
pub const SISKIN_ERROR_IO: i32 = 100;
/// The data is not in the format that it claims to be in.
pub const SISKIN_ERROR_CORRUPT: i32 = 101;
/// The format or the request is valid, but unsupported by this version or this model.
pub const SISKIN_ERROR_UNSUPPORTED: i32 = 102;
/// The file's major version is unknown.
pub const SISKIN_ERROR_VERSION: i32 = 103;
/// The file lacks something that the model needs.
pub const SISKIN_ERROR_MISSING: i32 = 104;
/// A tensor has a shape or type that the architecture does not allow.
pub const SISKIN_ERROR_SHAPE: i32 = 105;
/// A hash mismatch: the file was modified or damaged.
pub const SISKIN_ERROR_INTEGRITY: i32 = 106;
/// A value is out of range or contradicts another.
pub const SISKIN_ERROR_ARGUMENT: i32 = 200;
/// The text or tokens are longer than the context.
pub const SISKIN_ERROR_TOO_LONG: i32 = 201;
/// The chat template failed or rejected the messages.
pub const SISKIN_ERROR_TEMPLATE: i32 = 202;
/// A pointer is null or misaligned.
pub const SISKIN_ERROR_NULL: i32 = 210;
/// A handle is of another type.
pub const SISKIN_ERROR_HANDLE: i32 = 211;
/// A text is not UTF-8.
pub const SISKIN_ERROR_UTF8: i32 = 212;
/// A struct's `struct_size` was not set to its size.
pub const SISKIN_ERROR_STRUCT_SIZE: i32 = 213;
/// The handle is in a state that does not allow the call.
pub const SISKIN_ERROR_STATE: i32 = 300;
/// The call was cancelled. It can be made again.
pub const SISKIN_ERROR_CANCELLED: i32 = 301;
/// The model produced NaN or infinity.
pub const SISKIN_ERROR_NUMERIC: i32 = 302;
/// Another call is using the handle, or the call came from a callback.
pub const SISKIN_ERROR_BUSY: i32 = 310;
/// An earlier call panicked inside the handle: free it.
pub const SISKIN_ERROR_POISONED: i32 = 311;
/// The session is suspended: resume it first.
pub const SISKIN_ERROR_SUSPENDED: i32 = 312;
/// A memory limit does not allow the request.
pub const SISKIN_ERROR_MEMORY: i32 = 400;
/// There was not enough memory to allocate an error.
pub const SISKIN_ERROR_OUT_OF_MEMORY: i32 = 401;
/// An internal error of the library: please report it.
pub const SISKIN_ERROR_PANIC: i32 = 999;

/// An error. Freed by its receiver with `siskin_error_free`. Any threads may read it at the same time.
pub struct siskin_error {
    _opaque: [u8; 0],
}

/// The contents of a [`siskin_error`]. As with handles, its first field is a magic word.
#[repr(C)]
struct ErrorObject {
    magic: [u8; 8],
    code: i32,
    /// Both are NUL-terminated.
    message: Cow<'static, [u8]>,
    place: Cow<'static, [u8]>,
}

const MAGIC: [u8; 8] = *b"SISKerro";

static OUT_OF_MEMORY: ErrorObject = ErrorObject {
    magic: MAGIC,
    code: SISKIN_ERROR_OUT_OF_MEMORY,
    message: Cow::Borrowed(b"there is no memory left, not even for an error\0"),
    place: Cow::Borrowed(b"\0"),
};

/// An error before it becomes an object.
pub(crate) struct PendingError {
    code: i32,
    place: String,
    message: String,
}

/// The result of a function of the interface.
pub(crate) type Outcome<T = ()> = Result<T, PendingError>;

impl PendingError {
    pub(crate) fn new(code: i32, place: &str, message: impl Into<String>) -> Self {
        Self { code, place: place.to_owned(), message: message.into() }
    }

    pub(crate) fn argument(place: &str, message: impl Into<String>) -> Self {
        Self::new(SISKIN_ERROR_ARGUMENT, place, message)
    }
}

/// Every error kind of the runtime, and its constant.
const KINDS: [(ErrorKind, i32); 14] = [
    (ErrorKind::Io, SISKIN_ERROR_IO),
    (ErrorKind::Corrupt, SISKIN_ERROR_CORRUPT),
    (ErrorKind::Unsupported, SISKIN_ERROR_UNSUPPORTED),
    (ErrorKind::Version, SISKIN_ERROR_VERSION),
    (ErrorKind::Missing, SISKIN_ERROR_MISSING),
    (ErrorKind::Shape, SISKIN_ERROR_SHAPE),
    (ErrorKind::Integrity, SISKIN_ERROR_INTEGRITY),
    (ErrorKind::Argument, SISKIN_ERROR_ARGUMENT),
    (ErrorKind::TooLong, SISKIN_ERROR_TOO_LONG),
    (ErrorKind::Template, SISKIN_ERROR_TEMPLATE),
    (ErrorKind::State, SISKIN_ERROR_STATE),
    (ErrorKind::Cancelled, SISKIN_ERROR_CANCELLED),
    (ErrorKind::Numeric, SISKIN_ERROR_NUMERIC),
    (ErrorKind::Memory, SISKIN_ERROR_MEMORY),
];

impl From<siskin::Error> for PendingError {
    fn from(error: siskin::Error) -> Self {
        let known = KINDS.iter().find(|(kind, _)| *kind == error.kind());
        let code = known.map_or(i32::from(error.kind().code()), |(_, code)| *code);
        Self::new(code, error.place(), error.message())
    }
}

/// Converts a panic payload to a failure.
pub(crate) fn thrown(payload: &(dyn Any + Send)) -> PendingError {
    let text = payload.downcast_ref::<&str>().copied();
    let text =
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it gave no reason");
    PendingError::new(SISKIN_ERROR_PANIC, "library", format!("failed inside, please report it: {text}"))
}

/// Returns the bytes of a text, NUL-terminated and without inner NULs.
fn ended(text: String) -> Cow<'static, [u8]> {
    let mut bytes = text.into_bytes();
    bytes.retain(|&byte| byte != 0);
    if bytes.try_reserve_exact(1).is_err() {
        return Cow::Borrowed(b"\0");
    }
    bytes.push(0);
    Cow::Owned(bytes)
}

/// Allocates the error object of a failure.
pub(crate) fn told(failure: PendingError) -> *mut siskin_error {
    let PendingError { code, place, message } = failure;
    let object = ErrorObject { magic: MAGIC, code, message: ended(message), place: ended(place) };
    // SAFETY: the size is not zero.
    let memory = unsafe { std::alloc::alloc(std::alloc::Layout::new::<ErrorObject>()) }.cast::<ErrorObject>();
    if memory.is_null() {
        return (&raw const OUT_OF_MEMORY).cast_mut().cast();
    }
    // SAFETY: the memory was allocated for this.
    unsafe { memory.write(object) };
    memory.cast()
}

/// Returns the contents of an error, or `None` for null and invalid pointers.
///
/// # Safety
/// The pointer is null, or an error of the library that was not freed.
unsafe fn behind<'a>(error: *const siskin_error) -> Option<&'a ErrorObject> {
    let told = error.cast::<ErrorObject>();
    if told.is_null() || !told.is_aligned() {
        return None;
    }
    // SAFETY: every object that the library hands out begins with a magic word; no other field is read before it
    // matches.
    let right = unsafe { (*told).magic } == MAGIC;
    // SAFETY: the magic word identifies an error, and the caller guarantees that it was not freed.
    right.then(|| unsafe { &*told })
}

/// Returns the stable number of an error, one of `SISKIN_ERROR_…`; 0 for null.
///
/// # Safety
/// Pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_code(error: *const siskin_error) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { behind(error) }.map_or(0, |told| told.code)
}

/// Returns what went wrong and what to do about it, NUL-terminated. The text lives as long as the error; it is empty
/// for null.
///
/// # Safety
/// Pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_message(error: *const siskin_error) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { behind(error) }.map_or(c"".as_ptr(), |told| told.message.as_ptr().cast())
}

/// Returns the location of the error, NUL-terminated: a file, section and field, or the name of an argument. The text
/// lives as long as the error; it is empty for null.
///
/// # Safety
/// Pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_place(error: *const siskin_error) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { behind(error) }.map_or(c"".as_ptr(), |told| told.place.as_ptr().cast())
}

/// Frees an error. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the error is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_free(error: *mut siskin_error) {
    let is_static = std::ptr::eq(error.cast_const().cast(), &raw const OUT_OF_MEMORY);
    // SAFETY: guaranteed by the caller.
    if is_static || unsafe { behind(error) }.is_none() {
        return;
    }
    let told = error.cast::<ErrorObject>();
    // SAFETY: `told` allocated it with this layout, and the caller returns ownership.
    unsafe {
        (*told).magic = [0; 8];
        drop(Box::from_raw(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_constant() {
        assert_eq!(KINDS.map(|(kind, _)| kind), ErrorKind::ALL);
        for (kind, code) in KINDS {
            assert_eq!(code, i32::from(kind.code()), "{kind:?}");
        }
    }

    #[test]
    fn errors_say_what_they_were_told() {
        let failure = PendingError::from(siskin::Error::new(ErrorKind::TooLong, "a\0b", "much too long"));
        let error = told(failure);
        // SAFETY: the error was just allocated, and is freed once.
        unsafe {
            assert_eq!(siskin_error_code(error), 201);
            assert_eq!(std::ffi::CStr::from_ptr(siskin_error_message(error)), c"much too long");
            assert_eq!(std::ffi::CStr::from_ptr(siskin_error_place(error)), c"ab");
            siskin_error_free(error);
            let memory = (&raw const OUT_OF_MEMORY).cast_mut().cast();
            assert_eq!(siskin_error_code(memory), SISKIN_ERROR_OUT_OF_MEMORY);
            siskin_error_free(memory);
            siskin_error_free(std::ptr::null_mut());
            assert_eq!(siskin_error_code(memory), SISKIN_ERROR_OUT_OF_MEMORY);
            assert_eq!(siskin_error_code(std::ptr::null()), 0);
        }
    }
}
