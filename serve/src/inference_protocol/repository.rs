//! `/v2/repository`: the models that are loaded, and loading and unloading them.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::VERSION;
use crate::admin;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::models::ModelStatus;
use crate::response::{self, Response};

/// Models depend on no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnloadParameters {
    #[serde(default, rename = "unload_dependents")]
    _unload_dependents: bool,
}

/// Lists the models that are loaded, and those that can be.
pub(crate) async fn index(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields_or_empty(&body)?;
    let only_ready = fields.take("ready")?.unwrap_or(false);
    fields.finish()?;
    let object = |state: &ModelStatus| {
        let (name, problem) = match state {
            ModelStatus::Loaded(model) => (&model.name, model.health.problem()),
            ModelStatus::Unloaded(name) => (name, Some("unloaded")),
        };
        let state = if problem.is_some() { "UNAVAILABLE" } else { "READY" };
        let reason = problem.unwrap_or_default();
        (!only_ready || problem.is_none())
            .then(|| json!({"name": name, "version": VERSION, "state": state, "reason": reason}))
    };
    let all: Vec<Value> = admin::states(&call).await?.iter().filter_map(object).collect();
    Ok(response::json(StatusCode::OK, &all))
}

/// Loads a model, or replaces it if its file was replaced.
pub(crate) async fn load(mut call: Call) -> Result<Response, ApiError> {
    body::fields_or_empty(&call.read_body().await?)?.finish()?;
    admin::load_model(&call, call.argument(0)).await?;
    Ok(response::json(StatusCode::OK, &json!({})))
}

/// Unloads a model after its requests.
pub(crate) async fn unload(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields_or_empty(&body)?;
    let _: Option<UnloadParameters> = fields.take("parameters")?;
    fields.finish()?;
    admin::unload_model(&call, call.argument(0)).await?;
    Ok(response::json(StatusCode::OK, &json!({})))
}
