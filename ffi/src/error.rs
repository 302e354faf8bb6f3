//! Error objects: a stable code, a message and a location.

use std::any::Any;
use std::borrow::Cow;
use std::ffi::c_char;

use siskin::ErrorKind;

/// What kind of error occurred. Codes are stable: 100 to 199 loading, 200 to 299 arguments, 300 to 399 state, 400 to
/// 499 memory.
pub type siskin_error_kind = u32;
/// A file or folder could not be read or written.
pub const SISKIN_ERROR_IO: siskin_error_kind = 100;
/// The data is malformed.
pub const SISKIN_ERROR_CORRUPT: siskin_error_kind = 101;
/// The format or the request is valid, but this version or this model does not support it.
pub const SISKIN_ERROR_UNSUPPORTED: siskin_error_kind = 102;
/// The major version of the file is unknown.
pub const SISKIN_ERROR_VERSION: siskin_error_kind = 103;
/// A file does not exist, or lacks something that the model needs.
pub const SISKIN_ERROR_MISSING: siskin_error_kind = 104;
/// A tensor has a shape or type that the architecture does not allow.
pub const SISKIN_ERROR_SHAPE: siskin_error_kind = 105;
/// A hash does not match: the file was modified or damaged.
pub const SISKIN_ERROR_INTEGRITY: siskin_error_kind = 106;
/// A value is out of range or contradicts another.
pub const SISKIN_ERROR_ARGUMENT: siskin_error_kind = 200;
/// The text or tokens are longer than the context.
pub const SISKIN_ERROR_TOO_LONG: siskin_error_kind = 201;
/// The chat template failed or rejected the messages.
pub const SISKIN_ERROR_TEMPLATE: siskin_error_kind = 202;
/// A pointer is null or misaligned.
pub const SISKIN_ERROR_NULL: siskin_error_kind = 210;
/// A handle has the wrong type.
pub const SISKIN_ERROR_HANDLE: siskin_error_kind = 211;
/// A string is not UTF-8.
pub const SISKIN_ERROR_UTF8: siskin_error_kind = 212;
/// A struct's `struct_size` was not set to its size.
pub const SISKIN_ERROR_STRUCT_SIZE: siskin_error_kind = 213;
/// The state of the handle does not allow the call.
pub const SISKIN_ERROR_STATE: siskin_error_kind = 300;
/// The call was canceled, and can be retried. The error is static: it need not be freed.
pub const SISKIN_ERROR_CANCELED: siskin_error_kind = 301;
/// The model produced NaN or infinity.
pub const SISKIN_ERROR_NUMERIC: siskin_error_kind = 302;
/// Another call is using the handle, or the call came from a callback. The error is static: it need not be freed.
pub const SISKIN_ERROR_BUSY: siskin_error_kind = 310;
/// An earlier call on the handle panicked: it can only be freed.
pub const SISKIN_ERROR_POISONED: siskin_error_kind = 311;
/// The session is paused: resume it first.
pub const SISKIN_ERROR_PAUSED: siskin_error_kind = 312;
/// The request exceeds a memory limit.
pub const SISKIN_ERROR_MEMORY: siskin_error_kind = 400;
/// Out of memory: even the error could not be allocated. The error is static: it need not be freed.
pub const SISKIN_ERROR_OUT_OF_MEMORY: siskin_error_kind = 401;
/// Too many requests are waiting; the call can be retried later.
pub const SISKIN_ERROR_OVERLOADED: siskin_error_kind = 402;
/// Internal error: please report it.
pub const SISKIN_ERROR_PANIC: siskin_error_kind = 999;

/// An error. The caller frees it with `siskin_error_free`. Any number of threads may read it concurrently.
pub struct siskin_error {
    _opaque: [u8; 0],
}

/// The contents of a [`siskin_error`]. Like a handle, it begins with a magic number.
#[repr(C)]
struct ErrorObject {
    magic: [u8; 8],
    code: siskin_error_kind,
    /// NUL-terminated, as is `location`.
    message: Cow<'static, [u8]>,
    location: Cow<'static, [u8]>,
}

const MAGIC: [u8; 8] = *b"SISKerro";

/// Errors that need no allocation: those that are control flow, and the one for a failed allocation.
static STATIC_ERRORS: [ErrorObject; 3] = [
    static_error(SISKIN_ERROR_OUT_OF_MEMORY, b"out of memory: the error itself could not be allocated\0"),
    static_error(SISKIN_ERROR_CANCELED, b"the call was canceled; it can be retried\0"),
    static_error(
        SISKIN_ERROR_BUSY,
        b"another call is using the handle, or a callback called the library; wait for that call, or cancel it\0",
    ),
];

