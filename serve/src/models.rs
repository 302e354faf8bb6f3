//! The models of the server, by name.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use siskin::encoder::EmbedOptions;
use siskin::serving::{EncoderId, Engine, EngineOptions, ModelId, ServedModelOptions};
use siskin::{AdapterSlot, EncoderOptions, Error, Model, Result, SessionOptions};

use crate::error::ApiError;
use crate::metrics::{self, ModelMetrics, NamedMetrics};

/// A model under the name by which requests select it.
pub struct ServedModel {
    /// The name.
    pub name: String,
    /// The model: a decoder, or an encoder for embeddings. Requests select its adapters by their names, as if they were
    /// models.
    pub model: Model,
    /// The options of a decoder.
    pub options: ServedModelOptions,
}

impl ServedModel {
    /// Creates a model with default options.
    pub fn new(name: impl Into<String>, model: Model) -> Self {
        Self { name: name.into(), model, options: ServedModelOptions::default() }
    }
}

/// A model that requests can select.
pub(crate) struct RegisteredModel {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// The name of the base model, if this is an adapter, which has the name of the model.
    pub(crate) parent: Option<String>,
    pub(crate) task: ModelTask,
    has_chat_template: bool,
    /// The maximum length of a request in tokens.
    pub(crate) context_length: usize,
    /// The maximum number of requests that run or wait.
    pub(crate) max_requests: usize,
    /// When it was added, in seconds since 1970.
    pub(crate) created: u64,
    /// The same for the same model file, version of Siskin and options that change results.
    pub(crate) fingerprint: String,
    pub(crate) metrics: ModelMetrics,
}

/// What requests a model can answer.
#[derive(Clone, Copy)]
pub(crate) enum ModelTask {
    Decoder(ModelId),
    Encoder(EncoderId, EmbedOptions),
}

/// All models, on one engine.
pub(crate) struct ModelRegistry {
    engine: Engine,
    models: Vec<Arc<RegisteredModel>>,
}

impl ModelRegistry {
    pub(crate) fn new(served: Vec<ServedModel>, options: EngineOptions) -> Result<Self> {
        let engine = Engine::new(options)?;
        let mut models: Vec<Arc<RegisteredModel>> = Vec::new();
        for ServedModel { name, model, options } in served {
            let (task, context_length) = register(&engine, &model, &options)
                .map_err(|error| error.within(&format!("model {name}")))?;
            let adapters = model.adapters().map(|adapter| (adapter.to_owned(), Some(name.clone())));
            for (name, parent) in std::iter::once((name.clone(), None)).chain(adapters) {
                if models.iter().any(|known| known.name == name) {
                    let message = format!("two models or adapters are named `{name}`");
                    return Err(Error::argument("models", message));
                }
                let slot = parent.as_ref().map(|_| model.adapter_slot(&name)).transpose()?;
                let slot = slot.unwrap_or_default();
                models.push(Arc::new(RegisteredModel {
                    fingerprint: fingerprint(&model, slot, &options),
                    max_requests: options
                        .scheduling
                        .max_running
                        .saturating_add(options.scheduling.max_waiting),
                    name,
                    model: model.clone(),
                    parent,
                    task: task.with_adapter(slot),
                    has_chat_template: matches!(model.template(), Ok(Some(_))),
                    context_length,
                    created: unix_time(),
                    metrics: ModelMetrics::default(),
                }));
            }
        }
        Ok(Self { engine, models })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn all(&self) -> &[Arc<RegisteredModel>] {
        &self.models
    }

    /// Returns the model of a name.
    pub(crate) fn find(&self, name: &str) -> std::result::Result<&Arc<RegisteredModel>, ApiError> {
        self.models.iter().find(|model| model.name == name).ok_or_else(|| {
            let known: Vec<_> = self.models.iter().map(|model| model.name.as_str()).collect();
            ApiError::model_not_found(name, &known)
        })
    }

    /// Returns the page of metrics.
    pub(crate) fn metrics(&self) -> String {
        // Requests with adapters are in the queue of their base model.
        let decoder = |model: &Arc<RegisteredModel>| match model.task {
            ModelTask::Decoder(id) if model.parent.is_none() => Some(id),
            ModelTask::Decoder(_) | ModelTask::Encoder(..) => None,
        };
        let all: Vec<NamedMetrics<'_>> = self
            .models
            .iter()
            .map(|model| NamedMetrics {
                name: &model.name,
                metrics: &model.metrics,
                scheduler: decoder(model).and_then(|id| self.engine.stats(id)),
                disk_cache: decoder(model).and_then(|id| self.engine.disk_cache_stats(id)),
            })
            .collect();
        metrics::text(&all)
    }
}

impl ModelTask {
    fn with_adapter(self, adapter: AdapterSlot) -> Self {
        match self {
            Self::Decoder(_) => self,
            Self::Encoder(id, options) => Self::Encoder(id, EmbedOptions { adapter, ..options }),
        }
    }
}

impl RegisteredModel {
    /// Returns the name of the adapter of requests.
    pub(crate) fn adapter_name(&self) -> Option<String> {
        self.parent.as_ref().map(|_| self.name.clone())
    }

