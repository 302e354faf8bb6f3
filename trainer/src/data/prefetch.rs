//! Batches that are made while the batch before is trained on.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};

use siskin::{Error, ErrorKind, Result};

use super::loader::{Loader, Step};
use crate::profile::{Recorder, Worker, timed};

/// The batches of a loader, made in a thread of their own, some ahead. They are those of the loader, in its order.
///
/// Dropped, it waits until the batch that is being made is there.
pub struct Prefetch {
    steps: Option<Receiver<Result<Step>>>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    /// Makes up to `ahead` batches ahead, at least one.
    pub fn new(loader: Loader, ahead: usize) -> Result<Self> {
        Self::recorded(loader, ahead, None)
    }

    /// The same; how long each takes is recorded.
    pub fn recorded(mut loader: Loader, ahead: usize, recorder: Option<Recorder>) -> Result<Self> {
        let (sender, steps) = sync_channel(ahead.max(1));
        let work = move || {
            while let Some(step) = timed(recorder.as_ref(), "batch", Worker::Batches, || loader.next()) {
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
    type Item = Result<Step>;

    /// The next batch. An error is the last that comes.
    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(step) = self.steps.as_ref()?.recv() {
            return Some(step);
        }
        self.steps = None;
        let panicked = self.thread.take()?.join().is_err();
        panicked.then(|| Err(Error::new(ErrorKind::State, "data", "the thread that makes batches panicked")))
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been told, or nobody wants its batches any more.
            let _ = thread.join();
        }
    }
}
