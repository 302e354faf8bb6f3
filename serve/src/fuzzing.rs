//! What reads untrusted bytes, for the fuzz targets: each takes any bytes and returns.

use crate::uri::{percent_decoded, query_parameter};
use crate::{event_stream, inference_protocol, multipart, openai};

/// The body of a chat completion.
pub fn chat_request(body: &[u8]) {
    openai::chat::read_untrusted(body);
}

/// The body of a request to `/v1/responses`.
pub fn response_request(body: &[u8]) {
    openai::responses::read_untrusted(body);
}

/// The body of an inference request: JSON, and binary data after the first line.
pub fn infer_request(body: &[u8]) {
    inference_protocol::infer_request::read_untrusted(body);
}

/// A form: its content type in the first line, and its body.
pub fn form(data: &[u8]) {
    multipart::read_untrusted(data);
}

/// JSON that becomes an event of a stream.
///
/// # Panics
/// If a client would not read it as that one event.
pub fn event(data: &[u8]) {
    event_stream::write_untrusted(data);
}

/// The path and query of a URI.
pub fn uri(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, query) = text.split_once('?').unwrap_or((&text, ""));
    let _ = (percent_decoded(path), query_parameter(Some(query), "limit"));
}
