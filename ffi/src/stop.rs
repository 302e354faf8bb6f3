//! Cancellation from any thread.

use std::sync::atomic::{AtomicBool, Ordering};

use siskin::CancelHandle;

use crate::error::{Outcome, PendingError, SISKIN_ERROR_SUSPENDED, siskin_error};
use crate::guard::{self, Handle};

/// Stops the work of a session, encoder, writer or transcriber, from any thread and at any time, even after that was
/// freed. Freed by its receiver with `siskin_stop_free`.
pub struct siskin_stop {
    _opaque: [u8; 0],
}

impl Handle for siskin_stop {
    type Inner = ();
    type Remote = CancelHandle;
    const MAGIC: [u8; 8] = *b"SISKstop";
    const NAME: &'static str = "stop";
}

/// The operations on a running object that any thread may do.
pub(crate) struct Remote {
    pub stop: CancelHandle,
    suspended: AtomicBool,
}

impl Remote {
    pub(crate) fn new(stop: CancelHandle) -> Self {
        Self { stop, suspended: AtomicBool::new(false) }
    }

    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::SeqCst);
        self.stop.cancel();
    }

    pub(crate) fn resume(&self) {
        // A stop that did not come from suspension stays in effect.
        if self.suspended.swap(false, Ordering::SeqCst) {
            self.stop.reset();
        }
    }

    /// Rejects work while it is suspended.
    pub(crate) fn check(&self) -> Outcome {
        match self.suspended.load(Ordering::SeqCst) {
            false => Ok(()),
            true => {
                Err(PendingError::new(SISKIN_ERROR_SUSPENDED, "session", "is suspended; resume it first"))
            }
        }
    }
}

/// Stops the running call, or the next one: it ends within milliseconds with `SISKIN_ERROR_CANCELLED`, and leaves its
/// object in the state before the call.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_now(stop: *const siskin_stop) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::remote(stop, |stop| {
            stop.cancel();
            Ok(())
        })
    }
}

/// Clears a stop that has not affected a call yet.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are valid.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_withdraw(stop: *const siskin_stop) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::remote(stop, |stop| {
            stop.reset();
            Ok(())
        })
    }
}

/// Frees the stop handle; the object that it stops is unaffected. Null is ignored.
///
/// # Safety
/// Pointers are valid, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_free(stop: *mut siskin_stop) {
    // SAFETY: guaranteed by the caller.
    unsafe { guard::free(stop) }
}

/// Stops the running call of `handle`.
///
/// # Safety
/// As for every function of the header.
pub(crate) unsafe fn stop_now<T: Handle<Remote = Remote>>(handle: *const T) -> *mut siskin_error {
    // SAFETY: guaranteed by the caller.
    unsafe {
        guard::remote(handle, |remote| {
            remote.stop.cancel();
            Ok(())
        })
    }
}

/// Creates a stop handle for `handle`.
///
/// # Safety
/// As for every function of the header.
pub(crate) unsafe fn stop_of<T: Handle<Remote = Remote>>(
    handle: *const T,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    let mut stop = None;
    // SAFETY: guaranteed by the caller.
    let error = unsafe {
        guard::remote(handle, |remote| {
            stop = Some(remote.stop.clone());
            Ok(())
        })
    };
    match stop {
        // SAFETY: guaranteed by the caller.
        Some(stop) => unsafe { guard::made(out, || Ok(((), stop))) },
        None => error,
    }
}
