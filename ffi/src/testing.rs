//! Functions that panic, fail and block, for tests of bindings. Released libraries do not contain them.

use std::time::{Duration, Instant};

use crate::error::{PendingError, siskin_error, siskin_error_kind};
use crate::guard;
use crate::session::siskin_session;

/// Panics inside a session, which is poisoned afterwards.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_testing_panic(session: *mut siskin_session) -> *mut siskin_error {
    // SAFETY: pointer contract: `session` is null or live.
    unsafe { guard::exclusive(session, |_, _| panic!("requested by the test")) }
}

/// Fails with the given code; 0 does not fail.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn siskin_testing_error(code: siskin_error_kind) -> *mut siskin_error {
    guard::guarded(|| match code {
        0 => Ok(()),
        code => Err(PendingError::new(code, "testing", "requested by the test")),
    })
}

/// Keeps a session busy for the given time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_testing_hold(
    session: *mut siskin_session,
    milliseconds: u32,
) -> *mut siskin_error {
    let until = Instant::now() + Duration::from_millis(u64::from(milliseconds));
    // SAFETY: pointer contract: `session` is null or live.
    unsafe {
        guard::exclusive(session, |_, _| {
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    }
}
