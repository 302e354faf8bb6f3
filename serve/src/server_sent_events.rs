//! Server-sent events: the form of streamed responses.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::Value;
use tokio::time::{Instant, Sleep};

/// How long a stream is silent before it sends a comment, so that proxies do not close it.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// The size from which the events of a stream are sent without waiting for more.
const FRAME_BYTES: usize = 16 << 10;

/// Where the events of a stream come from.
pub(crate) trait EventSource: Send {
    /// Returns the data of the next event; `None` after the last.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Value>>;
}

/// A stream of events that ends with `[DONE]`.
pub(crate) struct EventStream {
    source: Box<dyn EventSource>,
    ping: Pin<Box<Sleep>>,
    is_done: bool,
}

impl EventStream {
    pub(crate) fn new(source: Box<dyn EventSource>) -> Self {
        Self { source, ping: Box::pin(tokio::time::sleep(PING_INTERVAL)), is_done: false }
    }

    /// Returns the bytes of the events that are there; `None` at the end.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let mut bytes = Vec::new();
        while bytes.len() < FRAME_BYTES {
            let Poll::Ready(data) = self.source.poll_data(context) else { break };
            match data {
                Some(data) => write_event(&mut bytes, &data),
                None => {
                    bytes.extend_from_slice(b"data: [DONE]\n\n");
                    self.is_done = true;
                    break;
                }
            }
        }
        if bytes.is_empty() {
            if self.ping.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            bytes.extend_from_slice(b": ping\n\n");
        }
        self.ping.as_mut().reset(Instant::now() + PING_INTERVAL);
        Poll::Ready(Some(Bytes::from(bytes)))
    }
}

/// Appends an event. JSON has no line breaks outside of its strings, and escapes those inside.
fn write_event(bytes: &mut Vec<u8>, data: &Value) {
    bytes.extend_from_slice(b"data: ");
    bytes.extend_from_slice(data.to_string().as_bytes());
    bytes.extend_from_slice(b"\n\n");
}
