//! Responses: JSON, text, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use crate::access_log::LogEntry;
use crate::event_stream::EventStream;

pub(crate) type Response = hyper::Response<ResponseBody>;

pub(crate) struct ResponseBody {
    content: Content,
    log: Option<Box<LogEntry>>,
}

enum Content {
    /// All of it; `None` after it was sent.
    Whole(Option<Bytes>),
    Events(Box<EventStream>),
}

impl ResponseBody {
    fn new(content: Content) -> Self {
        Self { content, log: None }
    }

    /// Sets the line of the log, which is written when the body was sent or is dropped.
    pub(crate) fn set_log(&mut self, entry: LogEntry) {
        self.log = Some(Box::new(entry));
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { content, log } = self.get_mut();
        let is_whole = matches!(content, Content::Whole(_));
        let bytes = match content {
            Content::Whole(bytes) => Poll::Ready(bytes.take()),
            Content::Events(events) => events.poll_bytes(context),
        };
        if let (Poll::Ready(bytes), Some(log)) = (&bytes, log) {
            log.bytes += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            log.is_complete = is_whole || bytes.is_none();
        }
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Events(_) => SizeHint::default(),
        }
    }
}

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Values of our own types, whose keys are strings.
    let text = serde_json::to_vec(value).unwrap_or_default();
    bytes(status, "application/json", text.into())
}

/// Returns a response without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(ResponseBody::new(Content::Whole(None)));
    *response.status_mut() = status;
    response
}

/// Returns a text response.
pub(crate) fn text(content_type: &'static str, text: String) -> Response {
    bytes(StatusCode::OK, content_type, text.into())
}

/// Returns a streamed response.
pub(crate) fn stream(stream: EventStream) -> Response {
    let content_type = HeaderValue::from_static(stream.format().content_type());
    let mut response = Response::new(ResponseBody::new(Content::Events(Box::new(stream))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies pass each event on at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns a response with a body of any type.
pub(crate) fn bytes(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response {
    let mut response = Response::new(ResponseBody::new(Content::Whole(Some(bytes))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