const fn static_error(code: siskin_error_kind, message: &'static [u8]) -> ErrorObject {
    ErrorObject { magic: MAGIC, code, message: Cow::Borrowed(message), location: Cow::Borrowed(b"\0") }
}

/// Returns the static error with this code.
fn static_object(code: siskin_error_kind) -> Option<*mut siskin_error> {
    let object = STATIC_ERRORS.iter().find(|object| object.code == code)?;
    Some(std::ptr::from_ref(object).cast_mut().cast())
}

/// An error that has not become an object yet.
pub(crate) struct PendingError {
    code: siskin_error_kind,
    location: String,
    message: String,
}

/// The result of the work of an exported function.
pub(crate) type Outcome<T = ()> = Result<T, PendingError>;

impl PendingError {
    pub(crate) fn new(code: siskin_error_kind, location: &str, message: impl Into<String>) -> Self {
        Self { code, location: location.to_owned(), message: message.into() }
    }

    /// Another call is using the handle. Does not allocate: the object of this error is static.
    pub(crate) const fn busy() -> Self {
        Self { code: SISKIN_ERROR_BUSY, location: String::new(), message: String::new() }
    }

    pub(crate) fn argument(location: &str, message: impl Into<String>) -> Self {
        Self::new(SISKIN_ERROR_ARGUMENT, location, message)
    }
}

/// Every error kind of the runtime, and its code.
const KINDS: [(ErrorKind, siskin_error_kind); 15] = [
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
    (ErrorKind::Canceled, SISKIN_ERROR_CANCELED),
    (ErrorKind::Numeric, SISKIN_ERROR_NUMERIC),
    (ErrorKind::Memory, SISKIN_ERROR_MEMORY),
    (ErrorKind::Overloaded, SISKIN_ERROR_OVERLOADED),
];

impl From<siskin::Error> for PendingError {
    fn from(error: siskin::Error) -> Self {
        if error.kind() == ErrorKind::Canceled {
            // The object of this error is static.
            return Self { code: SISKIN_ERROR_CANCELED, location: String::new(), message: String::new() };
        }
        let known = KINDS.iter().find(|(kind, _)| *kind == error.kind());
        let code = known.map_or(u32::from(error.kind().code()), |(_, code)| *code);
        Self::new(code, error.location(), error.message())
    }
}

/// Converts a panic payload to an error.
pub(crate) fn panic_error(payload: &(dyn Any + Send)) -> PendingError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    PendingError::new(SISKIN_ERROR_PANIC, "library", format!("internal error, please report it: {text}"))
}

/// Returns the bytes of a string without NULs, and NUL-terminated.
fn nul_terminated(text: String) -> Cow<'static, [u8]> {
    let mut bytes = text.into_bytes();
    bytes.retain(|&byte| byte != 0);
    if bytes.try_reserve_exact(1).is_err() {
        return Cow::Borrowed(b"\0");
    }
    bytes.push(0);
    Cow::Owned(bytes)
}

/// Converts an error to its object: a static one, or one on the heap.
pub(crate) fn into_object(error: PendingError) -> *mut siskin_error {
    let PendingError { code, location, message } = error;
    if let Some(object) = static_object(code) {
        return object;
    }
    let (message, location) = (nul_terminated(message), nul_terminated(location));
    // SAFETY: the size is not zero.
    let memory = unsafe { std::alloc::alloc(std::alloc::Layout::new::<ErrorObject>()) }.cast::<ErrorObject>();
    if memory.is_null() {
        return static_object(SISKIN_ERROR_OUT_OF_MEMORY).unwrap_or(std::ptr::null_mut());
    }
    // SAFETY: the memory was allocated for this.
    unsafe { memory.write(ErrorObject { magic: MAGIC, code, message, location }) };
    memory.cast()
}

/// Returns the contents of an error, or `None` for null and invalid pointers.
///
/// # Safety
/// `error` is null, or live during `'a` (see the pointer contract of the crate).
unsafe fn object_of<'a>(error: *const siskin_error) -> Option<&'a ErrorObject> {
    let object = error.cast::<ErrorObject>();
    if object.is_null() || !object.is_aligned() {
        return None;
    }
    // SAFETY: `error` is not null, hence live, and every live object begins with a magic number of eight bytes.
    let is_error = unsafe { (*object).magic } == MAGIC;
    // SAFETY: `error` is live during `'a` (see `# Safety`), and its magic number is that of `ErrorObject`.
    is_error.then(|| unsafe { &*object })
}

