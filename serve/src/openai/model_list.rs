//! `GET /v1/models`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// Returns all models.
pub(crate) async fn list(call: Call) -> Result<Response, ApiError> {
    let data: Vec<Value> = call.state.models.of(&call.client).map(|model| object(model)).collect();
    Ok(response::json(StatusCode::OK, &json!({"object": "list", "data": data})))
}

/// Returns a model.
pub(crate) async fn card(call: Call) -> Result<Response, ApiError> {
    let model = call.model(call.argument(0))?;
    Ok(response::json(StatusCode::OK, &object(&model)))
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
