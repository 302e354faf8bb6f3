//! The OpenAI API: chat completions, completions, embeddings and models.
//!
//! Fields that change results and are not supported are errors; nothing is ignored but what has no effect here.

pub(crate) mod chat;
mod choices;
pub(crate) mod completions;
pub(crate) mod embeddings;

mod log_probabilities;
pub(crate) mod model_list;

mod sampling;

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;

/// One value, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    fn to_vec(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Many(values) => values.clone(),
        }
    }
}

/// Returns an id that no other response of this process has.
fn response_id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{:08x}{count:08x}", crate::models::unix_time())
}
