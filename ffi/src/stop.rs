//! Stopping work from any thread.

use std::sync::atomic::{AtomicBool, Ordering};

use siskin::StopHandle;

use crate::error::{Failure, Outcome, SISKIN_ERROR_SUSPENDED, siskin_error};
use crate::guard::{self, Handle};

/// Stops the work of a session, encoder, writer or transcriber, from any thread and at any time, also after that was
/// freed. Whoever gets one frees it with `siskin_stop_free`.
pub struct siskin_stop {
    _opaque: [u8; 0],
}

impl Handle for siskin_stop {
    type Inner = ();
    type Remote = StopHandle;
    const MAGIC: [u8; 8] = *b"SISKstop";
    const NAME: &'static str = "stop";
}

/// What may be done to something that works, from any thread.
pub(crate) struct Remote {
    pub stop: StopHandle,
    suspended: AtomicBool,
}

impl Remote {
    pub(crate) fn new(stop: StopHandle) -> Self {
        Self { stop, suspended: AtomicBool::new(false) }
    }

    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::SeqCst);
        self.stop.stop();
    }

    pub(crate) fn resume(&self) {
        // A stop that was not suspension's stays.
        if self.suspended.swap(false, Ordering::SeqCst) {
            self.stop.withdraw();
        }
    }

    /// Refuses work while it is suspended.
    pub(crate) fn check(&self) -> Outcome {
        match self.suspended.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Failure::new(SISKIN_ERROR_SUSPENDED, "session", "is suspended; resume it first")),
        }
    }
}

/// Stops the running call, or the next one: it ends within milliseconds with `SISKIN_ERROR_CANCELLED`, and what it
/// worked on is as it was before.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_now(stop: *const siskin_stop) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::remote(stop, |stop| {
            stop.stop();
            Ok(())
        })
    }
}

/// Takes back a stop that no call has followed yet.
///
/// Threads: any, at any time.
///
/// # Safety
/// Pointers are good.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_withdraw(stop: *const siskin_stop) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::remote(stop, |stop| {
            stop.withdraw();
            Ok(())
        })
    }
}

/// Frees the means to stop; what it stops goes on. Null is nothing.
///
/// # Safety
/// Pointers are good, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_stop_free(stop: *mut siskin_stop) {
    // SAFETY: the caller's promise.
    unsafe { guard::free(stop) }
}

/// Stops what `handle` does.
///
/// # Safety
/// As for every function of the header.
pub(crate) unsafe fn stop_now<T: Handle<Remote = Remote>>(handle: *const T) -> *mut siskin_error {
    // SAFETY: the caller's promise.
    unsafe {
        guard::remote(handle, |remote| {
            remote.stop.stop();
            Ok(())
        })
    }
}

/// Makes the means to stop what `handle` does.
///
/// # Safety
/// As for every function of the header.
pub(crate) unsafe fn stop_of<T: Handle<Remote = Remote>>(
    handle: *const T,
    out: *mut *mut siskin_stop,
) -> *mut siskin_error {
    let mut stop = None;
    // SAFETY: the caller's promise.
    let error = unsafe {
        guard::remote(handle, |remote| {
            stop = Some(remote.stop.clone());
            Ok(())
        })
    };
    match stop {
        // SAFETY: the caller's promise.
        Some(stop) => unsafe { guard::made(out, || Ok(((), stop))) },
        None => error,
    }
}
