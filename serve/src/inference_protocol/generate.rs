//! `POST /v2/models/NAME/generate` and `POST /v2/models/NAME/generate_stream`.

use std::collections::VecDeque;

use hyper::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use siskin::serving::PromptInput;

use super::infer::sampling_of;
use super::{VERSION, model_in_path};
use crate::body;
use crate::call::Call;
use crate::error::{ApiError, ErrorFormat, FieldNames};
use crate::event_stream::{EventStream, StreamFormat};
use crate::generation::{ChoiceEvent, Choices, ChunkRenderer, ChunkStream};
use crate::response::{self, Response};

const TEXT_INPUT: &str = "text_input";

/// Returns the continuation of a text.
pub(crate) async fn answer(call: Call) -> Result<Response, ApiError> {
    let (mut choices, renderer) = submit(call, false).await?;
    let (mut whole, mut reason) = (String::new(), None);
    while let Some(event) = choices.next_event().await {
        let (text, end) = text_of(event?.1);
        whole.push_str(&text);
        reason = end;
    }
    Ok(response::json(StatusCode::OK, &renderer.object(&whole, reason)))
}

/// Returns the continuation of a text while it is generated.
pub(crate) async fn answer_streamed(call: Call) -> Result<Response, ApiError> {
    let (choices, renderer) = submit(call, true).await?;
    let chunks = ChunkStream::new(choices, renderer, VecDeque::new());
    Ok(response::stream(EventStream::new(StreamFormat::Events, Box::new(chunks))))
}

async fn submit(mut call: Call, is_streamed: bool) -> Result<(Choices, ContinuationRenderer), ApiError> {
    let model = model_in_path(&call)?;
    model.decoder()?;
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let text: String = fields.take_required(TEXT_INPUT)?;
    let id: Option<String> = fields.take("id")?;
    let parameters: Option<&RawValue> = fields.take("parameters")?;
    fields.finish()?;
    let mut parameters = body::fields(parameters.map_or("{}", RawValue::get).as_bytes())
        .map_err(|_| ApiError::invalid("parameters", "expected a JSON object"))?;
    let in_parameters = |error: ApiError| error.renamed(|name| format!("parameters.{name}"));
    let stream: Option<bool> = parameters.take("stream").map_err(|error| in_parameters(error.into()))?;
    if stream.is_some_and(|stream| stream != is_streamed) {
        let message = "differs from the route: /generate does not stream, /generate_stream does";
        return Err(ApiError::invalid("parameters.stream", message));
    }
    let sampling = sampling_of(parameters).map_err(in_parameters)?;
    let variants = sampling.variants(None, None, false, &call, &model.model).map_err(in_parameters)?;
    let names = FieldNames { prompt: TEXT_INPUT, structured_output: "" };
    let prompts = vec![PromptInput::TextWithSpecialTokens(text)];
    let choices = Choices::submit(&call, &model, prompts, variants, names).await?;
    Ok((choices, ContinuationRenderer { model: model.name.clone(), id }))
}

/// Returns the text and the end of an event.
fn text_of(event: ChoiceEvent) -> (String, Option<&'static str>) {
    match event {
        ChoiceEvent::Prompt { .. } => (String::new(), None),
        ChoiceEvent::Token { text, .. } => (text, None),
        ChoiceEvent::End { text, finish_reason, .. } => (text, Some(finish_reason)),
    }
}

/// Writes the objects of a response.
struct ContinuationRenderer {
    model: String,
    id: Option<String>,
}

impl ContinuationRenderer {
    fn object(&self, text: &str, reason: Option<&str>) -> Value {
        let mut object = json!({"model_name": self.model, "model_version": VERSION, "text_output": text});
        if let Some(id) = &self.id {
            object["id"] = id.as_str().into();
        }
        if let Some(reason) = reason {
            object["finish_reason"] = reason.into();
        }
        object
    }
}

impl ChunkRenderer for ContinuationRenderer {
    fn render(&mut self, _: &Choices, _: usize, event: ChoiceEvent, chunks: &mut VecDeque<Value>) {
        let (text, reason) = text_of(event);
        if !text.is_empty() || reason.is_some() {
            chunks.push_back(self.object(&text, reason));
        }
    }

    fn fail(&mut self, _: &Choices, error: &ApiError, chunks: &mut VecDeque<Value>) {
        chunks.push_back(error.body_in(ErrorFormat::Message));
    }
}
