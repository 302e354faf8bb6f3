//! `GET /v1/models`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::call::Call;
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// Returns all models.
pub(crate) async fn list(call: Call) -> Result<Response, ApiError> {
    let models = &call.state.models;
    let mut data: Vec<Value> =
        models.of(&call.client).iter().map(|model| object(&model.name, model)).collect();
    data.extend(models.aliases_of(&call.client).iter().map(|(alias, model)| object(alias, model)));
    Ok(response::json(StatusCode::OK, &json!({"object": "list", "data": data})))
}

/// Returns a model.
pub(crate) async fn card(call: Call) -> Result<Response, ApiError> {
    let model = call.model(call.argument(0))?;
    Ok(response::json(StatusCode::OK, &object(call.argument(0), &model)))
}

/// Returns the object of a model under its name or an alias.
fn object(name: &str, model: &RegisteredModel) -> Value {
    let mut object = json!({
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "siskin",
        "root": model.name,
        "version": model.version,
        "max_model_len": model.context_length,
        "capabilities": model.capabilities(),
    });
    if let Some(parent) = &model.parent {
        object["parent"] = json!(parent);
    }
    object
}
