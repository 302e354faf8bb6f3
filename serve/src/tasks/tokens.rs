//! `POST /tokenize` and `POST /detokenize`, as in vLLM and llama.cpp.

use hyper::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;
use siskin::chat::ChatOptions;
use siskin::tokenizer::{DecodeOptions, EncodeOptions};

use crate::body;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::openai::chat;
use crate::response::{self, Response};

/// The maximum number of tokens of a request.
const MAX_TOKENS: usize = 1 << 18;

/// Returns the tokens of a text or a conversation.
pub(crate) async fn tokenize(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    let field = if fields.has("content") { "content" } else { "prompt" };
    call.client.begin_request()?;
    let messages: Option<Vec<&RawValue>> = fields.take("messages")?;
    let messages = messages.map(|list| chat::messages(&list)).transpose()?;
    let text: Option<String> = fields.take(field)?;
    let add_special = match fields.take("add_special")? {
        Some(is_on) => is_on,
        None => fields.take("add_special_tokens")?.unwrap_or(true),
    };
    let parse_special = fields.take("parse_special")?.unwrap_or(true);
    let returns_texts: bool = fields.take("return_token_strs")?.unwrap_or(false);
    fields.finish()?;
    let (opened, max_length) = (model.model.clone(), model.context_length);
    let names =
        FieldNames { prompt: if messages.is_some() { "messages" } else { field }, structured_output: "" };
    let tokenize = move || {
        let tokenizer = opened.tokenizer()?;
        let tokens = match (messages, text) {
            (Some(messages), None) => opened.chat(&messages, &ChatOptions::default())?.tokens,
            (None, Some(text)) => tokenizer.encode(&text, EncodeOptions { add_special, parse_special })?,
            _ => return Err(siskin::Error::argument("prompt", "expected either a text or messages")),
        };
        if tokens.len() > MAX_TOKENS {
            let message = format!("{} tokens; at most {MAX_TOKENS} are returned", tokens.len());
            return Err(siskin::Error::argument("prompt", message));
        }
        let text = |id: &u32| tokenizer.piece(*id, true).map(|piece| lossy(&piece));
        let texts = returns_texts.then(|| tokens.iter().map(text).collect::<siskin::Result<Vec<_>>>());
        let object = json!({
            "count": tokens.len(),
            "max_model_len": max_length,
            "tokens": tokens,
            "token_strs": texts.transpose()?,
        });
        Ok(response::json(StatusCode::OK, &object))
    };
    let outcome: siskin::Result<Response> = call.state.run_blocking(tokenize).await?;
    outcome.map_err(|error| names.locate(error))
}

/// Returns the text of tokens.
pub(crate) async fn detokenize(mut call: Call) -> Result<Response, ApiError> {
    let body = call.read_body().await?;
    let mut fields = body::fields(&body)?;
    let model = call.take_model(&mut fields)?;
    call.client.begin_request()?;
    let tokens: Vec<u32> = fields.take_required("tokens")?;
    fields.finish()?;
    if tokens.len() > MAX_TOKENS {
        return Err(ApiError::invalid(
            "tokens",
            format!("expected at most {MAX_TOKENS}, got {}", tokens.len()),
        ));
    }
    let opened = model.model.clone();
    let decode = move || {
        let options = DecodeOptions { skip_special: false };
        opened.tokenizer()?.decode(&tokens, options)
    };
    let bytes = call
        .state
        .run_blocking(decode)
        .await?
        .map_err(|error| FieldNames { prompt: "tokens", structured_output: "" }.locate(error))?;
    let text = lossy(&bytes);
    Ok(response::json(StatusCode::OK, &json!({"prompt": text, "content": text})))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
