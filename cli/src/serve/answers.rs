//! The lines of the output.

use super::request::Id;
use crate::output;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use siskin::{Error, Result};

/// A reply to a request.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reply<'a> {
    /// The next piece of a streamed text.
    Text(&'a str),
    /// The request succeeded; the last reply.
    Done(Value),
    /// The request failed; the last reply.
    #[serde(serialize_with = "failure")]
    Error(&'a Error),
    /// An internal error.
    #[serde(rename = "error", serialize_with = "panic")]
    Panic(&'a str),
}

/// The code of an internal error, as in the C API.
const PANIC: u16 = 999;

#[derive(Serialize)]
struct ReplyLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Id>,
    #[serde(flatten)]
    answer: &'a Reply<'a>,
}

fn failure<S: Serializer>(error: &Error, to: S) -> std::result::Result<S::Ok, S::Error> {
    json!({"code": error.kind().code(), "location": error.location(), "message": error.message()})
        .serialize(to)
}

fn panic<S: Serializer>(message: &str, to: S) -> std::result::Result<S::Ok, S::Error> {
    json!({"code": PANIC, "location": "siskin", "message": message}).serialize(to)
}

/// Writes a line.
pub(super) fn tell(id: Option<&Id>, answer: &Reply<'_>) -> Result<()> {
    let line = serde_json::to_string(&ReplyLine { id, answer });
    output::line(line.map_err(|error| Error::io("stdout", &error.into()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siskin::ErrorKind;

    fn line(id: Option<&Id>, answer: &Reply<'_>) -> String {
        serde_json::to_string(&ReplyLine { id, answer }).unwrap()
    }

    #[test]
    fn lines_say_whom_they_are_for() {
        let id = Id::Number(7);
        assert_eq!(line(Some(&id), &Reply::Text("a\n\"b")), r#"{"id":7,"text":"a\n\"b"}"#);
        let id = Id::Text("x".to_owned());
        assert_eq!(line(Some(&id), &Reply::Done(json!({"tokens": 1}))), r#"{"id":"x","done":{"tokens":1}}"#);
        let error = Error::new(ErrorKind::Argument, "line 3", "out of range");
        let expected = r#"{"error":{"code":200,"location":"line 3","message":"out of range"}}"#;
        assert_eq!(line(None, &Reply::Error(&error)), expected);
        let expected = r#"{"error":{"code":999,"location":"siskin","message":"fell over"}}"#;
        assert_eq!(line(None, &Reply::Panic("fell over")), expected);
    }
}
