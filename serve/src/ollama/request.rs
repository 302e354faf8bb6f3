//! The fields that `/api/generate` and `/api/chat` share.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde_json::value::RawValue;
use siskin::Model;
use siskin::chat::{ChatOptions, ChatPrompt};
use siskin::constraint::StructuredOutput;
use siskin::serving::{GenerationRequest, PromptInput};
use siskin::template::Message;
use siskin_format::JsonFields;

use super::options::RequestOptions;
use super::renderer::{ResponseRenderer, TextRoute};
use super::{find_named, keep_alive};
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::generation::{Choices, ChunkStream, take_top_log_probabilities};
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// The levels of `think`.
const LEVELS: [&str; 3] = ["low", "medium", "high"];

/// `think`: whether the model reasons before it responds, and how much.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false, `low`, `medium` or `high`")]
enum Think {
    Switch(bool),
    Level(String),
}

/// A request to generate text.
pub(super) struct OllamaTextRequest {
    pub(super) model: Arc<RegisteredModel>,
    /// The name by which the request selects the model.
    model_name: String,
    /// When the request arrived.
    start: Instant,
    is_streamed: bool,
    /// The model is to be unloaded after the response.
    unloads: bool,
    options: RequestOptions,
    format: Option<StructuredOutput>,
    think: Option<Think>,
    /// The number of most likely tokens to report; `None`: no log-probabilities.
    top: Option<usize>,
}

impl OllamaTextRequest {
    /// Takes the fields.
    pub(super) fn take(call: &Call, fields: &mut JsonFields<'_>) -> Result<Self, ApiError> {
        let start = Instant::now();
        let model_name: String = fields.take_required("model")?;
        let (model, model_name) = find_named(call, model_name)?;
        let has_log_probabilities = fields.take("logprobs")?.unwrap_or(false);
        let top = take_top_log_probabilities(fields, "top_logprobs")?.unwrap_or(0);
        if top > 0 && !has_log_probabilities {
            return Err(ApiError::invalid("top_logprobs", "requires `logprobs`"));
        }
        if fields.take("shift")?.unwrap_or(false) {
            let message = "is not supported: a response ends when the context is full";
            return Err(ApiError::invalid("shift", message));
        }
        // Prompts that are too long are errors, whatever it is.
        let _truncate: Option<bool> = fields.take("truncate")?;
        Ok(Self {
            options: RequestOptions::take(fields, &model)?,
            model,
            model_name,
            start,
            is_streamed: fields.take("stream")?.unwrap_or(true),
            unloads: keep_alive::take_unload(fields)?,
            format: take_format(fields)?,
            think: fields.take("think")?,
            top: has_log_probabilities.then_some(top),
        })
    }

    /// Returns the response to a request without a prompt, which loads or unloads a model in Ollama.
    pub(super) fn loaded(&self, route: TextRoute) -> Response {
        let reason = if self.unloads { "unload" } else { "load" };
        self.renderer(route).loaded(reason)
    }

    fn renderer(&self, route: TextRoute) -> ResponseRenderer {
        ResponseRenderer::new(route, self.model_name.clone(), self.start, self.top.is_some())
    }

    /// Generates the response to a conversation.
    pub(super) async fn respond_to_chat(
        mut self,
        call: &Call,
        messages: Vec<Message>,
        mut options: ChatOptions,
        route: TextRoute,
    ) -> Result<Response, ApiError> {
        self.model.decoder()?;
        let prompt = if route == TextRoute::Chat { "messages" } else { "prompt" };
        let names = FieldNames { prompt, structured_output: "format" };
        options.structured_output = self.format.take();
        let (model, think, name) = (self.model.model.clone(), self.think.take(), self.model_name.clone());
        let render = move || -> Result<ChatPrompt, ApiError> {
            set_think(&mut options, think.as_ref(), &model, &name)?;
            model.chat(&messages, &options).map_err(|error| names.locate(error))
        };
        let chat = call.state.run_blocking(render).await??;
        let mut request = self.options.request(self.top, call, &self.model)?;
        request.set_chat(&chat);
        let renderer = self.renderer(route).with_chat(&chat);
        self.respond(call, request, names, renderer).await
    }

    /// Continues a text.
    pub(super) async fn respond_to_text(
        mut self,
        call: &Call,
        prompt: PromptInput,
    ) -> Result<Response, ApiError> {
        if !matches!(self.think, None | Some(Think::Switch(false))) {
            return Err(ApiError::invalid("think", "needs a chat template"));
        }
        let mut request = self.options.request(self.top, call, &self.model)?;
        request.prompt = prompt;
        request.structured_output = self.format.take();
        let names = FieldNames { prompt: "prompt", structured_output: "format" };
        let renderer = self.renderer(TextRoute::Generate);
        self.respond(call, request, names, renderer).await
    }

    async fn respond(
        self,
        call: &Call,
        request: GenerationRequest,
        names: FieldNames,
        renderer: ResponseRenderer,
    ) -> Result<Response, ApiError> {
        let prompts = vec![request.prompt.clone()];
        let choices = Choices::submit(call, &self.model, prompts, vec![request], names).await?;
        let renderer = renderer.submitted();
        if !self.is_streamed {
            return renderer.whole(choices).await;
        }
        let chunks = ChunkStream::new(choices, renderer, Default::default());
        Ok(response::stream(EventStream::new(StreamFormat::JsonLines, Box::new(chunks))))
    }
}

/// Takes `format`: `json`, or a JSON schema.
fn take_format(fields: &mut JsonFields<'_>) -> Result<Option<StructuredOutput>, ApiError> {
    let Some(format) = fields.take::<&RawValue>("format")? else { return Ok(None) };
    let invalid = || ApiError::invalid("format", "expected `json` or a JSON schema");
    match serde_json::from_str::<String>(format.get()).as_deref() {
        Ok("") => Ok(None),
        Ok("json") => Ok(Some(StructuredOutput::JsonObject)),
        Ok(_) => Err(invalid()),
        Err(_) if format.get().starts_with('{') => {
            Ok(Some(StructuredOutput::JsonSchema(format.get().to_owned())))
        }
        Err(_) => Err(invalid()),
    }
}

/// Sets the variables by which templates turn reasoning on and off.
fn set_think(
    options: &mut ChatOptions,
    think: Option<&Think>,
    model: &Model,
    name: &str,
) -> Result<(), ApiError> {
    let level = match think {
        None => return Ok(()),
        Some(Think::Switch(_)) => None,
        Some(Think::Level(level)) if LEVELS.contains(&level.as_str()) => Some(level.as_str()),
        Some(Think::Level(other)) => {
            let message = format!("`{other}` is not supported; expected true, false, low, medium or high");
            return Err(ApiError::invalid("think", message));
        }
    };
    let is_on = !matches!(think, Some(Think::Switch(false)));
    if is_on && !can_think(model)? {
        return Err(ApiError::invalid("think", format!("`{name}` does not support thinking")));
    }
    let variables = &mut options.template.extra;
    variables.extend(["enable_thinking", "thinking"].map(|name| (name.to_owned(), is_on.into())));
    variables.extend(level.map(|level| ("reasoning_effort".to_owned(), level.into())));
    Ok(())
}

/// Returns whether responses of a model have reasoning.
pub(super) fn can_think(model: &Model) -> siskin::Result<bool> {
    let template = model.template()?;
    Ok(template.is_some_and(|template| {
        let traits = template.traits();
        traits.reasoning.is_some() || traits.format.is_some_and(|format| format.is_harmony())
    }))
}
