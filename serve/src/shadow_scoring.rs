//! Scores a sample of the responses again, for the metrics of quality and drift, when nothing else runs.

use std::future::poll_fn;
use std::sync::Arc;

use siskin::sample::SamplerOptions;
use siskin::serving::{
    ClientId, GenerationEvent, GenerationRequest, PromptInput, RequestClass, ScoredToken, Speculation,
    StreamEnd,
};

use crate::models::RegisteredModel;
use crate::operations::quality::QualitySample;
use crate::state::ServerState;

/// The number of most likely tokens from which the entropy is computed; the others count as one.
const ENTROPY_TOKENS: usize = 20;

/// Scores samples, one after the other. Never returns.
pub(crate) async fn score_samples(state: Arc<ServerState>) {
    loop {
        let mut is_idle = true;
        for model in state.models.all() {
            let Some(sample) = model.quality.pop() else { continue };
            is_idle = false;
            let scored = score(&state, model, &sample).await;
            let log_probability = model.quality.record(&sample, scored.as_deref());
            // Adapters compute others than the model of the baseline.
            if let (Some(value), Some(drift), None) = (log_probability, &model.drift, &model.parent) {
                drift.observe_log_probability(value);
            }
        }
        if is_idle {
            state.models.wait_for_samples().await;
        }
    }
}

/// Returns the scores of a sample's tokens from the second on; `None` if that failed.
async fn score(
    state: &ServerState,
    model: &RegisteredModel,
    sample: &QualitySample,
) -> Option<Vec<ScoredToken>> {
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
