//! For tests of what stands on the header: functions that panic, fail and wait. No library that is shipped has them.

use std::time::{Duration, Instant};

use crate::error::{Failure, siskin_error};
use crate::guard;
use crate::session::siskin_session;

/// Panics inside a session, which is of no use afterwards.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_testing_panic(session: *mut siskin_session) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe { guard::alone(session, |_, _| panic!("as asked for")) }
}

/// Fails with any code; 0 does not fail.
#[must_use]
#[unsafe(no_mangle)]
pub extern "C" fn siskin_testing_error(code: i32) -> *mut siskin_error {
    guard::guarded(|| match code {
        0 => Ok(()),
        code => Err(Failure::new(code, "testing", "as asked for")),
    })
}

/// Keeps a session busy for so long.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_testing_hold(
    session: *mut siskin_session,
    milliseconds: u32,
) -> *mut siskin_error {
    let until = Instant::now() + Duration::from_millis(u64::from(milliseconds));
    // SAFETY: the caller's promise.
    unsafe {
        guard::alone(session, |_, _| {
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    }
}
