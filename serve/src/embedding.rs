//! Embeddings of texts, whatever the API of the request.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use siskin::encoder::{EmbedOptions, EncoderInput, OverflowMode};

use crate::call::Call;
use crate::error::{ApiError, FieldNames};
use crate::models::RegisteredModel;

/// The maximum number of texts of a request.
pub(crate) const MAX_TEXTS: usize = 2048;

/// What is embedded.
pub(crate) enum EmbeddingInput {
    Texts(Vec<String>),
    Tokens(Vec<EncoderInput>),
}

/// What a request can say about embeddings.
#[derive(Clone, Copy, Default)]
pub(crate) struct EmbeddingFields {
    /// The name of the field with the texts.
    pub(crate) input: &'static str,
    /// The number of dimensions that are returned; `None`: all.
    pub(crate) dimensions: Option<usize>,
    /// Texts that are too long for the model are cut instead of rejected.
    pub(crate) is_truncated: bool,
}

/// The embeddings of a request.
pub(crate) struct Embeddings {
    pub(crate) vectors: Vec<Vec<f32>>,
    /// The number of tokens of all texts.
    pub(crate) token_count: usize,
}

impl EmbeddingInput {
    fn count(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Tokens(tokens) => tokens.len(),
        }
    }
}

/// Embeds texts.
pub(crate) async fn embed(
    call: &Call,
    model: &Arc<RegisteredModel>,
    input: EmbeddingInput,
    fields: EmbeddingFields,
) -> Result<Embeddings, ApiError> {
    let start = Instant::now();
    let (id, usual) = model.encoder()?;
    if fields.dimensions == Some(0) {
        return Err(ApiError::invalid("dimensions", "must be at least 1"));
    }
    let options = EmbedOptions {
        dimensions: fields.dimensions.unwrap_or(0),
        overflow: if fields.is_truncated { OverflowMode::Truncate } else { OverflowMode::Error },
        ..usual
    };
    let count = input.count();
    if !(1..=MAX_TEXTS).contains(&count) {
        return Err(ApiError::invalid(fields.input, format!("expected 1 to {MAX_TEXTS} texts, got {count}")));
    }
    let admitted = model.admit()?;
    call.client.begin_request()?;
    let engine = call.state.models.engine().clone();
    let drift = model.drift.clone();
    let submit = move || match input {
        EmbeddingInput::Texts(texts) => {
            drift.iter().for_each(|drift| drift.observe_texts(&texts));
            engine.embed(id, &texts, &options)
        }
        EmbeddingInput::Tokens(tokens) => engine.embed_tokens(id, tokens, &options),
    };
    let submitted = call.state.run_blocking(submit).await?;
    let names = FieldNames { prompt: fields.input, structured_output: "" };
    let mut embedding = submitted.map_err(|error| {
        model.metrics.record_rejection(&error);
        names.locate(error)
    })?;
    let token_count = embedding.token_count();
    model.metrics.record_prompt(token_count);
    call.client.count_tokens(token_count);
    let outcome = poll_fn(|context| embedding.poll_vectors(context)).await.map_err(ApiError::from);
    model.metrics.record_task(outcome.as_ref().err(), start.elapsed());
    admitted.end(outcome.as_ref().err());
    if let (Some(drift), Ok(vectors)) = (&model.drift, &outcome) {
        drift.observe_embeddings(vectors);
    }
    Ok(Embeddings { vectors: outcome?, token_count })
}
