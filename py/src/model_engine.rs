//! An engine with one model.

use siskin::serving::{Engine, EngineOptions, ModelId, SchedulingOptions, ServedModelOptions};
use siskin::{Model, Result};

#[derive(Clone)]
pub(crate) struct ModelEngine {
    pub(crate) engine: Engine,
    pub(crate) model: ModelId,
}

impl ModelEngine {
    /// Creates an engine for up to `max_running` requests at the same time, each of up to `context` tokens; 0: the default.
    pub(crate) fn new(model: &Model, context: usize, max_running: usize) -> Result<Self> {
        let engine = Engine::new(EngineOptions { threads: model.threads(), ..EngineOptions::default() })?;
        let scheduling = SchedulingOptions { max_running, ..SchedulingOptions::default() };
        let mut options = ServedModelOptions { scheduling, ..ServedModelOptions::default() };
        options.session.context = context;
        let model = engine.add_model(model, &options)?;
        Ok(Self { engine, model })
    }
}
