//! Checkpoints that are written in the background.

use std::thread::{self, JoinHandle};

use siskin_format::{Error, ErrorKind, Result};

use super::RunCallbacks;
use crate::checkpoint::{Checkpoint, CheckpointFolder};
use crate::profile::{ProfiledThread, Recorder, timed};

/// The checkpoint that is being written, if any.
#[derive(Default)]
pub(super) struct CheckpointWriter {
    thread: Option<JoinHandle<Result<()>>>,
    /// The error of the one before.
    failed: Option<Error>,
    recorder: Option<Recorder>,
}

impl CheckpointWriter {
    /// Like [`Self::default`], and records the duration of each write.
    pub(super) fn recorded(recorder: Option<Recorder>) -> Self {
        Self { thread: None, failed: None, recorder }
    }

    /// Starts a write, after waiting for the one before.
    pub(super) fn start(
        &mut self,
        folder: CheckpointFolder,
        step: u64,
        best: bool,
        checkpoint: Checkpoint,
    ) -> Result<()> {
        let failed = self.finish().err();
        self.failed = failed.or(self.failed.take());
        let recorder = self.recorder.clone();
        let write = move || folder.save(step, best, &checkpoint);
        let work = move || timed(recorder.as_ref(), "checkpoint", ProfiledThread::Checkpoints, write);
        let thread = thread::Builder::new().name("siskin-checkpoint".to_owned()).spawn(work);
        self.thread = Some(thread.map_err(|error| Error::io("thread", &error))?);
        Ok(())
    }

    /// Reports the error of a failed write once. The disk may have space again when the next is due.
    pub(super) fn report_failure(&mut self, callbacks: &mut dyn RunCallbacks) {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            let failed = self.finish().err();
            self.failed = failed.or(self.failed.take());
        }
        if let Some(error) = self.failed.take() {
            callbacks.warning(&format!(
                "a checkpoint could not be written: {error}; earlier checkpoints are kept"
            ));
        }
    }

    /// Waits until it is written.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = Error::new(ErrorKind::State, "checkpoint", "the thread that writes it panicked");
        thread.join().unwrap_or(Err(panicked))
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        // A failed run has reported its error; its last checkpoint is still completed.
        let _ = self.finish();
    }
}
