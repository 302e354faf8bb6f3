//! Streamed responses: server-sent events, or lines of JSON.

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

/// How a stream looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFormat {
    /// Server-sent events, the last of which is `[DONE]`.
    OpenAiEvents,
    /// Server-sent events.
    Events,
    /// Server-sent events that are named by their `type`.
    TypedEvents,
    /// A line of JSON per event (NDJSON).
    JsonLines,
}

impl StreamFormat {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenAiEvents | Self::Events | Self::TypedEvents => "text/event-stream; charset=utf-8",
            Self::JsonLines => "application/x-ndjson",
        }
    }

    /// Appends an event. JSON has no line breaks outside of its strings, and escapes those inside.
    fn write(self, bytes: &mut Vec<u8>, data: &Value) {
        if self == Self::TypedEvents {
            // A name with a line break would be another event.
            let kind = data["type"].as_str().filter(|kind| kind.bytes().all(|byte| byte.is_ascii_graphic()));
            let kind = kind.unwrap_or("message");
            bytes.extend_from_slice(format!("event: {kind}\n").as_bytes());
        }
        let (start, end): (&[u8], &[u8]) = match self {
            Self::OpenAiEvents | Self::Events | Self::TypedEvents => (b"data: ", b"\n\n"),
            Self::JsonLines => (b"", b"\n"),
        };
        bytes.extend_from_slice(start);
        bytes.extend_from_slice(data.to_string().as_bytes());
        bytes.extend_from_slice(end);
    }

    fn end(self) -> &'static [u8] {
        match self {
            Self::OpenAiEvents => b"data: [DONE]\n\n",
            Self::Events | Self::TypedEvents | Self::JsonLines => b"",
        }
    }

    /// Returns what keeps a silent stream open; `None`: clients would take it for an event.
    fn ping(self) -> Option<&'static [u8]> {
        match self {
            Self::OpenAiEvents | Self::Events | Self::TypedEvents => Some(b": ping\n\n"),
            Self::JsonLines => None,
        }
    }
}

/// Writes an event in all formats, and checks that a client finds it again as one event.
#[cfg(feature = "fuzzing")]
pub(crate) fn write_untrusted(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    for format in
        [StreamFormat::OpenAiEvents, StreamFormat::Events, StreamFormat::TypedEvents, StreamFormat::JsonLines]
    {
        let mut bytes = Vec::new();
        format.write(&mut bytes, &value);
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
        let is_named = format == StreamFormat::TypedEvents;
        assert_eq!(lines.len(), 1 + usize::from(is_named), "{format:?}: {text:?}");
        let data = lines[lines.len() - 1];
        let json = if format == StreamFormat::JsonLines { Some(data) } else { data.strip_prefix("data: ") };
        // Not as values: serde_json may be off by a bit when it reads a float.
        assert_eq!(json, Some(value.to_string().as_str()));
    }
}

/// A stream of events.
pub(crate) struct EventStream {
    format: StreamFormat,
    source: Box<dyn EventSource>,
    ping: Pin<Box<Sleep>>,
    is_done: bool,
}

impl EventStream {
    pub(crate) fn new(format: StreamFormat, source: Box<dyn EventSource>) -> Self {
        Self { format, source, ping: Box::pin(tokio::time::sleep(PING_INTERVAL)), is_done: false }
    }

    pub(crate) fn format(&self) -> StreamFormat {
        self.format
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
                Some(data) => self.format.write(&mut bytes, &data),
                None => {
                    bytes.extend_from_slice(self.format.end());
                    self.is_done = true;
                    break;
                }
            }
        }
        if bytes.is_empty() {
            if self.is_done {
                return Poll::Ready(None);
            }
            let Some(ping) = self.format.ping() else { return Poll::Pending };
            if self.ping.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            bytes.extend_from_slice(ping);
        }
        self.ping.as_mut().reset(Instant::now() + PING_INTERVAL);
        Poll::Ready(Some(Bytes::from(bytes)))
    }
}
