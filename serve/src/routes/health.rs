//! Health, metrics, and what the server is.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use crate::call::Call;
use crate::error::ApiError;
use crate::response::{self, Response};

/// Answers as long as the process does.
pub(super) async fn live(_: Call) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &json!({"status": "ok"})))
}

/// Answers as long as the server takes requests, and its models work.
pub(super) async fn ready(call: Call) -> Result<Response, ApiError> {
    match call.state.problem() {
        None => Ok(response::json(StatusCode::OK, &json!({"status": "ok"}))),
        Some(problem) => Err(ApiError::unavailable(problem)),
    }
}

/// Returns the page of metrics. Reading GPUs may take milliseconds.
pub(super) async fn metrics(call: Call) -> Result<Response, ApiError> {
    let (state, client) = (Arc::clone(&call.state), call.client.clone());
    let page = tokio::task::spawn_blocking(move || {
        state.models.metrics(&client, state.degrade_after, &state.gpus, state.has_vllm_metric_names)
    });
    let page = page.await.map_err(|_| ApiError::panicked())?;
    Ok(response::text("text/plain; version=0.0.4; charset=utf-8", page))
}

/// Returns the description of the routes, in the format of OpenAPI.
pub(super) async fn description(call: Call) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &call.state.description))
}

pub(super) async fn version(_: Call) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")})))
}
