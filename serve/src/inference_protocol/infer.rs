//! `POST /v2/models/NAME/infer`.

use std::sync::Arc;

use siskin::Seq2SeqGenerateOptions;
use siskin::serving::PromptInput;
use siskin_format::JsonFields;

use super::infer_request::InferRequest;
use super::infer_response::{self, OutputTensor, check_outputs};
use super::tensor_data::OutputData;
use super::{EMBEDDING, HEADER_LENGTH, LABEL, SCORE, TEXT, TensorOutputs, model_in_path};
use crate::body;
use crate::call::Call;
use crate::embedding::{self, EmbeddingFields, EmbeddingInput};
use crate::error::{ApiError, FieldNames};
use crate::generation::{ChoiceEvent, Choices, SamplingFields};
use crate::models::{ModelTask, RegisteredModel};
use crate::response::Response;
use crate::tasks::translate::{Seq2SeqFields, generate_texts};
use crate::tasks::{check_count, classify, take_overflow};

/// The field with the texts.
const DATA: &str = "inputs[0].data";
/// The maximum number of prompts of a decoder.
const MAX_PROMPTS: usize = 64;

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let model = model_in_path(&call)?;
    let header_bytes = header_length(&call)?;
    let body = call.read_body().await?;
    let mut request = InferRequest::parse(&body, header_bytes)?;
    if let Some(name) =
        request.model_name.as_ref().filter(|name| **name != model.name && *name != call.argument(0))
    {
        let message = format!("`{name}` is not the model in the path, `{}`", model.name);
        return Err(ApiError::invalid("model_name", message));
    }
    let outputs = TensorOutputs::of(&model);
    check_outputs(&request.outputs, outputs.names())?;
    let texts = std::mem::take(&mut request.texts);
    let parameters = std::mem::take(&mut request.parameters);
    let tensors = outputs_of(&call, &model, texts, &parameters).await?;
    let name = model.name.clone();
    call.state.run_blocking(move || infer_response::write(&name, &request, &tensors)).await
}

/// Returns the length of the JSON, if the headers have it.
fn header_length(call: &Call) -> Result<Option<usize>, ApiError> {
    let Some(value) = call.headers().get(HEADER_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| ApiError::invalid(HEADER_LENGTH, "expected a number of bytes"))
}

/// Returns the tensors that a model makes from texts.
async fn outputs_of(
    call: &Call,
    model: &Arc<RegisteredModel>,
    texts: Vec<String>,
    parameters: &str,
) -> Result<Vec<OutputTensor>, ApiError> {
    let fields = body::fields(parameters.as_bytes())?;
    let in_parameters = |error: ApiError| {
        error.renamed(|name| match name.starts_with("inputs") || name == "model" {
            true => name.to_owned(),
            false => format!("parameters.{name}"),
        })
    };
    let outputs = match (&model.task, TensorOutputs::of(model)) {
        (ModelTask::Decoder(_), _) => continuations(call, model, texts, fields).await,
        (ModelTask::Encoder(..), TensorOutputs::Class) => classes(call, model, texts, fields).await,
        (ModelTask::Encoder(..), _) => embeddings(call, model, texts, fields).await,
        (ModelTask::Seq2Seq(_) | ModelTask::Speech(_), _) => {
            generated_texts(call, model, texts, fields).await
        }
    };
    outputs.map_err(in_parameters)
}

fn text_tensor(name: &'static str, texts: Vec<String>) -> OutputTensor {
    OutputTensor { name, shape: vec![texts.len()], data: OutputData::Bytes(texts) }
}

