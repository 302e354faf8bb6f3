//! `POST /v1/translate` and `POST /v1/summarize`.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};
use siskin::beam_search::SearchOptions;
use siskin::seq2seq::GeneratedText;
use siskin::{FinishReason, Model, Seq2SeqGenerateOptions};
use siskin_format::JsonFields;

use super::{run, take_texts};
use crate::body;
use crate::call::Call;
use crate::error::ApiError;
use crate::generation::unique_id;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// The maximum number of beams: each has its part of the KV cache.
const MAX_BEAMS: usize = 16;

/// Translates texts.
pub(crate) async fn translate(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let source: Option<String> = fields.take("source_language")?;
    let target: Option<String> = fields.take("target_language")?;
    let options =
        move |model: &Model| Seq2SeqGenerateOptions::translation(model, source.as_deref(), target.as_deref());
    generate(&call, &model, fields, options).await
}

/// Summarizes texts.
pub(crate) async fn summarize(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    generate(&call, &model, fields, Seq2SeqGenerateOptions::summary).await
}

/// How texts are generated.
pub(crate) struct Seq2SeqFields {
    beams: Option<usize>,
    max_tokens: Option<usize>,
    length_penalty: Option<f32>,
}

impl Seq2SeqFields {
    pub(crate) fn take(fields: &mut JsonFields<'_>) -> Result<Self, ApiError> {
        let beams: Option<usize> = fields.take("num_beams")?;
        if beams.is_some_and(|beams| !(1..=MAX_BEAMS).contains(&beams)) {
            return Err(ApiError::invalid("num_beams", format!("expected 1 to {MAX_BEAMS}")));
        }
        Ok(Self {
            beams,
            max_tokens: fields.take("max_tokens")?,
            length_penalty: fields.take("length_penalty")?,
        })
    }
}

/// Generates a text from each of `texts`, the field `input` of the request. `options` are those of the model, which
/// `fields` replace.
pub(crate) async fn generate_texts(
    call: &Call,
    model: &RegisteredModel,
    (input, texts): (&'static str, Vec<String>),
    fields: Seq2SeqFields,
    options: impl FnOnce(&Model) -> siskin::Result<Seq2SeqGenerateOptions> + Send + 'static,
) -> Result<Vec<Option<GeneratedText>>, ApiError> {
    let limit = call.state.max_tokens;
    let work = move |seq2seq: &mut siskin::Seq2Seq| {
        let mut options = options(seq2seq.model())?;
        let SearchOptions { max_tokens: usual, .. } = options.search;
        options.search.max_tokens = fields.max_tokens.unwrap_or(usual).min(limit);
        options.search.beams = fields.beams.unwrap_or(options.search.beams);
        options.search.length_penalty = fields.length_penalty.unwrap_or(options.search.length_penalty);
        seq2seq.generate(&texts, &options)
    };
    let all = run(call, model, model.seq2seq()?, input, work).await?;
    let best: Vec<_> = all.into_iter().map(|candidates| candidates.into_iter().next()).collect();
    let tokens = token_count(&best);
    model.metrics.record_generated(tokens);
    call.client.count_tokens(tokens);
    Ok(best)
}

fn token_count(texts: &[Option<GeneratedText>]) -> usize {
    texts.iter().flatten().map(|text| text.tokens.len()).sum()
}

async fn generate(
    call: &Call,
    model: &Arc<RegisteredModel>,
    mut fields: JsonFields<'_>,
    options: impl FnOnce(&Model) -> siskin::Result<Seq2SeqGenerateOptions> + Send + 'static,
) -> Result<Response, ApiError> {
    let texts = take_texts(&mut fields, "input")?;
    let given = Seq2SeqFields::take(&mut fields)?;
    fields.ignore(&["user"]);
    fields.finish()?;
    let texts = generate_texts(call, model, ("input", texts), given, options).await?;
    let data: Vec<Value> =
        texts.iter().enumerate().map(|(index, text)| object(index, text.as_ref())).collect();
    let list = json!({
        "id": unique_id("text-"),
        "object": "list",
        "model": model.name,
        "system_fingerprint": model.fingerprint,
        "data": data,
        "usage": {"completion_tokens": token_count(&texts)},
    });
    Ok(response::json(StatusCode::OK, &list))
}

fn object(index: usize, text: Option<&GeneratedText>) -> Value {
    let reason = |text: &GeneratedText| match text.finish_reason {
        FinishReason::Eos | FinishReason::Stop => "stop",
        _ => "length",
    };
    json!({
        "index": index,
        "text": text.map_or("", |text| &text.text),
        "score": text.map(|text| text.score),
        "finish_reason": text.map(reason),
    })
}
