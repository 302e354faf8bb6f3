//! `/admin`: loading and unloading models, and draining, for clients whose API keys allow it.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::body;
use crate::call::Call;
use crate::clients::Client;
use crate::error::ApiError;
use crate::models::{ModelStatus, RegisteredModel};
use crate::response::{self, Response};
use crate::state::ServerState;

/// Lists the models that are loaded, and those that can be.
pub(crate) async fn models(call: Call) -> Result<Response, ApiError> {
    let all: Vec<Value> = states(&call).await?.iter().map(object).collect();
    Ok(response::json(StatusCode::OK, &json!({"models": all})))
}

/// Loads a model, or replaces it if its file was replaced.
pub(crate) async fn load(mut call: Call) -> Result<Response, ApiError> {
    body::fields_or_empty(&call.read_body().await?)?.finish()?;
    let model = load_model(&call, call.argument(0)).await?;
    Ok(response::json(StatusCode::OK, &loaded(&model)))
}

/// Unloads a model after its requests.
pub(crate) async fn unload(mut call: Call) -> Result<Response, ApiError> {
    body::fields_or_empty(&call.read_body().await?)?.finish()?;
    let name = call.argument(0);
    unload_model(&call, name).await?;
    Ok(response::json(StatusCode::OK, &unloaded(name)))
}

/// Makes load balancers send no more requests; those that arrive are answered.
pub(crate) async fn drain(call: Call) -> Result<Response, ApiError> {
    set_draining(&call, true)
}

/// Makes load balancers send requests again.
pub(crate) async fn resume(call: Call) -> Result<Response, ApiError> {
    set_draining(&call, false)
}

fn set_draining(call: &Call, is_draining: bool) -> Result<Response, ApiError> {
    call.state.set_draining(is_draining);
    let action = if is_draining { "drained" } else { "resumed" };
    log(&call.state, &call.client, &format!("the server was {action}"));
    Ok(response::json(StatusCode::OK, &json!({"draining": is_draining})))
}

/// Returns the models that are loaded, and those that can be.
pub(crate) async fn states(call: &Call) -> Result<Vec<ModelStatus>, ApiError> {
    let (state, client) = (Arc::clone(&call.state), call.client.clone());
    Ok(call.state.run_blocking(move || state.models.states(&client)).await??)
}

/// Loads a model on another thread.
pub(crate) async fn load_model(call: &Call, name: &str) -> Result<Arc<RegisteredModel>, ApiError> {
    check_name(call, name)?;
    let (state, client, name) = (Arc::clone(&call.state), call.client.clone(), name.to_owned());
    run_detached(move || {
        let model = state.models.load(&name)?;
        log(&state, &client, &format!("model {name} is loaded, version {}", model.version));
        Ok(model)
    })
    .await
}

/// Unloads a model on another thread.
pub(crate) async fn unload_model(call: &Call, name: &str) -> Result<(), ApiError> {
    check_name(call, name)?;
    let (state, client, name) = (Arc::clone(&call.state), call.client.clone(), name.to_owned());
    run_detached(move || {
        state.models.unload(&name)?;
        log(&state, &client, &format!("model {name} was unloaded"));
        Ok(())
    })
    .await
}

/// Does work that takes many seconds, which must not keep others from tokenizing, nor end when its client leaves.
async fn run_detached<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::panicked())?
}

fn check_name(call: &Call, name: &str) -> Result<(), ApiError> {
    match call.client.may_use(name) {
        true => Ok(()),
        false => Err(ApiError::forbidden(format!("the API key does not allow the model `{name}`"))),
    }
}

/// Logs a change with the name of the key.
fn log(state: &ServerState, client: &Client, message: &str) {
    if let Some(log) = &state.operation_log {
        log.write(&format!("{message} (key {})", client.name().unwrap_or_default()));
    }
}

fn object(state: &ModelStatus) -> Value {
    match state {
        ModelStatus::Loaded(model) => loaded(model),
        ModelStatus::Unloaded(name) => unloaded(name),
    }
}

fn loaded(model: &RegisteredModel) -> Value {
    json!({
        "name": model.name,
        "state": "loaded",
        "version": model.version,
        "parent": model.parent,
        "problem": model.health.problem(),
    })
}

fn unloaded(name: &str) -> Value {
    json!({"name": name, "state": "unloaded", "version": null, "parent": null, "problem": null})
}
