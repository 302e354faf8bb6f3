//! `/v1/responses`: responses to conversations, of which those before this request may be stored.

mod echoed_fields;
mod input;
mod output;
mod renderer;

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use siskin::chat::ChatOptions;
use siskin::sample::SamplerOptions;
use siskin::serving::PromptInput;
use siskin::template::Message;
use siskin_format::JsonFields;

use crate::body;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::generation::{Choices, ChunkStream, SamplingFields, take_top_log_probabilities};
use crate::response::{self, Response};
use crate::response_store::StoredResponse;
use echoed_fields::EchoedFields;
use input::ConversationInput;
use renderer::{ResponsesRenderer, Storage};

/// The fields of a request but for those of [`EchoedFields`] and sampling.
struct ResponseFields {
    input: ConversationInput,
    instructions: Option<String>,
    previous: Option<String>,
    is_stored: bool,
    is_streamed: bool,
    max_tokens: Option<usize>,
    /// The number of most likely tokens to report; `None`: no log-probabilities.
    top: Option<usize>,
}

impl ResponseFields {
    fn take(fields: &mut JsonFields<'_>) -> Result<Self, ApiError> {
        if fields.has("messages") {
            return Err(ApiError::invalid("messages", "unknown field; this API takes `input`"));
        }
        let input = ConversationInput::read(fields.take_required::<&RawValue>("input")?)?;
        reject_unsupported(fields)?;
        let has_log_probabilities = take_include(fields)?;
        let top = take_top_log_probabilities(fields, "top_logprobs")?.filter(|&top| top > 0);
        let max_tokens: Option<usize> = fields.take("max_output_tokens")?;
        if max_tokens == Some(0) {
            return Err(ApiError::invalid("max_output_tokens", "must be at least 1"));
        }
        Ok(Self {
            input,
            instructions: fields.take("instructions")?,
            previous: fields.take("previous_response_id")?,
            is_stored: fields.take("store")?.unwrap_or(true),
            is_streamed: fields.take("stream")?.unwrap_or(false),
            max_tokens,
            top: top.or(has_log_probabilities.then_some(0)),
        })
    }

    /// Adds what the response repeats.
    fn echo_into(&self, object: &mut Map<String, Value>) {
        object.insert("instructions".to_owned(), json!(self.instructions));
        object.insert("max_output_tokens".to_owned(), json!(self.max_tokens));
        object.insert("previous_response_id".to_owned(), json!(self.previous));
        object.insert("store".to_owned(), json!(self.is_stored));
        object.insert("top_logprobs".to_owned(), json!(self.top.unwrap_or(0)));
    }
}

/// A request.
struct ResponseRequest {
    model: Option<String>,
    allow_fallback: bool,
    own: ResponseFields,
    echoed: EchoedFields,
    options: ChatOptions,
    sampling: SamplingFields,
}

impl ResponseRequest {
    fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = body::fields(body)?;
        let model = fields.take("model")?;
        let allow_fallback = fields.take("allow_fallback")?.unwrap_or(false);
        let own = ResponseFields::take(&mut fields)?;
        let echoed = EchoedFields::take(&mut fields)?;
        let options = echoed.chat_options()?;
        if fields.has("max_tokens") {
            return Err(ApiError::invalid("max_tokens", "unknown field; use `max_output_tokens`"));
        }
        let mut sampling = SamplingFields::take(fields)?;
        if sampling.choices() != 1 {
            return Err(ApiError::invalid("n", "a request has one response"));
        }
        sampling.limit(own.max_tokens);
        Ok(Self { model, allow_fallback, own, echoed, options, sampling })
    }
}

/// Reads the body of a request.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_untrusted(body: &[u8]) {
    let _ = ResponseRequest::read(body);
}

/// Answers a request.
pub(crate) async fn create(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let request = call.state.run_blocking(move || ResponseRequest::read(&body)).await??;
    let ResponseRequest { model, allow_fallback, mut own, echoed, options, sampling } = request;
    let model = call.select_model(model, allow_fallback)?;
    model.decoder()?;
    let mut conversation = match &own.previous {
        Some(id) => stored(&call, id).map_err(ApiError::about_previous_response)?.messages.clone(),
        None => Vec::new(),
    };
    conversation.append(&mut own.input.messages);
    // Instructions are those of this request, not a part of the conversation.
    let instructions = own.instructions.iter().map(|text| Message::new("system", text.as_str()));
    let messages: Vec<Message> = instructions.chain(conversation.iter().cloned()).collect();
    let names = FieldNames { prompt: "input", structured_output: "text.format" };
    let opened = model.model.clone();
    let chat = call.state.run_blocking(move || opened.chat(&messages, &options)).await?;
    let chat = chat.map_err(|error| names.locate(error))?;
    let mut variants = sampling.variants(own.top, None, false, &call, &model.model)?;
    variants.iter_mut().for_each(|request| request.set_chat(&chat));
    let mut base = echoed.into_object();
    own.echo_into(&mut base);
    sampling_into(&mut base, &variants[0].sampler);
    let prompt = PromptInput::Tokens(chat.tokens.clone());
    let choices = Choices::submit(&call, &model, vec![prompt], variants, names).await?;
    let storage = own.is_stored.then(|| Storage {
        state: Arc::clone(&call.state),
        client: call.client.name().map(str::to_owned),
        messages: conversation,
        input_items: own.input.items,
    });
    let mut renderer = ResponsesRenderer::new(&chat, base, own.top.is_some(), storage);
    if !own.is_streamed {
        return renderer.whole(choices).await;
    }
    let first = renderer.first_events(&choices);
    let chunks = ChunkStream::new(choices, renderer, first);
    Ok(response::stream(EventStream::new(StreamFormat::TypedEvents, Box::new(chunks))))
}

