//! Errors as clients see them.

use std::fmt::Display;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};
use siskin::{Error, ErrorKind};

use crate::response::{self, Response};

/// An error in the form of the OpenAI API.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The field of the request that it is about.
    param: Option<String>,
    code: Option<&'static str>,
    /// The methods that the path takes, if the request's is not one of them.
    allowed_methods: Option<String>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None, allowed_methods: None }
    }

    /// Returns an error about a field of the request.
    pub(crate) fn invalid(param: &str, message: impl Display) -> Self {
        let message = format!("{param}: {message}");
        let param = Some(param.to_owned());
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message) }
    }

    /// Returns an error about the request as a whole.
    pub(crate) fn rejected(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", message)
    }

    pub(crate) fn model_not_found(name: &str, known: &[&str]) -> Self {
        let message = format!("no model `{name}`; expected one of: {}", known.join(", "));
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        }
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>, allowed: String) -> Self {
        let error = Self::rejected(StatusCode::METHOD_NOT_ALLOWED, message);
        Self { allowed_methods: Some(allowed), ..error }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is shutting down")
    }

    pub(crate) fn reader_too_slow() -> Self {
        let message = "the response was not read for too long";
        Self::new(StatusCode::REQUEST_TIMEOUT, "server_error", message)
    }

    /// Returns the JSON object of the error.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    pub(crate) fn response(&self) -> Response {
        let mut response = response::json(self.status, &self.body());
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(allowed) = &self.allowed_methods {
            response
                .headers_mut()
                .extend(HeaderValue::from_str(allowed).ok().map(|allowed| (ALLOW, allowed)));
        }
        response
    }
}

/// The fields of a request whose values have other names in the library.
#[derive(Clone, Copy)]
pub(crate) struct FieldNames {
    /// The prompt, or the texts to embed.
    pub(crate) prompt: &'static str,
    /// What the response must be.
    pub(crate) structured_output: &'static str,
}

impl FieldNames {
    /// Returns the error, located at the field of the request.
    pub(crate) fn locate(self, error: Error) -> ApiError {
        let location = error.location();
        let end = location.find([':', '.', '[', ' ']).unwrap_or(location.len());
        let (name, rest) = location.split_at(end);
        let rest = rest.trim_start_matches([':', ' ']);
        let (field, message) = match name {
            // `text 3`, and further names inside of it.
            "text" => {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let index = &rest[..digits];
                let field = if index.is_empty() {
                    self.prompt.to_owned()
                } else {
                    format!("{}[{index}]", self.prompt)
                };
                (field, error.message().to_owned())
            }
            "prompt" | "tokens" => (self.prompt.to_owned(), joined(rest, error.message())),
            "structured_output" | "json_schema" | "regex" | "gbnf" | "lark" | "choice" | "grammar" => {
                (self.structured_output.to_owned(), joined(rest, error.message()))
            }
            _ => return error.into(),
        };
        Error::new(error.kind(), field, message).into()
    }
}

/// Returns a message after the rest of its location, such as the line of a grammar.
fn joined(location: &str, message: &str) -> String {
    if location.is_empty() { message.to_owned() } else { format!("{location}: {message}") }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = format!("{}: {}", error.location(), error.message());
        let bad_request = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message.clone());
        match error.kind() {
            ErrorKind::Argument | ErrorKind::Template | ErrorKind::Unsupported => {
                Self { param: Some(error.location().to_owned()), ..bad_request }
            }
            ErrorKind::TooLong => Self {
                param: Some(error.location().to_owned()),
                code: Some("context_length_exceeded"),
                ..bad_request
            },
            // Of the engine, not of its queue.
            ErrorKind::Overloaded if error.location() == "engine" => Self::shutting_down(),
            ErrorKind::Overloaded => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", error.message())
            }
            ErrorKind::Memory => Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message),
            ErrorKind::Canceled => Self::shutting_down(),
            _ => Self::internal(message),
        }
    }
}
