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
