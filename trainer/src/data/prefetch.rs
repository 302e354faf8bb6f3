//! Prefetching of batches: the next ones are made while a batch is trained on.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use siskin_format::{Error, ErrorKind, Result};

use super::loader::{LoadedBatch, Loader};
use crate::profile::{ProfiledThread, Recorder, timed};

/// Prefetches the batches of a loader in a background thread. They are those of the loader, in its order.
///
/// Dropping it waits for the batch that is being made.
pub struct Prefetch {
    steps: Option<Receiver<Result<LoadedBatch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Prefetches up to `ahead` batches, at least one.
    pub fn new(loader: Loader, ahead: usize) -> Result<Self> {
        Self::recorded(loader, ahead, None)
    }

    /// Like [`Self::new`], and records the duration of each batch.
    pub fn recorded(mut loader: Loader, ahead: usize, recorder: Option<Recorder>) -> Result<Self> {
        let (sender, steps) = sync_channel(ahead.max(1));
        let work = move || {
            while let Some(step) =
                timed(recorder.as_ref(), "batch", ProfiledThread::Batches, || loader.next())
            {
                let failed = step.is_err();
                if sender.send(step).is_err() || failed {
                    return;
                }
            }
        };
        let thread = Builder::new().name("siskin-data".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::io("thread", &error))?;
        Ok(Self { steps: Some(steps), thread: Some(thread) })
    }
}

impl Iterator for Prefetch {
    type Item = Result<LoadedBatch>;

    /// Returns the next batch. An error is the last item.
    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(step) = self.steps.as_ref()?.recv() {
            return Some(step);
        }
        self.steps = None;
        let panicked = self.thread.take()?.join().is_err();
        panicked.then(|| Err(Error::new(ErrorKind::State, "data", "the data loader thread panicked")))
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported, or its batches are no longer needed.
            let _ = thread.join();
        }
    }
}