/// Continues texts.
async fn continuations(
    call: &Call,
    model: &Arc<RegisteredModel>,
    texts: Vec<String>,
    fields: JsonFields<'_>,
) -> Result<Vec<OutputTensor>, ApiError> {
    if !(1..=MAX_PROMPTS).contains(&texts.len()) {
        let message = format!("expected 1 to {MAX_PROMPTS} texts, got {}", texts.len());
        return Err(ApiError::invalid(DATA, message));
    }
    let sampling = sampling_of(fields)?;
    let variants = sampling.variants(None, None, false, call, &model.model)?;
    let prompts: Vec<PromptInput> = texts.into_iter().map(PromptInput::TextWithSpecialTokens).collect();
    let names = FieldNames { prompt: DATA, structured_output: "" };
    let mut choices = Choices::submit(call, model, prompts, variants, names).await?;
    let mut texts = vec![String::new(); choices.count()];
    while let Some(event) = choices.next_event().await {
        if let (index, ChoiceEvent::Token { text, .. } | ChoiceEvent::End { text, .. }) = event? {
            texts[index].push_str(&text);
        }
    }
    Ok(vec![text_tensor(TEXT, texts)])
}

/// Takes the sampling fields of a request with one choice.
pub(super) fn sampling_of(fields: JsonFields<'_>) -> Result<SamplingFields, ApiError> {
    let sampling = SamplingFields::take(fields)?;
    if sampling.choices() != 1 {
        return Err(ApiError::invalid("n", "is not supported; repeat the text"));
    }
    // Triton's has another meaning than that of the OpenAI API.
    match sampling.priority {
        None => Ok(sampling),
        Some(_) => Err(ApiError::invalid("priority", "is not supported")),
    }
}

async fn embeddings(
    call: &Call,
    model: &Arc<RegisteredModel>,
    texts: Vec<String>,
    mut fields: JsonFields<'_>,
) -> Result<Vec<OutputTensor>, ApiError> {
    let options = EmbeddingFields {
        input: DATA,
        dimensions: fields.take("dimensions")?,
        is_truncated: fields.take("truncate")?.unwrap_or(false),
    };
    fields.finish()?;
    let vectors = embedding::embed(call, model, EmbeddingInput::Texts(texts), options).await?.vectors;
    let shape = vec![vectors.len(), vectors.first().map_or(0, Vec::len)];
    Ok(vec![OutputTensor { name: EMBEDDING, shape, data: OutputData::Fp32(vectors.concat()) }])
}

async fn classes(
    call: &Call,
    model: &RegisteredModel,
    texts: Vec<String>,
    mut fields: JsonFields<'_>,
) -> Result<Vec<OutputTensor>, ApiError> {
    check_count(DATA, texts.len())?;
    let overflow = take_overflow(&mut fields)?;
    fields.finish()?;
    let (all, _) = classify::classify(call, model, (DATA, texts), overflow).await?;
    let best = all.into_iter().filter_map(|classes| classes.into_iter().next());
    let (labels, scores): (Vec<String>, Vec<f32>) = best.map(|best| (best.label, best.probability)).unzip();
    let scores = OutputTensor { name: SCORE, shape: vec![scores.len()], data: OutputData::Fp32(scores) };
    Ok(vec![text_tensor(LABEL, labels), scores])
}

/// Makes texts from texts: translations if the parameters name a language.
async fn generated_texts(
    call: &Call,
    model: &RegisteredModel,
    texts: Vec<String>,
    mut fields: JsonFields<'_>,
) -> Result<Vec<OutputTensor>, ApiError> {
    check_count(DATA, texts.len())?;
    let source: Option<String> = fields.take("source_language")?;
    let target: Option<String> = fields.take("target_language")?;
    let given = Seq2SeqFields::take(&mut fields)?;
    fields.finish()?;
    let options = move |model: &siskin::Model| match source.is_some() || target.is_some() {
        true => Seq2SeqGenerateOptions::translation(model, source.as_deref(), target.as_deref()),
        false => Seq2SeqGenerateOptions::of(model),
    };
    let all = generate_texts(call, model, (DATA, texts), given, options).await?;
    let texts = all.into_iter().map(|text| text.map_or_else(String::new, |text| text.text)).collect();
    Ok(vec![text_tensor(TEXT, texts)])
}
