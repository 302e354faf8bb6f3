//! The models of the server, by name.

use std::sync::Arc;
use std::time::Duration;

use siskin::encoder::EmbedOptions;
use siskin::serving::{Drive, EncoderId, Engine, EngineOptions, ModelId, SchedulerStats, ServedModelOptions};
use siskin::speech::Transcriber;
use siskin::{
    AdapterSlot, Encoder, EncoderOptions, Error, Model, Result, Seq2Seq, Seq2SeqOptions, SessionOptions,
};

use crate::clients::Client;
use crate::error::ApiError;
use crate::metrics::gpu::GpuMetrics;
use crate::metrics::{self, ModelMetrics, NamedMetrics};
use crate::operations::DriftBaseline;
use crate::operations::aliases::Aliases;
use crate::operations::degradation::DegradationLevel;
use crate::operations::drift::{self, DriftMonitor};
use crate::operations::health::{AdmittedRequest, ModelHealth};
use crate::operations::quality::{self, QualityMonitor};
use crate::options::ServerOptions;
use crate::prometheus::model_labels;
use crate::time::unix_time;
use crate::workers::Workers;

/// A model under the name by which requests select it.
pub struct ServedModel {
    /// The name.
    pub name: String,
    /// The version, for metrics and lists of models; [`ServedModel::new`] takes it from the model file.
    pub version: String,
    /// The model. Requests select its adapters by their names, as if they were models.
    pub model: Model,
    /// The options of a decoder.
    pub options: ServedModelOptions,
    /// What prompts of a decoder, or texts for embeddings, usually look like: metrics say how much those of requests differ.
    /// `None`: there are no such metrics.
    pub drift_baseline: Option<DriftBaseline>,
}

impl ServedModel {
    /// Creates a model with default options.
    pub fn new(name: impl Into<String>, model: Model) -> Self {
        let version = model.identity()[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: name.into(),
            version,
            model,
            options: ServedModelOptions::default(),
            drift_baseline: None,
        }
    }
}

/// A model that requests can select.
pub(crate) struct RegisteredModel {
    pub(crate) name: String,
    /// That of the base model, if this is an adapter.
    pub(crate) version: String,
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
    /// Shared by a model and its adapters.
    pub(crate) health: Arc<ModelHealth>,
    pub(crate) quality: QualityMonitor,
    /// Shared by a model and its adapters.
    pub(crate) drift: Option<Arc<DriftMonitor>>,
}

/// What requests a model can answer.
#[derive(Clone)]
pub(crate) enum ModelTask {
    /// Generates text, in batches of the engine.
    Decoder(ModelId),
    /// Makes embeddings, in batches of the engine; or classes, labels and relevance scores.
    Encoder(EncoderId, EmbedOptions, Arc<Workers<Encoder>>),
    /// Makes texts from texts.
    Seq2Seq(Arc<Workers<Seq2Seq>>),
    /// Makes texts from speech.
    Speech(Arc<Workers<Transcriber>>),
}

/// All models, on one engine.
pub(crate) struct ModelRegistry {
    engine: Engine,
    models: Vec<Arc<RegisteredModel>>,
    aliases: Aliases,
}