    /// Returns what requests the model can answer.
    pub(crate) fn capabilities(&self) -> &'static [&'static str] {
        match self.task {
            ModelTask::Encoder(..) => &["embedding"],
            ModelTask::Decoder(_) if self.has_chat_template => &["completion", "chat"],
            ModelTask::Decoder(_) => &["completion"],
        }
    }

    /// Returns the decoder.
    pub(crate) fn decoder(&self) -> std::result::Result<ModelId, ApiError> {
        match self.task {
            ModelTask::Decoder(id) => Ok(id),
            ModelTask::Encoder(..) => {
                let message = format!("`{}` is an encoder: it makes embeddings (/v1/embeddings)", self.name);
                Err(ApiError::invalid("model", message))
            }
        }
    }

    /// Returns the encoder, and the options that it was trained with.
    pub(crate) fn encoder(&self) -> std::result::Result<(EncoderId, EmbedOptions), ApiError> {
        match self.task {
            ModelTask::Encoder(id, options) => Ok((id, options)),
            ModelTask::Decoder(_) => {
                let message = format!("`{}` generates text; embeddings need an encoder", self.name);
                Err(ApiError::invalid("model", message))
            }
        }
    }
}

/// Adds a model to the engine; returns what it can do, and its maximum length.
fn register(engine: &Engine, model: &Model, options: &ServedModelOptions) -> Result<(ModelTask, usize)> {
    if model.graphs().encoder.is_none() {
        let id = engine.add_model(model, options)?;
        return Ok((ModelTask::Decoder(id), engine.context_length(id).unwrap_or_default()));
    }
    if model.graphs().decoder.is_some() {
        let message =
            "encoder-decoder models are not served yet; use `siskin translate`, `summarize` or `transcribe`";
        return Err(Error::unsupported("model", message));
    }
    let SessionOptions { cache, batch, .. } = options.session;
    let encoder = EncoderOptions { cache, batch, head: false, ..EncoderOptions::default() };
    let id = engine.add_encoder(model, encoder)?;
    Ok((ModelTask::Encoder(id, EmbedOptions::of(model)?), engine.max_text_tokens(id).unwrap_or_default()))
}

fn fingerprint(model: &Model, adapter: AdapterSlot, options: &ServedModelOptions) -> String {
    let SessionOptions { cache, window, .. } = options.session;
    let skipped = model.skipped();
    let build = format!("{} {cache:?} {window:?} {skipped:?}", env!("CARGO_PKG_VERSION"));
    let mut hasher = blake3::Hasher::new();
    hasher.update(&model.identity_with(adapter)).update(build.as_bytes());
    format!("fp_{}", &hasher.finalize().to_hex()[..16])
}

/// Returns the seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
