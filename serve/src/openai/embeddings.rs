//! `POST /v1/embeddings`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use siskin::encoder::EncoderInput;

use super::TextInput;
use crate::body;
use crate::call::Call;
use crate::embedding::{self, EmbeddingFields, EmbeddingInput, Embeddings};
use crate::error::ApiError;
use crate::response::{self, Response};

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

/// Answers a request.
pub(crate) async fn answer(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    model.encoder()?;
    let input: TextInput = fields.take_required("input")?;
    let encoding = fields.take("encoding_format")?.unwrap_or(Encoding::Float);
    let dimensions: Option<usize> = fields.take("dimensions")?;
    let is_truncated = fields.take("truncate")?.unwrap_or(false);
    fields.ignore(&["user"]);
    fields.finish()?;
    let input = match input {
        TextInput::Text(text) => EmbeddingInput::Texts(vec![text]),
        TextInput::Texts(texts) => EmbeddingInput::Texts(texts),
        TextInput::Tokens(tokens) => EmbeddingInput::Tokens(vec![EncoderInput::from(tokens)]),
        TextInput::TokenLists(lists) => {
            EmbeddingInput::Tokens(lists.into_iter().map(EncoderInput::from).collect())
        }
    };
    let options = EmbeddingFields { input: "input", dimensions, is_truncated };
    let Embeddings { vectors, token_count } = embedding::embed(&call, &model, input, options).await?;
    let respond = move || {
        let data: Vec<Value> =
            vectors.iter().enumerate().map(|(index, vector)| object(index, vector, encoding)).collect();
        let usage = json!({"prompt_tokens": token_count, "total_tokens": token_count});
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
