//! Log-probabilities in responses.

use serde_json::{Value, json};
use siskin::sample::SampledToken;
use siskin::tokenizer::Tokenizer;

/// A token as bytes, and as text in which U+FFFD replaces invalid bytes.
pub(crate) fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> (Vec<u8>, String) {
    let bytes = tokenizer.and_then(|tokenizer| tokenizer.piece(id, true).ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (bytes.into_owned(), text)
}

/// Returns the log-probabilities of a token and of the most likely ones, as chats in OpenAI's and Ollama's API have them.
pub(crate) fn token_entry(tokenizer: Option<&Tokenizer>, token: SampledToken, top: &[SampledToken]) -> Value {
    let entry = |token: &SampledToken| {
        let (bytes, text) = token_text(tokenizer, token.id);
        json!({"token": text, "logprob": finite(token.log_probability), "bytes": bytes})
    };
    let mut object = entry(&token);
    object["top_logprobs"] = top.iter().map(entry).collect();
    object
}

/// JSON has no infinity: OpenAI reports -9999 for tokens that were impossible.
pub(crate) fn finite(log_probability: f32) -> Value {
    json!(log_probability.max(-9999.0))
}
