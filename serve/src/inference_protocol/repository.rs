//! `POST /v2/repository/index`, and the loading of models, which are given when the server starts.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::VERSION;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// Lists the models.
pub(crate) async fn index(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut only_ready = false;
    if !body.is_empty() {
        let mut fields = body::fields(&body)?;
        only_ready = fields.take("ready")?.unwrap_or(false);
        fields.finish()?;
    }
    let object = |model: &Arc<RegisteredModel>| {
        let problem = model.health.problem();
        let state = if problem.is_some() { "UNAVAILABLE" } else { "READY" };
        let reason = problem.unwrap_or_default();
        (!only_ready || problem.is_none())
            .then(|| json!({"name": model.name, "version": VERSION, "state": state, "reason": reason}))
    };
    let all: Vec<Value> = call.state.models.of(&call.client).filter_map(object).collect();
    Ok(response::json(StatusCode::OK, &all))
}

fn unsupported(message: &str) -> Result<Response, ApiError> {
    Err(ApiError::rejected(StatusCode::NOT_IMPLEMENTED, message))
}

pub(crate) async fn load(_: Call) -> Result<Response, ApiError> {
    unsupported("a running server cannot load models; restart it with the file: siskin serve MODEL.gguf")
}

pub(crate) async fn unload(_: Call) -> Result<Response, ApiError> {
    unsupported(
        "a running server cannot unload models; restart it without the model: siskin serve OTHER.gguf",
    )
}
