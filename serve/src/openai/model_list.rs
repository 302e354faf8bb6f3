//! `GET /v1/models`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::models::{ModelRegistry, RegisteredModel};
use crate::response::{self, Response};

/// Returns all models.
pub(crate) fn list(models: &ModelRegistry) -> Response {
    let data: Vec<Value> = models.all().iter().map(|model| object(model)).collect();
    response::json(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// Returns a model.
pub(crate) fn card(models: &ModelRegistry, name: &str) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &object(models.find(name)?)))
}

fn object(model: &RegisteredModel) -> Value {
    let mut object = json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "siskin",
        "max_model_len": model.context_length,
        "capabilities": model.capabilities(),
    });
    if let Some(parent) = &model.parent {
        object["parent"] = json!(parent);
    }
    object
}
