//! The OpenAI API: chat completions, completions, embeddings and models.
//!
//! Fields that change results and are not supported are errors; nothing is ignored but what has no effect here.

pub(crate) mod audio;
pub(crate) mod chat;
mod chat_message;
mod choices;
pub(crate) mod completions;
pub(crate) mod embeddings;

mod log_probabilities;
pub(crate) mod model_list;

mod sampling;
mod structured_output;
mod subtitles;

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::models::{RegisteredModel, unix_time};

/// One value, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    pub(crate) fn to_vec(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Many(values) => values.clone(),
        }
    }
}

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
        Self { id: response_id(prefix), created: unix_time() }
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

/// Returns an id that no other response of this process has.
pub(crate) fn response_id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{:08x}{count:08x}", unix_time())
}
