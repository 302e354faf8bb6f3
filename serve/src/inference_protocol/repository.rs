//! `POST /v2/repository/index`, and the loading of models, which are given when the server starts.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::VERSION;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::response::{self, Response};

/// Lists the models.
pub(crate) async fn index(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    if !body.is_empty() {
        let mut fields = body::fields(&body)?;
        // All models are ready.
        let _only_ready: Option<bool> = fields.take("ready")?;
        fields.finish()?;
    }
    let object = |name: &str| json!({"name": name, "version": VERSION, "state": "READY", "reason": ""});
    let all: Vec<Value> = call.state.models.of(&call.client).map(|model| object(&model.name)).collect();
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
