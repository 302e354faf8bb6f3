//! Ctrl-C and other termination signals cancel a running generation; otherwise they end the program.

use crate::output::exit_code;
use siskin::{CancelHandle, Error, ErrorKind, Result, Session};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The session that is generating.
static RUNNING: Mutex<Option<CancelHandle>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<CancelHandle>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the Ctrl-C handler. A second Ctrl-C during a generation ends the program.
pub(crate) fn listen() -> Result<()> {
    let heard = || match running().take() {
        Some(session) => session.cancel(),
        None => std::process::exit(i32::from(exit_code(ErrorKind::Canceled))),
    };
    on_interrupt(heard)
}

fn on_interrupt(heard: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(heard).map_err(|error| Error::new(ErrorKind::Io, "Ctrl-C", error.to_string()))
}

/// Makes Ctrl-C, a closed terminal and a system shutdown call `stop`; the second signal ends the program.
pub(crate) fn listen_with(stop: impl Fn() + Send + 'static) -> Result<()> {
    let mut is_second = false;
    let heard = move || {
        if std::mem::replace(&mut is_second, true) {
            std::process::exit(i32::from(exit_code(ErrorKind::Canceled)));
        }
        stop();
    };
    on_interrupt(heard)
}

/// Makes Ctrl-C, a closed terminal and a system shutdown set `stop`; the second signal ends the program.
pub(crate) fn listen_for(stop: &'static AtomicBool) -> Result<()> {
    listen_with(|| stop.store(true, Ordering::Relaxed))
}

/// While this guard lives, Ctrl-C cancels its session.
pub(crate) struct Stoppable(CancelHandle);

impl Stoppable {
    pub(crate) fn new(session: &Session) -> Self {
        let handle = session.cancel_handle();
        *running() = Some(handle.clone());
        Self(handle)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        running().take();
        // Drop a cancellation that arrived after the last step, so that it does not cancel the next prompt.
        self.0.reset();
    }
}
