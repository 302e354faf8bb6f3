//! `GET /v2/health/live` and `GET /v2/health/ready`.

use hyper::StatusCode;
use serde_json::json;

use super::model_in_path;
use crate::call::Call;
use crate::error::ApiError;
use crate::response::{self, Response};

/// Answers as long as the process does.
pub(crate) async fn live(_: Call) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &json!({"live": true})))
}

/// Answers as long as the server takes requests.
pub(crate) async fn ready(call: Call) -> Result<Response, ApiError> {
    check(&call)?;
    Ok(response::json(StatusCode::OK, &json!({"ready": true})))
}

/// Answers as long as a model takes requests.
pub(crate) async fn model_ready(call: Call) -> Result<Response, ApiError> {
    let model = model_in_path(&call)?;
    if call.state.is_shutting_down() {
        return Err(ApiError::shutting_down());
    }
    if let Some(problem) = model.health.problem() {
        return Err(ApiError::unavailable(problem));
    }
    Ok(response::json(StatusCode::OK, &json!({"name": model.name, "ready": true})))
}

fn check(call: &Call) -> Result<(), ApiError> {
    call.state.problem().map_or(Ok(()), |problem| Err(ApiError::unavailable(problem)))
}
