//! Responses: JSON, text, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::StatusCode;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use crate::server_sent_events::EventStream;

pub(crate) type Response = hyper::Response<ResponseBody>;

pub(crate) enum ResponseBody {
    /// All of it; `None` after it was sent.
    Whole(Option<Bytes>),
    Events(Box<EventStream>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Events(events) => events.poll_bytes(context),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Returns a JSON response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Values of our own types, whose keys are strings.
    let text = serde_json::to_vec(value).unwrap_or_default();
    bytes(status, "application/json", text.into())
}

/// Returns a text response.
pub(crate) fn text(content_type: &'static str, text: String) -> Response {
    bytes(StatusCode::OK, content_type, text.into())
}

/// Returns a stream of server-sent events.
pub(crate) fn events(stream: EventStream) -> Response {
    let mut response = Response::new(ResponseBody::Events(Box::new(stream)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies pass each event on at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns a response with a body of any type.
pub(crate) fn bytes(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response {
    let mut response = Response::new(ResponseBody::Whole(Some(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
