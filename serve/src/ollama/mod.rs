//! The API of Ollama: text generation, chats, embeddings and descriptions of models.
//!
//! Fields that change results and are not supported are errors. Models stay loaded, and are not downloaded.

pub(crate) mod chat;
pub(crate) mod embed;
pub(crate) mod generate;
mod keep_alive;
mod messages;
pub(crate) mod model_list;
mod options;
mod renderer;
mod request;
pub(crate) mod show;
pub(crate) mod unsupported;

use std::sync::Arc;

use crate::call::Call;
use crate::error::ApiError;
use crate::models::RegisteredModel;

/// The version of a model without one.
const LATEST: &str = ":latest";

/// Returns the model of a name, which may end with `:latest`.
fn find(call: &Call, name: &str) -> Result<Arc<RegisteredModel>, ApiError> {
    let plain = name.strip_suffix(LATEST).filter(|plain| !plain.is_empty());
    call.model(name).or_else(|error| plain.map_or(Err(error), |plain| call.model(plain)))
}

/// Returns the model of a name, and its name in responses: that of the request unless it is an alias.
fn find_named(call: &Call, name: String) -> Result<(Arc<RegisteredModel>, String), ApiError> {
    let model = find(call, &name)?;
    let is_alias = model.name != name && name.strip_suffix(LATEST) != Some(&model.name);
    let name = if is_alias { model.name.clone() } else { name };
    Ok((model, name))
}
