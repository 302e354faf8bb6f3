//! `POST /api/embed`, and the older `POST /api/embeddings`.

use std::sync::Arc;
use std::time::Instant;

use hyper::StatusCode;
use serde_json::json;
use siskin_format::JsonFields;

use super::options::RequestOptions;
use super::{find_named, keep_alive};
use crate::body::{self, OneOrMany};
use crate::call::Call;
use crate::embedding::{self, EmbeddingFields, EmbeddingInput, Embeddings};
use crate::error::ApiError;
use crate::models::RegisteredModel;
use crate::response::{self, Response};

/// Takes the fields that both routes have. Returns the model, and its name in the response.
fn take_model(call: &Call, fields: &mut JsonFields<'_>) -> Result<(Arc<RegisteredModel>, String), ApiError> {
    let name: String = fields.take_required("model")?;
    let (model, name) = find_named(call, name)?;
    keep_alive::take_unload(fields)?;
    // None changes an embedding.
    RequestOptions::take(fields, &model)?;
    Ok((model, name))
}

/// Returns the embeddings of one or more texts.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let start = Instant::now();
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let (model, name) = take_model(&call, &mut fields)?;
    model.encoder()?;
    let input: Option<OneOrMany<String>> = fields.take("input")?;
    let dimensions: Option<usize> = fields.take("dimensions")?;
    let is_truncated = fields.take("truncate")?.unwrap_or(true);
    fields.finish()?;
    // As in Ollama, an empty text only loads the model.
    let texts = match input {
        None => Vec::new(),
        Some(OneOrMany::One(text)) if text.is_empty() => Vec::new(),
        Some(input) => input.to_vec(),
    };
    let Embeddings { vectors, token_count } = match texts.is_empty() {
        true => Embeddings { vectors: Vec::new(), token_count: 0 },
        false => {
            // As in Ollama, 0 stands for all.
            let dimensions = dimensions.filter(|dimensions| *dimensions > 0);
            let options = EmbeddingFields { input: "input", dimensions, is_truncated };
            embedding::embed(&call, &model, EmbeddingInput::Texts(texts), options).await?
        }
    };
    let respond = move || {
        let total = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let object = json!({
            "model": name,
            "embeddings": vectors,
            "total_duration": total,
            "load_duration": 0,
            "prompt_eval_count": token_count,
        });
        response::json(StatusCode::OK, &object)
    };
    call.state.run_blocking(respond).await
}

/// Returns the embedding of a text.
pub(crate) async fn answer_one(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let (model, _) = take_model(&call, &mut fields)?;
    model.encoder()?;
    let text: String = fields.take("prompt")?.unwrap_or_default();
    fields.finish()?;
    if text.is_empty() {
        return Ok(response::json(StatusCode::OK, &json!({"embedding": []})));
    }
    let options = EmbeddingFields { input: "prompt", dimensions: None, is_truncated: true };
    let Embeddings { vectors, .. } =
        embedding::embed(&call, &model, EmbeddingInput::Texts(vec![text]), options).await?;
    Ok(response::json(StatusCode::OK, &json!({"embedding": vectors.first()})))
}
