//! Generation of text, whatever the API of the request: sampling fields, the choices of a response, and streams of them.

mod call_ids;
mod choices;
mod chunk_stream;
mod log_probabilities;
mod sampling;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::unix_time;

pub(crate) use call_ids::CallIds;
pub(crate) use choices::{ChoiceEvent, Choices};
pub(crate) use chunk_stream::{ChunkRenderer, ChunkStream};
pub(crate) use log_probabilities::{finite, token_entry, token_text};
pub(crate) use sampling::{SamplingFields, Streaming, take_top_log_probabilities};

/// Returns an id that no other object of this process has.
pub(crate) fn unique_id(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{:08x}{count:08x}", unix_time())
}
