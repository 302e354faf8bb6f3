//! Cancellation from any thread.

use std::sync::atomic::{AtomicBool, Ordering};

use siskin::CancelHandle;
use siskin::serving::RequestCanceler;

use crate::error::{Outcome, PendingError, SISKIN_ERROR_PAUSED, siskin_error};
use crate::guard::{self, Handle};

/// Cancels calls on a session, encoder, seq2seq generator or transcriber, or a generation. It may outlive its target. Freed
/// with `siskin_cancel_handle_free`.
pub struct siskin_cancel_handle {
    _opaque: [u8; 0],
}

impl Handle for siskin_cancel_handle {
    type Inner = ();
    type Control = Canceler;
    const MAGIC: [u8; 8] = *b"SISKcanc";
    const NAME: &'static str = "cancel_handle";
}

/// What a cancel handle cancels.
pub(crate) enum Canceler {
    /// Calls on an object.
    Calls(CancelHandle),
    /// A request of an engine.
    Request(RequestCanceler),
}

impl Canceler {
    /// Creates a cancel handle for `handle`.
    ///
    /// # Safety
    /// The pointer contract of the crate.
    pub(crate) unsafe fn of<T: Handle>(
        handle: *const T,
        out: *mut *mut siskin_cancel_handle,
        canceler: impl FnOnce(&T::Control) -> Self,
    ) -> *mut siskin_error {
        let mut cancel = None;
        // SAFETY: pointer contract: `handle` is null or live.
        let error = unsafe {
            guard::control(handle, |control| {
                cancel = Some(canceler(control));
                Ok(())
            })
        };
        match cancel {
            // SAFETY: pointer contract: `out` is null or writable.
            Some(cancel) => unsafe { guard::create(out, || Ok(((), cancel))) },
            None => error,
        }
    }
}

/// The operations on a running object that any thread may do.
pub(crate) struct RunControl {
    cancel: CancelHandle,
    paused: AtomicBool,
}

impl RunControl {
    pub(crate) fn new(cancel: CancelHandle) -> Self {
        Self { cancel, paused: AtomicBool::new(false) }
    }

    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
        self.cancel.cancel();
    }

    pub(crate) fn resume(&self) {
        // A cancellation that does not come from a pause stays in effect.
        if self.paused.swap(false, Ordering::SeqCst) {
            self.cancel.reset();
        }
    }

    /// Returns an error while the object is paused.
    pub(crate) fn check(&self) -> Outcome {
        match self.paused.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(PendingError::new(SISKIN_ERROR_PAUSED, "session", "paused; resume it first")),
        }
    }
}

/// Cancels the running call of the target, or its next one: the call returns `SISKIN_ERROR_CANCELED` within
/// milliseconds, and the target is restored to its state before the call. There is one exception: if a sliding window
/// has moved or a recurrent state has changed, a canceled prompt appended to existing tokens is left partially
/// processed; `siskin_session_stats` reports how many tokens the session holds afterward. For generic ONNX models,
/// which run on the tract engine, cancellation takes effect only between texts. Does nothing once the target is freed.
///
/// If the target is a generation, its request ends for good, as described for `siskin_generation_cancel`.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_cancel_handle_cancel(
    cancel_handle: *const siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `cancel_handle` is null or live.
    unsafe {
        guard::control(cancel_handle, |handle| {
            match handle {
                Canceler::Calls(cancel) => cancel.cancel(),
                // A copy: the host may free the handle as soon as it sees the cancellation.
                Canceler::Request(request) => request.clone().cancel(),
            }
            Ok(())
        })
    }
}

/// Clears a pending cancellation. A canceled generation stays canceled.
///
/// Threads: any, at any time.
///
/// # Safety
/// The pointer contract of the crate.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_cancel_handle_reset(
    cancel_handle: *const siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `cancel_handle` is null or live.
    unsafe {
        guard::control(cancel_handle, |handle| {
            match handle {
                Canceler::Calls(cancel) => cancel.reset(),
                Canceler::Request(_) => {}
            }
            Ok(())
        })
    }
}

/// Frees a cancel handle. Does not affect its target. Null is ignored.
///
/// # Safety
/// The pointer contract of the crate, and the handle is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siskin_cancel_handle_free(cancel_handle: *mut siskin_cancel_handle) {
    // SAFETY: pointer contract: `cancel_handle` is null or live, and not used afterwards.
    unsafe { guard::free(cancel_handle) }
}

/// Cancels the running call of `handle`, or its next one.
///
/// # Safety
/// The pointer contract of the crate.
pub(crate) unsafe fn cancel<T: Handle<Control = RunControl>>(handle: *const T) -> *mut siskin_error {
    // SAFETY: pointer contract: `handle` is null or live.
    unsafe {
        guard::control(handle, |control| {
            control.cancel.cancel();
            Ok(())
        })
    }
}

/// Creates a cancel handle for `handle`.
///
/// # Safety
/// The pointer contract of the crate.
pub(crate) unsafe fn cancel_handle_of<T: Handle<Control = RunControl>>(
    handle: *const T,
    out: *mut *mut siskin_cancel_handle,
) -> *mut siskin_error {
    // SAFETY: pointer contract: `handle` is null or live; `out` is null or writable.
    unsafe { Canceler::of(handle, out, |control| Canceler::Calls(control.cancel.clone())) }
}
