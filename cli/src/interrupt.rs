//! Ctrl-C, and what else asks a program to end, ends what a model is saying, and at any other time the program.

use crate::output::exit_code;
use siskin::{Error, ErrorKind, Result, Session, StopHandle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The session that is generating.
static RUNNING: Mutex<Option<StopHandle>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<StopHandle>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens for Ctrl-C from here on. The second one in a generation ends the program.
pub(crate) fn listen() -> Result<()> {
    let heard = || match running().take() {
        Some(session) => session.stop(),
        None => std::process::exit(i32::from(exit_code(ErrorKind::Cancelled))),
    };
    on_interrupt(heard)
}

fn on_interrupt(heard: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(heard).map_err(|error| Error::new(ErrorKind::Io, "Ctrl-C", error.to_string()))
}

/// Ctrl-C, a terminal that closes and a system that shuts down set `stop` from here on; the second time ends the program.
pub(crate) fn listen_for(stop: &'static AtomicBool) -> Result<()> {
    let heard = move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(exit_code(ErrorKind::Cancelled)));
        }
    };
    on_interrupt(heard)
}

/// As long as this lives, Ctrl-C stops its session.
pub(crate) struct Stoppable(StopHandle);

impl Stoppable {
    pub(crate) fn new(session: &Session) -> Self {
        let handle = session.stop_handle();
        *running() = Some(handle.clone());
        Self(handle)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        running().take();
        // A stop that came after the last step is not meant for the next question.
        self.0.withdraw();
    }
}
