//! The OpenAI API: chat completions, completions, embeddings and models.
//!
//! Fields that change results and are not supported are errors; nothing is ignored but what has no effect here.

pub(crate) mod audio;
pub(crate) mod chat;
mod chat_message;
pub(crate) mod completions;
pub(crate) mod embeddings;
mod log_probabilities;
pub(crate) mod model_list;
pub(crate) mod responses;
mod structured_output;
mod subtitles;
mod transcript_stream;
mod usage_chunks;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::generation::unique_id;
use crate::models::RegisteredModel;
use crate::time::unix_time;

/// One text or several, each as text or as token ids.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text, a list of texts, or lists of token ids")]
enum TextInput {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

/// What all objects of a response have.
struct ResponseHeader {
    id: String,
    created: u64,
}

impl ResponseHeader {
    fn new(prefix: &str) -> Self {
        Self { id: unique_id(prefix), created: unix_time() }
    }

    /// Returns an object with the given choices.
    fn object(&self, model: &RegisteredModel, kind: &str, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": model.name,
            "system_fingerprint": model.fingerprint,
            "choices": choices,
        })
    }
}
