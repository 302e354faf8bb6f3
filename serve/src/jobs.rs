//! What runs beside the requests: self-tests, the watchdog of passes, and new files of aliases.

use std::sync::Arc;
use std::time::Duration;

use siskin::self_test::{Goldens, SelfTest};
use siskin::{Error, ErrorKind, Model, Result};

use crate::models::RegisteredModel;
use crate::state::ServerState;
use crate::sync::lock;

/// How long a pass may take before it counts as stalled.
const STALL_TIME: Duration = Duration::from_secs(10);
/// How often the server looks whether the file of aliases was replaced.
const ALIAS_INTERVAL: Duration = Duration::from_secs(1);

/// Compares the outputs of all models with those that their files record, at once and then in every `interval`. Outputs
/// of a file that records none must stay what they were at first. Never returns.
pub(crate) async fn check_integrity(state: Arc<ServerState>, interval: Option<Duration>) {
    let Some(interval) = interval.filter(|interval| !interval.is_zero()) else {
        return std::future::pending().await;
    };
    let mut changes = state.models.changes();
    let mut interval = tokio::time::interval(interval);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let is_new_only = tokio::select! {
            _ = interval.tick() => false,
            // Its sender lives as long as the state.
            _ = changes.changed() => true,
        };
        for model in state.models.base_models() {
            if !(is_new_only && lock(&model.goldens).is_some()) {
                check(&state, &model).await;
            }
        }
    }
}

/// Compares the outputs of a model with those that are expected.
async fn check(state: &ServerState, model: &RegisteredModel) {
    let engine = state.models.engine().clone();
    let (opened, known) = (model.model.clone(), lock(&model.goldens).clone());
    // Its passes wait for their turn.
    let test = move || {
        let attached = engine.attach(&opened)?;
        self_test(&attached, known)
    };
    match tokio::task::spawn_blocking(test).await {
        Ok(Ok((goldens, outcome))) => {
            *lock(&model.goldens) = Some(goldens);
            model.health.record_integrity(outcome == SelfTest::Passed);
        }
        // Outputs that are not finite, or a file that cannot be read.
        Ok(Err(error)) if is_of_model(&error) => model.health.record_integrity(false),
        // Such as too little memory: nothing is known.
        Ok(Err(_)) | Err(_) => {}
    }
}

fn is_of_model(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Numeric | ErrorKind::Corrupt | ErrorKind::Integrity)
}

fn self_test(model: &Model, known: Option<Goldens>) -> Result<(Goldens, SelfTest)> {
    let expected = match known {
        Some(known) => Some(known),
        None => Goldens::of(model)?,
    };
    match expected {
        Some(goldens) => {
            let outcome = goldens.check(model)?;
            Ok((goldens, outcome))
        }
        None => Ok((Goldens::compute(model)?, SelfTest::Passed)),
    }
}

/// Looks whether requests make progress. Never returns.
pub(crate) async fn watch_progress(state: Arc<ServerState>) {
    let mut interval = tokio::time::interval(STALL_TIME);
    loop {
        interval.tick().await;
        for model in state.models.base_models() {
            let stats = model.decoder().ok().and_then(|id| state.models.engine().stats(id));
            if let Some(stats) = stats {
                model.health.record_progress(stats.steps, stats.running > stats.paused);
            }
        }
    }
}

/// Reads new files of aliases. Never returns.
pub(crate) async fn watch_aliases(state: Arc<ServerState>) {
    if !state.models.has_alias_file() {
        return std::future::pending().await;
    }
    let mut interval = tokio::time::interval(ALIAS_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let read_by = Arc::clone(&state);
        let Ok(Err(error)) = tokio::task::spawn_blocking(move || read_by.models.reload_aliases()).await
        else {
            continue;
        };
        if let Some(log) = &state.operation_log {
            log.write(&format!("alias file not reloaded, keeping the previous aliases: {error}"));
        }
    }
}