impl ModelRegistry {
    pub(crate) fn new(served: Vec<ServedModel>, options: &ServerOptions) -> Result<Self> {
        let engine = Engine::new(EngineOptions {
            threads: options.threads,
            drive: Drive::Thread,
            memory_budget: options.memory_budget,
        })?;
        let share = options.quality_sample;
        let mut models: Vec<Arc<RegisteredModel>> = Vec::new();
        for ServedModel { name, version, model, options, drift_baseline } in served {
            let (task, context_length) = register(&engine, &model, &options)
                .map_err(|error| error.within(&format!("model {name}")))?;
            let health = Arc::new(ModelHealth::new());
            let drift =
                drift_baseline.map(|baseline| DriftMonitor::new(baseline, model.clone())).transpose()?;
            let drift = drift.map(Arc::new);
            let adapters = model.adapters().map(|adapter| (adapter.to_owned(), Some(name.clone())));
            for (name, parent) in std::iter::once((name.clone(), None)).chain(adapters) {
                if models.iter().any(|known| known.name == name) {
                    let message = format!(
                        "two models or adapters are named `{name}`; give one another name: NAME=PATH"
                    );
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
                    version: version.clone(),
                    model: model.clone(),
                    parent,
                    task: task.with_adapter(slot),
                    has_chat_template: matches!(model.template(), Ok(Some(_))),
                    context_length,
                    created: unix_time(),
                    metrics: ModelMetrics::default(),
                    health: Arc::clone(&health),
                    quality: QualityMonitor::new(share),
                    drift: drift.clone(),
                }));
            }
        }
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let aliases = Aliases::read(options.aliases.clone(), &names)?;
        Ok(Self { engine, models, aliases })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns all models and adapters.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<RegisteredModel>> {
        self.models.iter()
    }

    /// Returns all models without their adapters.
    pub(crate) fn base_models(&self) -> impl Iterator<Item = &Arc<RegisteredModel>> {
        self.models.iter().filter(|model| model.parent.is_none())
    }

    /// Returns the counters of a decoder's requests, without the samples that are scored when nothing else runs.
    fn stats(&self, model: &RegisteredModel) -> Option<SchedulerStats> {
        let mut stats = self.engine.stats(model.decoder().ok()?)?;
        let shares = |other: &&Arc<RegisteredModel>| other.decoder().ok() == model.decoder().ok();
        let scored = self.models.iter().filter(shares).filter(|other| other.quality.is_scoring()).count();
        let waiting = scored.min(stats.waiting);
        stats.waiting -= waiting;
        stats.running = stats.running.saturating_sub(scored - waiting);
        Some(stats)
    }

    /// Returns how long a request to a model is predicted to wait.
    pub(crate) fn predicted_wait(&self, model: &RegisteredModel) -> Duration {
        let Ok(id) = model.decoder() else { return Duration::ZERO };
        let waiting = self.stats(model).map_or(0, |stats| stats.waiting);
        let prompts = self.engine.predicted_wait(id).unwrap_or_default();
        prompts.max(model.health.queue_time(waiting))
    }

    /// Returns whether a model rejects further requests.
    pub(crate) fn is_full(&self, model: &RegisteredModel) -> bool {
        self.stats(model).is_some_and(|stats| stats.running + stats.waiting >= model.max_requests)
    }

    /// Fails unless a model or an alias has this name.
    pub(crate) fn need(&self, name: &str) -> Result<()> {
        let found = self.find(name, &Client::anonymous());
        found.map(drop).map_err(|error| Error::argument(name, error.message()))
    }

    /// Returns the models that a client may use.
    pub(crate) fn of(&self, client: &Client) -> impl Iterator<Item = &Arc<RegisteredModel>> {
        self.models.iter().filter(|model| client.may_use(&model.name))
    }

    /// Returns the model of a client that may use only one, under whatever names; adapters do not count.
    pub(crate) fn only_of(&self, client: &Client) -> Option<Arc<RegisteredModel>> {
        let by_alias = self.aliases_of(client).into_iter().map(|(_, model)| model);
        let mut all: Vec<_> = self.of(client).cloned().chain(by_alias).collect();
        all.retain(|model| model.parent.is_none());
        let first = all.pop()?;
        all.iter().all(|model| model.name == first.name).then_some(first)
    }

    /// Reads the file of aliases if it has changed, and returns why that failed.
    pub(crate) fn reload_aliases(&self) -> Result<()> {
        let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
        self.aliases.reload_if_changed(&names)
    }

    /// Returns whether there is a file of aliases.
    pub(crate) fn has_alias_file(&self) -> bool {
        self.aliases.has_file()
    }

    /// Returns the aliases that a client may use, with their models. A key for an alias allows its model by that name.
    pub(crate) fn aliases_of(&self, client: &Client) -> Vec<(String, Arc<RegisteredModel>)> {
        let find = |(alias, name): (&String, &String)| {
            let model = self.models.iter().find(|model| model.name == *name)?;
            let may_use = client.may_use(alias) || client.may_use(name);
            may_use.then(|| (alias.clone(), Arc::clone(model)))
        };
        self.aliases.current().iter().filter_map(find).collect()
    }

    /// Returns the model of a name or an alias, if a client may use it.
    pub(crate) fn find(
        &self,
        name: &str,
        client: &Client,
    ) -> std::result::Result<Arc<RegisteredModel>, ApiError> {
        if let Some(model) = self.of(client).find(|model| model.name == name) {
            return Ok(Arc::clone(model));
        }
        let aliases = self.aliases_of(client);
        if let Some((_, model)) = aliases.iter().find(|(alias, _)| alias == name) {
            return Ok(Arc::clone(model));
        }
        let known = self.of(client).map(|model| model.name.as_str());
        let known: Vec<_> = known.chain(aliases.iter().map(|(alias, _)| alias.as_str())).collect();
        Err(ApiError::model_not_found(name, &known))
    }

    /// Returns the page of metrics of the models that a client may use.
    pub(crate) fn metrics(
        &self,
        client: &Client,
        degrade_after: Option<Duration>,
        gpus: &GpuMetrics,
        has_vllm_names: bool,
    ) -> String {
        // Requests with adapters are in the queue of their base model.
        let decoder = |model: &Arc<RegisteredModel>| model.decoder().ok().filter(|_| model.parent.is_none());
        let all: Vec<NamedMetrics<'_>> = self
            .of(client)
            .map(|model| {
                let predicted_wait = decoder(model).map(|_| self.predicted_wait(model));
                NamedMetrics {
                    name: &model.name,
                    version: &model.version,
                    metrics: &model.metrics,
                    scheduler: decoder(model).and_then(|_| self.stats(model)),
                    predicted_wait,
                    degradation: predicted_wait.map(|wait| DegradationLevel::of(wait, degrade_after)),
                    health: model.parent.is_none().then_some(&*model.health),
                    disk_cache: decoder(model).and_then(|id| self.engine.disk_cache_stats(id)),
                }
            })
            .collect();
        let mut page = metrics::text(&all, &self.engine.memory(), gpus, has_vllm_names);
        self.aliases.write_metrics(&mut page, |model| client.may_use(model));
        let labels = |model: &RegisteredModel| model_labels(&model.name, &model.version);
        quality::write_metrics(self.of(client).map(|model| (labels(model), &model.quality)), &mut page);
        let drift = self
            .of(client)
            .filter(|model| model.parent.is_none())
            .filter_map(|model| Some((labels(model), &**model.drift.as_ref()?)));
        drift::write_metrics(drift, &mut page);
        page
    }
}

