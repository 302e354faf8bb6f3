//! `POST /v1/embeddings`.

use std::future::poll_fn;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use siskin::encoder::{EmbedOptions, EncoderInput, OverflowMode};

use super::TextInput;
use crate::body;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::response::{self, Response};

/// The maximum number of texts of a request.
const MAX_TEXTS: usize = 2048;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let start = Instant::now();
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let (id, usual) = model.encoder()?;
    let input: TextInput = fields.take_required("input")?;
    let encoding = fields.take("encoding_format")?.unwrap_or(Encoding::Float);
    let dimensions: Option<usize> = fields.take("dimensions")?;
    let is_truncated = fields.take("truncate")?.unwrap_or(false);
    fields.ignore(&["user"]);
    fields.finish()?;
    if dimensions == Some(0) {
        return Err(ApiError::invalid("dimensions", "must be at least 1"));
    }
    let options = EmbedOptions {
        dimensions: dimensions.unwrap_or(0),
        overflow: if is_truncated { OverflowMode::Truncate } else { OverflowMode::Error },
        ..usual
    };
    let (texts, tokens) = match input {
        TextInput::Text(text) => (vec![text], Vec::new()),
        TextInput::Texts(texts) => (texts, Vec::new()),
        TextInput::Tokens(tokens) => (Vec::new(), vec![EncoderInput::from(tokens)]),
        TextInput::TokenLists(lists) => (Vec::new(), lists.into_iter().map(EncoderInput::from).collect()),
    };
    let count = texts.len() + tokens.len();
    if !(1..=MAX_TEXTS).contains(&count) {
        return Err(ApiError::invalid("input", format!("expected 1 to {MAX_TEXTS} texts, got {count}")));
    }
    call.client.begin_request()?;
    let engine = call.state.models.engine().clone();
    let submit = move || match tokens.is_empty() {
        true => engine.embed(id, &texts, &options),
        false => engine.embed_tokens(id, tokens, &options),
    };
    let submitted = call.state.run_blocking(submit).await?;
    let names = FieldNames { prompt: "input", structured_output: "" };
    let mut embedding = submitted.map_err(|error| {
        model.metrics.record_rejection(&error);
        names.locate(error)
    })?;
    let count = embedding.token_count();
    model.metrics.record_prompt(count);
    call.client.count_tokens(count);
    let outcome = poll_fn(|context| embedding.poll_vectors(context)).await;
    model.metrics.record_task(outcome.is_ok(), start.elapsed());
    let vectors = outcome?;
    let respond = move || {
        let data: Vec<Value> =
            vectors.iter().enumerate().map(|(index, vector)| object(index, vector, encoding)).collect();
        let usage = json!({"prompt_tokens": count, "total_tokens": count});
        let list = json!({"object": "list", "model": model.name, "data": data, "usage": usage});
        response::json(StatusCode::OK, &list)
    };
    call.state.run_blocking(respond).await
}

fn object(index: usize, vector: &[f32], encoding: Encoding) -> Value {
    let embedding = match encoding {
        Encoding::Float => json!(vector),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            json!(BASE64_STANDARD.encode(bytes))
        }
    };
    json!({"object": "embedding", "index": index, "embedding": embedding})
}
