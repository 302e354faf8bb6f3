//! `POST /api/chat`.

use serde_json::value::RawValue;
use siskin::chat::{ChatOptions, Tool};

use super::messages::messages;
use super::renderer::TextRoute;
use super::request::OllamaTextRequest;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::response::Response;

/// The maximum number of tools.
const MAX_TOOLS: usize = 128;

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let request = OllamaTextRequest::take(&call, &mut fields)?;
    let list: Vec<&RawValue> = fields.take("messages")?.unwrap_or_default();
    let messages = messages(&list)?;
    let tools: Option<&RawValue> = fields.take("tools")?;
    let tools = tools.map_or(Ok(Vec::new()), |tools| Tool::list_from_json(tools.get()))?;
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid("tools", format!("expected at most {MAX_TOOLS}, got {}", tools.len())));
    }
    fields.finish()?;
    if messages.is_empty() {
        return Ok(request.loaded(TextRoute::Chat));
    }
    let options = ChatOptions { tools, ..ChatOptions::default() };
    request.respond_to_chat(&call, messages, options, TextRoute::Chat).await
}