impl ModelTask {
    fn with_adapter(&self, adapter: AdapterSlot) -> Self {
        match self {
            Self::Decoder(_) | Self::Seq2Seq(_) | Self::Speech(_) => self.clone(),
            Self::Encoder(id, options, workers) => {
                Self::Encoder(*id, EmbedOptions { adapter, ..*options }, Arc::clone(workers))
            }
        }
    }

    /// Returns what the model does, for error messages.
    fn what(&self) -> &'static str {
        match self {
            Self::Decoder(_) => "generates text (/v1/chat/completions, /v1/completions)",
            Self::Encoder(..) => "is an encoder (/v1/embeddings, /v1/classify, /v1/rerank or /v1/tag)",
            Self::Seq2Seq(_) => "translates and summarizes (/v1/translate, /v1/summarize)",
            Self::Speech(_) => "transcribes speech (/v1/audio/transcriptions)",
        }
    }
}

impl RegisteredModel {
    /// Lets a request begin, unless the circuit breaker is open.
    pub(crate) fn admit(&self) -> std::result::Result<AdmittedRequest, ApiError> {
        self.health.admit(&self.name).inspect_err(|_| self.metrics.record_unavailable())
    }

    /// Returns the name of the adapter of requests.
    pub(crate) fn adapter_name(&self) -> Option<String> {
        self.parent.as_ref().map(|_| self.name.clone())
    }

