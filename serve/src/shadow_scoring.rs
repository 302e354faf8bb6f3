//! Scores a sample of the responses again, for the metrics of quality and drift, when nothing else runs.

use std::future::poll_fn;
use std::sync::Arc;

use siskin::sample::SamplerOptions;
use siskin::serving::{
    ClientId, GenerationEvent, GenerationRequest, PromptInput, RequestClass, Speculation, StreamEnd,
    TokenScore,
};

use tokio::task::{AbortHandle, JoinSet};

use crate::models::RegisteredModel;
use crate::operations::quality::QualitySample;
use crate::state::ServerState;

/// The number of most likely tokens from which the entropy is computed; the others count as one.
const ENTROPY_TOKENS: usize = 20;

/// Scores the samples of all models, one of each at a time. Never returns.
pub(crate) async fn score_samples(state: Arc<ServerState>) {
    let mut changes = state.models.changes();
    let mut tasks = JoinSet::new();
    let mut running: Vec<(Arc<RegisteredModel>, AbortHandle)> = Vec::new();
    loop {
        let models = state.models.all();
        let is_loaded = |model: &Arc<RegisteredModel>| models.iter().any(|other| Arc::ptr_eq(other, model));
        for (_, task) in running.extract_if(.., |(model, _)| !is_loaded(model)) {
            task.abort();
        }
        for model in models.iter() {
            if !running.iter().any(|(other, _)| Arc::ptr_eq(other, model)) {
                let task = tasks.spawn(score_samples_of(Arc::clone(&state), Arc::clone(model)));
                running.push((Arc::clone(model), task));
            }
        }
        drop(models);
        // Those that were aborted.
        while tasks.try_join_next().is_some() {}
        // Its sender lives as long as the state.
        let _ = changes.changed().await;
    }
}

async fn score_samples_of(state: Arc<ServerState>, model: Arc<RegisteredModel>) {
    loop {
        let sample = model.quality.next().await;
        model.quality.set_scoring(true);
        let scored = score(&state, &model, &sample).await;
        model.quality.set_scoring(false);
        let log_probability = model.quality.record(&sample, scored.as_deref());
        // Adapters compute others than the model of the baseline.
        if let (Some(value), Some(drift), None) = (log_probability, &model.drift, &model.parent) {
            drift.observe_log_probability(value);
        }
    }
}

/// Returns the scores of a sample's tokens from the second on; `None` if that failed.
async fn score(
    state: &ServerState,
    model: &RegisteredModel,
    sample: &QualitySample,
) -> Option<Vec<TokenScore>> {
    let id = model.decoder().ok()?;
    let mut tokens = [sample.prompt.as_slice(), &sample.answer].concat();
    tokens.truncate(model.context_length.saturating_sub(1));
    let request = GenerationRequest {
        max_tokens: 0,
        sampler: SamplerOptions {
            log_probabilities: true,
            top_log_probabilities: ENTROPY_TOKENS,
            ..SamplerOptions::default()
        },
        prompt_log_probabilities: true,
        class: RequestClass::Shadow,
        client: ClientId::default(),
        salt: sample.salt,
        adapter: model.adapter_name(),
        speculation: Speculation::Off,
        ..GenerationRequest::new(PromptInput::Tokens(tokens))
    };
    let engine = state.models.engine().clone();
    let mut stream = state.run_blocking(move || engine.submit(id, request)).await.ok()?.ok()?;
    let mut scored = None;
    while let Some(event) = poll_fn(|context| stream.poll_event(context)).await {
        match event {
            GenerationEvent::Prompt { tokens } => scored = Some(tokens),
            GenerationEvent::Token { .. } => {}
            GenerationEvent::End { end: StreamEnd::Finished(_), .. } => break,
            GenerationEvent::End { .. } => return None,
        }
    }
    scored
}
