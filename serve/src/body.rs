//! Request bodies, with limits on their size and duration.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use serde::Deserialize;

use crate::error::ApiError;
use siskin_format::JsonFields;

/// One value, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    pub(crate) fn to_vec(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Many(values) => values.clone(),
        }
    }
}

/// Reads a body of at most `limit` bytes, which must arrive within `timeout`.
pub(crate) async fn read(body: &mut Incoming, limit: usize, timeout: Duration) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body exceeds {limit} bytes");
            Err(ApiError::rejected(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(error)) => Err(ApiError::rejected(StatusCode::BAD_REQUEST, format!("body: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive within {} seconds", timeout.as_secs());
            Err(ApiError::rejected(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

/// Parses the fields of a JSON body.
pub(crate) fn fields(body: &[u8]) -> Result<JsonFields<'_>, ApiError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        let message = format!("body: not UTF-8 at byte {}", error.valid_up_to());
        ApiError::rejected(StatusCode::BAD_REQUEST, message)
    })?;
    let mut fields = JsonFields::read(text)
        .map_err(|error| ApiError::rejected(StatusCode::BAD_REQUEST, format!("body: {}", error.message())))?;
    fields.ignore_null();
    Ok(fields)
}

/// Parses the fields of a JSON body that may be missing.
pub(crate) fn fields_or_empty(body: &[u8]) -> Result<JsonFields<'_>, ApiError> {
    fields(if body.is_empty() { b"{}" } else { body })
}
