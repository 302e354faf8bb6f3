//! Log messages of the library: notes on models, and progress while a model is opened.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::callback::{Foreign, siskin_release};
use crate::error::siskin_error;
use crate::guard::{calling_back, guarded};

/// Progress.
#[cfg_attr(not(feature = "import"), expect(dead_code, reason = "only packing takes long enough to tell of"))]
pub const SISKIN_LOG_INFO: i32 = 1;
/// Something that could be better.
pub const SISKIN_LOG_WARNING: i32 = 2;

/// Receives a message: its level, and a text of `length` bytes that is valid during the call. Called from the threads
/// that call the library, possibly several at once. It must not call the library.
pub type siskin_log_function =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, text: *const c_char, length: usize)>;

struct Logger {
    function: unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize),
    foreign: Foreign,
}

static LOGGER: Mutex<Option<Arc<Logger>>> = Mutex::new(None);

/// Sends a message to the registered log function.
pub(crate) fn tell(level: i32, text: &str) {
    let logger = LOGGER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(logger) = logger {
        let call = || {
            // SAFETY: the host guarantees that the function may be called with its pointer until that is released.
            unsafe { (logger.function)(logger.foreign.user(), level, text.as_ptr().cast(), text.len()) }
        };
        calling_back(call);
    }
}

/// Sends the messages of the whole library to `function`, replacing the previous one; null disables logging. The
/// library prints nothing by itself. `release` is called with `user` when the function is no longer used.
///
/// Threads: any.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_log_set(
    function: siskin_log_function,
    user: *mut c_void,
    release: siskin_release,
) -> *mut siskin_error {
    // Constructed first, so that it is released if the call is rejected.
    // SAFETY: guaranteed by the caller.
    let foreign = unsafe { Foreign::new(user, release) };
    guarded(|| {
        let logger = function.map(|function| Arc::new(Logger { function, foreign }));
        let before = std::mem::replace(&mut *LOGGER.lock().unwrap_or_else(PoisonError::into_inner), logger);
        drop(before);
        Ok(())
    })
}
