//! `GET /api/tags`, `GET /api/ps` and `GET /api/version`.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::LATEST;
use super::show::details;
use crate::call::Call;
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::response::{self, Response};
use crate::time::rfc3339;

/// When models are unloaded: never.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// Returns the version of the server.
pub(crate) async fn version(_: Call) -> Result<Response, ApiError> {
    Ok(response::json(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")})))
}

/// Returns all models.
pub(crate) async fn tags(call: Call) -> Result<Response, ApiError> {
    let models = with_aliases(&call, object);
    Ok(response::json(StatusCode::OK, &json!({"models": models})))
}

/// Returns the models that are loaded: all.
pub(crate) async fn loaded(call: Call) -> Result<Response, ApiError> {
    let loaded = |name: &str, model: &RegisteredModel| {
        let mut object = object(name, model);
        object["expires_at"] = NEVER.into();
        object["size_vram"] = 0.into();
        object["context_length"] = model.context_length.into();
        object
    };
    let models = with_aliases(&call, loaded);
    Ok(response::json(StatusCode::OK, &json!({"models": models})))
}

/// Returns the objects of all models, and of their aliases.
fn with_aliases(call: &Call, object: impl Fn(&str, &RegisteredModel) -> Value) -> Vec<Value> {
    let models = &call.state.models;
    let mut all: Vec<Value> =
        models.of(&call.client).iter().map(|model| object(&model.name, model)).collect();
    all.extend(models.aliases_of(&call.client).iter().map(|(alias, model)| object(alias, model)));
    all
}

fn object(name: &str, model: &RegisteredModel) -> Value {
    let name = format!("{name}{LATEST}");
    json!({
        "name": name,
        "model": name,
        "modified_at": rfc3339(model.created, 0),
        "size": model.model.file().bytes().len(),
        "digest": digest(model),
        "details": details(model),
    })
}

/// Returns the identity of a model and its adapter in hexadecimal.
fn digest(model: &RegisteredModel) -> String {
    let slot = model.adapter_name().and_then(|adapter| model.model.adapter_slot(&adapter).ok());
    let identity = model.model.identity_with(slot.unwrap_or_default());
    identity.iter().map(|byte| format!("{byte:02x}")).collect()
}
