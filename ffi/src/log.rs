//! What the library has to tell: notes on models, and what is being done while one is opened.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::callback::{Foreign, siskin_release};
use crate::error::siskin_error;
use crate::guard::{calling_back, guarded};

/// What is being done.
#[cfg_attr(not(feature = "import"), expect(dead_code, reason = "only packing takes long enough to tell of"))]
pub const SISKIN_LOG_INFO: i32 = 1;
/// What could be better.
pub const SISKIN_LOG_WARNING: i32 = 2;

/// Is told a message: its level, and a text of `length` bytes that ends when the call does. Calls come from the thread
/// that called the library, perhaps from several at once. It may not call the library.
pub type siskin_log_function =
    Option<unsafe extern "C" fn(user: *mut c_void, level: i32, text: *const c_char, length: usize)>;

struct Logger {
    function: unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize),
    foreign: Foreign,
}

static LOGGER: Mutex<Option<Arc<Logger>>> = Mutex::new(None);

/// Tells whoever listens.
pub(crate) fn tell(level: i32, text: &str) {
    let logger = LOGGER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(logger) = logger {
        let call = || {
            // SAFETY: the host promised that the function may be called with its pointer until that is let go of.
            unsafe { (logger.function)(logger.foreign.user(), level, text.as_ptr().cast(), text.len()) }
        };
        calling_back(call);
    }
}

/// Sends messages of the whole library to `function`, in place of who got them before; null: to nobody. The library
/// prints nothing by itself. `release` is called with `user` when nobody is sent to there any more.
///
/// Threads: any.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_log_set(
    function: siskin_log_function,
    user: *mut c_void,
    release: siskin_release,
) -> *mut siskin_error {
    // Made first, so that it is let go of where the call is refused.
    // SAFETY: the caller's promise.
    let foreign = unsafe { Foreign::new(user, release) };
    guarded(|| {
        let logger = function.map(|function| Arc::new(Logger { function, foreign }));
        let before = std::mem::replace(&mut *LOGGER.lock().unwrap_or_else(PoisonError::into_inner), logger);
        drop(before);
        Ok(())
    })
}
