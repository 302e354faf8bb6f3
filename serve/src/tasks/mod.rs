//! Routes for tasks that the OpenAI API lacks: reranking, classification, labels, translation, tokens.

pub(crate) mod classify;
pub(crate) mod rerank;
pub(crate) mod tag;
pub(crate) mod tokens;
pub(crate) mod translate;

use std::sync::Arc;

use siskin::encoder::OverflowMode;
use siskin_format::JsonFields;

use crate::body::OneOrMany;
use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::models::RegisteredModel;
use crate::worker_task::run_on_worker;
use crate::workers::Workers;

/// The maximum number of texts of a request.
const MAX_TEXTS: usize = 1024;

/// Takes the texts of a request.
fn take_texts(fields: &mut JsonFields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    let texts = fields.take_required::<OneOrMany<String>>(name)?.to_vec();
    check_count(name, texts.len())?;
    Ok(texts)
}

pub(crate) fn check_count(name: &str, count: usize) -> Result<(), ApiError> {
    match (1..=MAX_TEXTS).contains(&count) {
        true => Ok(()),
        false => Err(ApiError::invalid(name, format!("expected 1 to {MAX_TEXTS} texts, got {count}"))),
    }
}

/// Takes what is done with texts that are too long for the model: they are errors unless `truncate` is set.
pub(crate) fn take_overflow(fields: &mut JsonFields<'_>) -> Result<OverflowMode, ApiError> {
    let is_truncated = fields.take("truncate")?.unwrap_or(false);
    Ok(if is_truncated { OverflowMode::Truncate } else { OverflowMode::Error })
}

/// Runs a request of a client on one of a model's workers. `texts` is the field with the texts.
async fn run<T: Send + 'static, R: Send + 'static>(
    call: &Call,
    model: &RegisteredModel,
    workers: &Arc<Workers<T>>,
    texts: &'static str,
    work: impl FnOnce(&mut T) -> siskin::Result<R> + Send + 'static,
) -> Result<R, ApiError> {
    call.client.begin_request()?;
    let names = FieldNames { prompt: texts, structured_output: "" };
    run_on_worker(model, workers, move |error| names.locate(error), work).await
}
