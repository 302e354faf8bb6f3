//! The profiler: all pieces of work of a step with start and end times, as a trace and as a table.
//!
//! A [`Recorder`] is shared by the threads of a run. It records only while it is on; a run without profiling has
//! none.

mod table;
mod tracer;

pub use table::{ProfileRow, text};
pub(crate) use tracer::Tracer;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use siskin_format::{Error, Result};

/// The event name of a whole step.
pub(crate) const STEP: &str = "step";
/// The maximum number of recorded events.
const MAX_EVENTS: usize = 1 << 20;

/// Which steps are profiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileOptions {
    /// The first step, counted from 1, and the number of steps; empty: none.
    pub steps: Vec<u64>,
}

impl ProfileOptions {
    /// Returns the profiled steps, counted from 1.
    pub fn window(&self) -> Result<Option<Range<u64>>> {
        match self.steps[..] {
            [] => Ok(None),
            [first, count] if first > 0 && count > 0 => Ok(Some(first..first.saturating_add(count))),
            _ => {
                let message = format!(
                    "expected the first step, from 1, and how many, such as [2, 3], got {:?}",
                    self.steps
                );
                Err(Error::argument("profile.steps", message))
            }
        }
    }
}

/// The thread that did the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfiledThread {
    /// The training thread.
    Steps,
    /// The prefetch thread of batches.
    Batches,
    /// The checkpoint writer.
    Checkpoints,
}

impl ProfiledThread {
    const ALL: [Self; 3] = [Self::Steps, Self::Batches, Self::Checkpoints];

    fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Batches => "batches ahead",
            Self::Checkpoints => "checkpoints",
        }
    }

    fn number(self) -> usize {
        self as usize + 1
    }
}

/// The node of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWork {
    /// The operation.
    pub op: String,
    /// Forward, recomputed forward or backward.
    pub phase: &'static str,
    /// Rows of the output.
    pub rows: usize,
    /// Columns of the output.
    pub columns: usize,
    /// FLOPs.
    pub flops: f64,
}

/// A timed event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// The thread that did the work.
    pub worker: ProfiledThread,
    /// The start time since the recorder was created.
    pub begin: Duration,
    /// The duration.
    pub length: Duration,
    /// The node, if it was the work of one.
    pub node: Option<NodeWork>,
}

/// The start and the end of a piece of work.
#[derive(Clone, Copy, Debug)]
pub struct WorkInterval {
    /// The start.
    pub begin: Instant,
    /// The end.
    pub end: Instant,
}

/// Records events of all threads.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    start: Instant,
    on: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Default for Recorder {
    fn default() -> Self {
        let events = Mutex::new(Vec::new());
        Self(Arc::new(RecorderState { start: Instant::now(), on: AtomicBool::new(false), events }))
    }
}

impl Recorder {
    /// Switches recording on or off.
    pub fn set_on(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Returns true if it records.
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Adds an event that ends now, if it records.
    pub fn add(
        &self,
        name: impl Into<String>,
        worker: ProfiledThread,
        begin: Instant,
        node: Option<NodeWork>,
    ) {
        self.add_until(name, worker, WorkInterval { begin, end: Instant::now() }, node);
    }

    /// Like [`Self::add`], for an event that ended earlier.
    pub fn add_until(
        &self,
        name: impl Into<String>,
        worker: ProfiledThread,
        WorkInterval { begin, end }: WorkInterval,
        node: Option<NodeWork>,
    ) {
        if !self.is_on() {
            return;
        }
        let (length, begin) = (end.duration_since(begin), begin.duration_since(self.0.start));
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < MAX_EVENTS {
            events.push(Event { name: name.into(), worker, begin, length, node });
        }
    }

    /// Returns the events recorded so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs `work`, recorded as an event if there is a recorder.
pub(crate) fn timed<R>(
    recorder: Option<&Recorder>,
    name: &str,
    worker: ProfiledThread,
    work: impl FnOnce() -> R,
) -> R {
    let Some(recorder) = recorder.filter(|recorder| recorder.is_on()) else { return work() };
    let begin = Instant::now();
    let done = work();
    recorder.add(name, worker, begin, None);
    done
}

/// Converts events to the trace event format of Chrome and Perfetto.
pub fn trace(events: &[Event]) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let threads = ProfiledThread::ALL.into_iter().map(|worker| {
        json!({
            "name": "thread_name", "ph": "M", "pid": 1, "tid": worker.number(), "args": {"name": worker.name()},
        })
    });
    let complete = events.iter().map(|event| {
        let (category, args) = match &event.node {
            Some(node) => {
                let rate = node.flops / event.length.as_secs_f64().max(1e-9) / 1e9;
                let args = json!({
                    "op": node.op, "rows": node.rows, "columns": node.columns, "gflop_per_second": rate,
                });
                (node.phase, args)
            }
            None => ("run", json!({})),
        };
        json!({
            "name": event.name, "cat": category, "ph": "X", "pid": 1, "tid": event.worker.number(),
            "ts": micros(event.begin), "dur": micros(event.length), "args": args,
        })
    });
    json!({"traceEvents": threads.chain(complete).collect::<Vec<_>>(), "displayTimeUnit": "ms"})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_only_recorded_while_the_profiler_is_on() {
        let recorder = Recorder::default();
        let work = |name: &str| timed(Some(&recorder), name, ProfiledThread::Batches, || 7);
        assert_eq!(work("before"), 7);
        recorder.set_on(true);
        assert_eq!(work("within"), 7);
        recorder.set_on(false);
        work("after");
        let names: Vec<String> = recorder.events().into_iter().map(|event| event.name).collect();
        assert_eq!(names, ["within"]);
    }

    #[test]
    fn traces_contain_complete_events_and_thread_names() {
        let node = NodeWork { op: "Linear".to_owned(), phase: "forward", rows: 4, columns: 8, flops: 2e6 };
        let event = |name: &str, worker, begin, node| Event {
            name: name.to_owned(),
            worker,
            begin: Duration::from_micros(begin),
            length: Duration::from_micros(500),
            node,
        };
        let events = [
            event("001.Linear.\"quoted\"", ProfiledThread::Steps, 100, Some(node)),
            event("batch", ProfiledThread::Batches, 50, None),
        ];
        let text = trace(&events).to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        let list = read["traceEvents"].as_array().unwrap();
        assert_eq!(list.len(), 5);
        assert_eq!(list[0]["args"]["name"], "steps");
        let linear = &list[3];
        assert_eq!((linear["ph"].as_str(), linear["tid"].as_u64()), (Some("X"), Some(1)));
        assert_eq!((linear["ts"].as_f64(), linear["dur"].as_f64()), (Some(100.0), Some(500.0)));
        assert!((linear["args"]["gflop_per_second"].as_f64().unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(list[4]["tid"], 2);
    }

    #[test]
    fn the_profile_window_starts_at_a_step_and_has_a_count() {
        let window = |steps: &[u64]| ProfileOptions { steps: steps.to_vec() }.window();
        assert_eq!(window(&[]).unwrap(), None);
        assert_eq!(window(&[2, 3]).unwrap(), Some(2..5));
        for wrong in [&[0, 1][..], &[1, 0], &[1], &[1, 2, 3]] {
            assert_eq!(window(wrong).unwrap_err().location(), "profile.steps");
        }
    }
}
