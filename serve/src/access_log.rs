//! A line about each request. Prompts and responses are not in it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// Takes the lines of a log: JSON objects without line breaks.
#[derive(Clone)]
pub struct AccessLog(Arc<dyn Fn(&str) + Send + Sync>);

impl AccessLog {
    /// Creates a log that calls `write` with each line. It is called on the thread of the sockets, and must not block.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

/// The line of a request, which is written when its response was sent or its client has left.
pub(crate) struct LogEntry {
    log: AccessLog,
    arrival: SystemTime,
    start: Instant,
    id: HeaderValue,
    trace: Option<HeaderValue>,
    method: String,
    pub(crate) route: &'static str,
    pub(crate) client: Option<String>,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    /// All of the response was sent.
    pub(crate) is_complete: bool,
}

impl LogEntry {
    pub(crate) fn new(log: &AccessLog, id: &HeaderValue, method: &str, headers: &HeaderMap) -> Self {
        Self {
            log: log.clone(),
            arrival: SystemTime::now(),
            start: Instant::now(),
            id: id.clone(),
            trace: headers.get(HeaderName::from_static("traceparent")).cloned(),
            method: method.to_owned(),
            route: "",
            client: None,
            status: 0,
            bytes: 0,
            is_complete: false,
        }
    }

    fn line(&self, elapsed: Duration) -> Value {
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let time = self.arrival.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "time": time.as_millis() as f64 / 1e3,
            "id": text(&self.id),
            "traceparent": self.trace.as_ref().map(text),
            "client": self.client,
            "method": self.method,
            "route": self.route,
            "status": self.status,
            "bytes": self.bytes,
            "seconds": elapsed.as_micros() as f64 / 1e6,
            "complete": self.is_complete,
        })
    }
}

impl Drop for LogEntry {
    fn drop(&mut self) {
        (self.log.0)(&self.line(self.start.elapsed()).to_string());
    }
}