    /// Returns what requests the model can answer.
    pub(crate) fn capabilities(&self) -> &'static [&'static str] {
        match self.task {
            ModelTask::Encoder(..) => &["embedding"],
            ModelTask::Seq2Seq(_) => &["translation"],
            ModelTask::Speech(_) => &["transcription"],
            ModelTask::Decoder(_) if self.has_chat_template => &["completion", "chat"],
            ModelTask::Decoder(_) => &["completion"],
        }
    }

    /// Returns the decoder.
    pub(crate) fn decoder(&self) -> std::result::Result<ModelId, ApiError> {
        match self.task {
            ModelTask::Decoder(id) => Ok(id),
            _ => Err(self.is_for_other_tasks()),
        }
    }

    fn is_for_other_tasks(&self) -> ApiError {
        ApiError::invalid("model", format!("`{}` {}", self.name, self.task.what()))
    }

    /// Returns the encoder, and the options that it was trained with.
    pub(crate) fn encoder(&self) -> std::result::Result<(EncoderId, EmbedOptions), ApiError> {
        match &self.task {
            ModelTask::Encoder(id, options, _) => Ok((*id, *options)),
            _ => Err(self.is_for_other_tasks()),
        }
    }

    /// Returns the encoders with the model's head.
    pub(crate) fn heads(&self) -> std::result::Result<&Arc<Workers<Encoder>>, ApiError> {
        match &self.task {
            ModelTask::Encoder(_, _, workers) => Ok(workers),
            _ => Err(self.is_for_other_tasks()),
        }
    }

    pub(crate) fn seq2seq(&self) -> std::result::Result<&Arc<Workers<Seq2Seq>>, ApiError> {
        match &self.task {
            ModelTask::Seq2Seq(workers) => Ok(workers),
            _ => Err(self.is_for_other_tasks()),
        }
    }

    pub(crate) fn speech(&self) -> std::result::Result<&Arc<Workers<Transcriber>>, ApiError> {
        match &self.task {
            ModelTask::Speech(workers) => Ok(workers),
            _ => Err(self.is_for_other_tasks()),
        }
    }
}

/// Adds a model to the engine; returns what it can do, and its maximum length.
fn register(engine: &Engine, model: &Model, options: &ServedModelOptions) -> Result<(ModelTask, usize)> {
    let SessionOptions { cache, batch, .. } = options.session;
    let max_waiting = options.scheduling.max_waiting;
    if model.graphs().encoder.is_none() {
        let id = engine.add_model(model, options)?;
        return Ok((ModelTask::Decoder(id), engine.context_length(id).unwrap_or_default()));
    }
    if model.can_transcribe() {
        // Before the first request, so that the server does not start with a model that it cannot use.
        let attached = engine.attach(model)?;
        Transcriber::new(&attached, cache)?;
        let create = move || Transcriber::new(&attached, cache);
        let workers = Workers::new(create, Transcriber::cancel_handle, max_waiting);
        return Ok((ModelTask::Speech(Arc::new(workers)), model.config().context));
    }
    if model.graphs().decoder.is_some() {
        let attached = engine.attach(model)?;
        let seq2seq = Seq2SeqOptions { cache, ..Seq2SeqOptions::default() };
        attached.seq2seq(seq2seq)?;
        let workers = Workers::new(move || attached.seq2seq(seq2seq), Seq2Seq::cancel_handle, max_waiting);
        return Ok((ModelTask::Seq2Seq(Arc::new(workers)), model.config().context));
    }
    let encoder = EncoderOptions { cache, batch, head: false, ..EncoderOptions::default() };
    let id = engine.add_encoder(model, encoder)?;
    let (engine_of, model_of) = (engine.clone(), model.clone());
    let with_head = EncoderOptions { head: true, ..encoder };
    let create = move || engine_of.encoder(&model_of, with_head);
    let workers = Arc::new(Workers::new(create, Encoder::cancel_handle, max_waiting));
    let task = ModelTask::Encoder(id, EmbedOptions::of(model)?, workers);
    Ok((task, engine.max_text_tokens(id).unwrap_or_default()))
}

fn fingerprint(model: &Model, adapter: AdapterSlot, options: &ServedModelOptions) -> String {
    let SessionOptions { cache, window, .. } = options.session;
    let skipped = model.skipped();
    let build = format!("{} {cache:?} {window:?} {skipped:?}", env!("CARGO_PKG_VERSION"));
    let mut hasher = blake3::Hasher::new();
    hasher.update(&model.identity_with(adapter)).update(build.as_bytes());
    format!("fp_{}", &hasher.finalize().to_hex()[..16])
}
