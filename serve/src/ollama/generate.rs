//! `POST /api/generate`.

use siskin::chat::ChatOptions;
use siskin::serving::PromptInput;
use siskin::template::Message;
use siskin_format::JsonFields;

use super::messages::reject_images;
use super::renderer::TextRoute;
use super::request::OllamaTextRequest;
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::response::Response;

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let request = OllamaTextRequest::take(&call, &mut fields)?;
    let prompt: String = fields.take("prompt")?.unwrap_or_default();
    let system: Option<String> = fields.take("system")?.filter(|system: &String| !system.is_empty());
    let is_raw = fields.take("raw")?.unwrap_or(false);
    reject_unsupported(&mut fields)?;
    fields.finish()?;
    if prompt.is_empty() {
        return Ok(request.loaded(TextRoute::Generate));
    }
    request.model.decoder()?;
    // As in Ollama, the prompt of a model without a template is the text.
    if is_raw || request.model.model.template()?.is_none() {
        if system.is_some() {
            return Err(ApiError::invalid("system", "needs a chat template"));
        }
        return request.respond_to_text(&call, PromptInput::TextWithSpecialTokens(prompt)).await;
    }
    let system = system.map(|system| Message::new("system", system));
    let messages = system.into_iter().chain([Message::new("user", prompt)]).collect();
    request.respond_to_chat(&call, messages, ChatOptions::default(), TextRoute::Generate).await
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    reject_images(fields)?;
    for name in ["suffix", "template"] {
        let text: Option<String> = fields.take(name)?;
        if text.is_some_and(|text| !text.is_empty()) {
            return Err(ApiError::invalid(name, "is not supported"));
        }
    }
    let context: Option<Vec<i64>> = fields.take("context")?;
    match context.is_some_and(|context| !context.is_empty()) {
        true => Err(ApiError::invalid("context", "is not supported; use /api/chat")),
        false => Ok(()),
    }
}