/// Returns the code of an error; 0 for null.
///
/// # Safety
/// The pointer contract of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_code(error: *const siskin_error) -> siskin_error_kind {
    // SAFETY: pointer contract: `error` is null or live.
    unsafe { object_of(error) }.map_or(0, |object| object.code)
}

/// Returns the error message, NUL-terminated: what is wrong and, where possible, what to do; empty for null. The string
/// is valid until the error is freed.
///
/// # Safety
/// The pointer contract of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_message(error: *const siskin_error) -> *const c_char {
    // SAFETY: pointer contract: `error` is null or live.
    unsafe { object_of(error) }.map_or(c"".as_ptr(), |object| object.message.as_ptr().cast())
}

/// Returns the location of the error, NUL-terminated: a file, section and field, or the name of an argument; may be
/// empty, and is empty for null. The string is valid until the error is freed.
///
/// # Safety
/// The pointer contract of the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_location(error: *const siskin_error) -> *const c_char {
    // SAFETY: pointer contract: `error` is null or live.
    unsafe { object_of(error) }.map_or(c"".as_ptr(), |object| object.location.as_ptr().cast())
}

/// Frees an error. Does nothing if it is null or static: the errors `SISKIN_ERROR_CANCELED`, `SISKIN_ERROR_BUSY` and
/// `SISKIN_ERROR_OUT_OF_MEMORY` are static.
///
/// # Safety
/// The pointer contract of the crate, and the error is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_error_free(error: *mut siskin_error) {
    let is_static = STATIC_ERRORS.as_ptr_range().contains(&error.cast_const().cast());
    // SAFETY: pointer contract: `error` is null or live.
    if is_static || unsafe { object_of(error) }.is_none() {
        return;
    }
    let object = error.cast::<ErrorObject>();
    // SAFETY: `error` is live but not static, so `into_object` allocated it with the layout of a box; pointer contract:
    // it is not used afterwards.
    unsafe {
        (*object).magic = [0; 8];
        drop(Box::from_raw(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::counting::measure;
    use siskin::Error;
    use std::ffi::CStr;

    #[test]
    fn every_error_kind_has_a_code() {
        assert_eq!(KINDS.map(|(kind, _)| kind), ErrorKind::ALL);
        for (kind, code) in KINDS {
            assert_eq!(code, u32::from(kind.code()), "{kind:?}");
        }
    }

    #[test]
    fn an_object_has_the_code_message_and_place_of_its_error() {
        let error = PendingError::from(Error::new(ErrorKind::TooLong, "a\0b", "much too long"));
        let error = into_object(error);
        // SAFETY: the error was just allocated, and is freed once.
        unsafe {
            assert_eq!(siskin_error_code(error), SISKIN_ERROR_TOO_LONG);
            assert_eq!(CStr::from_ptr(siskin_error_message(error)), c"much too long");
            assert_eq!(CStr::from_ptr(siskin_error_location(error)), c"ab");
            siskin_error_free(error);
            siskin_error_free(std::ptr::null_mut());
            assert_eq!(siskin_error_code(std::ptr::null()), 0);
        }
    }

    #[test]
    fn static_errors_are_not_allocated_and_survive_being_freed() {
        let canceled = || PendingError::from(Error::canceled("text"));
        let memory = || PendingError { code: SISKIN_ERROR_OUT_OF_MEMORY, ..PendingError::busy() };
        let rows: [(siskin_error_kind, &dyn Fn() -> PendingError); 3] = [
            (SISKIN_ERROR_CANCELED, &canceled),
            (SISKIN_ERROR_BUSY, &PendingError::busy),
            (SISKIN_ERROR_OUT_OF_MEMORY, &memory),
        ];
        for (code, pending) in rows {
            let (error, usage) = measure(|| into_object(pending()));
            assert_eq!(usage.count, 0, "{code}");
            for _ in 0..2 {
                // SAFETY: freeing a static error does nothing.
                unsafe {
                    siskin_error_free(error);
                    assert_eq!(siskin_error_code(error), code);
                    assert!(!CStr::from_ptr(siskin_error_message(error)).is_empty(), "{code}");
                }
            }
        }
        let (error, usage) = measure(|| into_object(PendingError::argument("a", "b")));
        assert!(usage.count > 0, "allocations are counted");
        // SAFETY: the error was just allocated, and is freed once.
        unsafe { siskin_error_free(error) };
    }
}
