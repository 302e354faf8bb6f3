//! Log messages: warnings about models, and progress of packing.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::callback::{HostPointer, siskin_release_function};
use crate::error::siskin_error;
use crate::guard::{guarded, in_callback};

/// The severity of a log message.
pub type siskin_log_level = u32;
/// Progress.
#[cfg_attr(not(feature = "import"), expect(dead_code, reason = "only packing reports progress"))]
pub const SISKIN_LOG_INFO: siskin_log_level = 1;
/// A condition that makes the library slower or less accurate than it could be.
pub const SISKIN_LOG_WARNING: siskin_log_level = 2;

/// Receives a log message. The text has `length` bytes and is valid during the call. Several threads may call it at the
/// same time. It must not call the library.
pub type siskin_log_function = Option<
    unsafe extern "C" fn(user: *mut c_void, level: siskin_log_level, text: *const c_char, length: usize),
>;

struct Logger {
    function: unsafe extern "C" fn(*mut c_void, siskin_log_level, *const c_char, usize),
    host: HostPointer,
}

static LOGGER: Mutex<Option<Arc<Logger>>> = Mutex::new(None);

/// Sends a message to the registered log function.
pub(crate) fn log(level: siskin_log_level, text: &str) {
    let logger = LOGGER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(logger) = logger {
        let call = || {
            // SAFETY: pointer contract: `function` may be called with `user` until `release` is, by dropping `host`.
            unsafe { (logger.function)(logger.host.user(), level, text.as_ptr().cast(), text.len()) }
        };
        in_callback(call);
    }
}

/// Sets the function that receives the library's log messages, replacing the previous one; null disables logging. The
/// library itself prints nothing. `release` is called with `user` when the function is no longer used.
///
/// Threads: any.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_log_set(
    function: siskin_log_function,
    user: *mut c_void,
    release: siskin_release_function,
) -> *mut siskin_error {
    // Constructed first, so that it is released if the call fails.
    // SAFETY: pointer contract: `release` is null, or may be called once with `user`, from any thread.
    let host = unsafe { HostPointer::new(user, release) };
    guarded(|| {
        let logger = function.map(|function| Arc::new(Logger { function, host }));
        let previous = std::mem::replace(&mut *LOGGER.lock().unwrap_or_else(PoisonError::into_inner), logger);
        drop(previous);
        Ok(())
    })
}
