//! Errors as clients see them.

use std::fmt::Display;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::{Value, json};
use siskin::{Error, ErrorKind};

use crate::response::{self, Response};

/// How errors look in the API that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    /// An object with message, type, parameter and code.
    OpenAi,
    /// An object with the message, as in Ollama's API and the Open Inference Protocol.
    Message,
}

/// A header that goes with a status.
#[derive(Debug)]
enum ErrorHeader {
    /// The methods that the path takes.
    Allow(String),
    /// After how many seconds to try again.
    RetryAfter(u64),
    /// An API key is required.
    Authenticate,
}

impl ErrorHeader {
    fn insert_into(&self, headers: &mut HeaderMap) {
        match self {
            Self::Allow(methods) => {
                headers.extend(HeaderValue::from_str(methods).ok().map(|value| (ALLOW, value)))
            }
            Self::RetryAfter(seconds) => _ = headers.insert(RETRY_AFTER, HeaderValue::from(*seconds)),
            Self::Authenticate => _ = headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        }
    }
}

/// An error of a request.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The field of the request that it is about.
    param: Option<String>,
    code: Option<&'static str>,
    header: Option<ErrorHeader>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None, header: None }
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
        let message = match known {
            [] => format!("no model `{name}`: none is loaded"),
            known => format!("no model `{name}`; expected one of: {}", known.join(", ")),
        };
        Self {
            param: Some("model".to_owned()),
            code: Some("model_not_found"),
            ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message)
        }
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>, allowed: String) -> Self {
        let error = Self::rejected(StatusCode::METHOD_NOT_ALLOWED, message);
        Self { header: Some(ErrorHeader::Allow(allowed)), ..error }
    }

    /// Returns the error of a client whose rate is used up for `wait`.
    pub(crate) fn rate_limited(message: impl Into<String>, wait: Duration) -> Self {
        let seconds = (wait.as_secs_f64().ceil() as u64).max(1);
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        Self { header: Some(ErrorHeader::RetryAfter(seconds)), ..error.with_code("rate_limit_exceeded") }
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        let error = Self::rejected(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key");
        Self { header: Some(ErrorHeader::Authenticate), ..error }
    }

    /// Returns the error of a client whose key does not allow a route.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::rejected(StatusCode::FORBIDDEN, message)
    }

    /// The state of the server does not allow the request.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::rejected(StatusCode::CONFLICT, message)
    }

    fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Returns the error of work that panicked.
    pub(crate) fn panicked() -> Self {
        Self::internal("internal error, please report it")
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is shutting down")
    }

    pub(crate) fn reader_too_slow() -> Self {
        let message = "the response was not read for too long";
        Self::new(StatusCode::REQUEST_TIMEOUT, "server_error", message)
    }

    /// Returns the error as one about the field `previous_response_id`.
    pub(crate) fn about_previous_response(self) -> Self {
        Self::invalid("previous_response_id", self.message).with_code("previous_response_not_found")
    }

    /// Returns the error with another name for the field that it is about.
    pub(crate) fn renamed(mut self, rename: impl Fn(&str) -> String) -> Self {
        if let Some(param) = self.param.take() {
            let name = rename(&param);
            if let Some(rest) = self.message.strip_prefix(&param).filter(|rest| rest.starts_with(':')) {
                self.message = format!("{name}{rest}");
            }
            self.param = Some(name);
        }
        self
    }

    /// The model gets no requests now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message);
        Self { header: Some(ErrorHeader::RetryAfter(10)), ..error.with_code("model_unavailable") }
    }

    /// Returns whether the server failed: not the client, and not since it has too little room now.
    pub(crate) fn is_server_error(&self) -> bool {
        self.status == StatusCode::INTERNAL_SERVER_ERROR
    }

    /// Returns the name of the field that is wrong.
    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// Returns whether the server, or the client, has too many requests.
    pub(crate) fn is_overload(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the JSON object of the error in a format.
    pub(crate) fn body_in(&self, format: ErrorFormat) -> Value {
        match format {
            ErrorFormat::OpenAi => json!({
                "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code},
            }),
            ErrorFormat::Message => json!({"error": self.message}),
        }
    }

    pub(crate) fn response(&self, format: ErrorFormat) -> Response {
        let mut response = response::json(self.status, &self.body_in(format));
        if let Some(header) = &self.header {
            header.insert_into(response.headers_mut());
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
            "prompt" | "tokens" | "token" => (self.prompt.to_owned(), joined(rest, error.message())),
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
                // Clients look for the beginning of OpenAI's message.
                message: format!("this model's maximum context length is exceeded: {message}"),
                ..bad_request
            },
            // Of the engine, not of its queue.
            ErrorKind::Overloaded if error.location() == "engine" => Self::shutting_down(),
            ErrorKind::Overloaded => Self {
                header: Some(ErrorHeader::RetryAfter(1)),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", error.message())
            },
            ErrorKind::Memory => Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message),
            ErrorKind::Canceled => Self::shutting_down(),
            _ => Self::internal(message),
        }
    }
}