fn sampling_into(object: &mut Map<String, Value>, sampler: &SamplerOptions) {
    // As the client wrote them: 0.7 rather than 0.699999988.
    let short = |value: f32| json!(value.to_string().parse::<f64>().unwrap_or_default());
    object.insert("temperature".to_owned(), short(sampler.temperature));
    object.insert("top_p".to_owned(), short(sampler.top_p));
}

/// Returns a stored response.
pub(crate) async fn retrieve(call: Call) -> Result<Response, ApiError> {
    if call.query("stream")?.is_some_and(|stream| stream != "false") {
        return Err(ApiError::invalid("stream", "stored responses cannot be streamed"));
    }
    let object = stored(&call, call.argument(0))?.object.clone();
    Ok(response::bytes(StatusCode::OK, "application/json", object.into()))
}

/// Removes a stored response.
pub(crate) async fn delete(call: Call) -> Result<Response, ApiError> {
    let id = call.argument(0);
    match call.state.responses().remove(id, call.client.name()) {
        true => Ok(response::json(StatusCode::OK, &json!({"id": id, "object": "response", "deleted": true}))),
        false => Err(not_found(id)),
    }
}

/// Rejects the cancellation: background responses are not supported.
pub(crate) async fn cancel(call: Call) -> Result<Response, ApiError> {
    stored(&call, call.argument(0))?;
    let message = "only background responses can be canceled, and `background` is not supported";
    Err(ApiError::rejected(StatusCode::BAD_REQUEST, message))
}

/// Returns what a request added to its conversation, a page at a time.
pub(crate) async fn input_items(call: Call) -> Result<Response, ApiError> {
    let stored = stored(&call, call.argument(0))?;
    let mut items: Vec<&(String, String)> = stored.input_items.iter().collect();
    match call.query("order")?.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::invalid("order", "expected asc or desc")),
    }
    if let Some(after) = call.query("after")? {
        let index = items.iter().position(|(id, _)| *id == after);
        let index = index.ok_or_else(|| ApiError::invalid("after", format!("no item `{after}`")))?;
        items.drain(..=index);
    }
    let limit = call.query("limit")?.map_or(Ok(20), |limit| limit.parse::<usize>());
    let limit = limit.ok().filter(|limit| (1..=100).contains(limit));
    let limit = limit.ok_or_else(|| ApiError::invalid("limit", "expected 1 to 100"))?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let data: Vec<Value> = items.iter().filter_map(|(_, item)| serde_json::from_str(item).ok()).collect();
    let object = json!({
        "object": "list",
        "first_id": items.first().map(|(id, _)| id),
        "last_id": items.last().map(|(id, _)| id),
        "has_more": has_more,
        "data": data,
    });
    Ok(response::json(StatusCode::OK, &object))
}

fn stored(call: &Call, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
    call.state.responses().get(id, call.client.name()).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ApiError {
    let message = format!("no response `{id}`: it was not stored, was deleted, or has been evicted");
    ApiError::rejected(StatusCode::NOT_FOUND, message)
}

/// Rejects what changes results and is not supported, and takes the values of these fields that change none.
fn reject_unsupported(fields: &mut JsonFields<'_>) -> Result<(), ApiError> {
    if fields.take("background")?.unwrap_or(false) {
        return Err(ApiError::invalid("background", "must be false: background responses are not supported"));
    }
    let truncation: Option<String> = fields.take("truncation")?;
    if truncation.is_some_and(|truncation| truncation != "disabled") {
        return Err(ApiError::invalid("truncation", "only `disabled` is supported"));
    }
    let _obfuscation: Option<&RawValue> = fields.take("stream_options")?;
    Ok(())
}

/// Takes `include`; returns whether log-probabilities are returned.
fn take_include(fields: &mut JsonFields<'_>) -> Result<bool, ApiError> {
    let include: Vec<String> = fields.take("include")?.unwrap_or_default();
    let mut has_log_probabilities = false;
    for what in include {
        match what.as_str() {
            "message.output_text.logprobs" => has_log_probabilities = true,
            // Reasoning is not encrypted, and is always returned.
            "reasoning.encrypted_content" => {}
            other => return Err(ApiError::invalid("include", format!("`{other}` is not supported"))),
        }
    }
    Ok(has_log_probabilities)
}
