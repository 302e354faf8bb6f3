//! A model that requests can select, and what it can do.

use std::sync::{Arc, Mutex};

use siskin::encoder::EmbedOptions;
use siskin::self_test::Goldens;
use siskin::serving::{EncoderId, Engine, ModelId, ServedModelOptions};
use siskin::speech::Transcriber;
use siskin::{AdapterSlot, Encoder, EncoderOptions, Model, Result, Seq2Seq, Seq2SeqOptions, SessionOptions};

use crate::error::ApiError;
use crate::metrics::ModelMetrics;
use crate::operations::drift::DriftMonitor;
use crate::operations::health::{AdmittedRequest, ModelHealth};
use crate::operations::quality::QualityMonitor;
use crate::served_model::ServedModel;
use crate::time::unix_time;
use crate::workers::Workers;

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
    /// The outputs that self-tests expect; `None` before the first one.
    pub(crate) goldens: Mutex<Option<Goldens>>,
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

/// Adds a model to the engine. Returns it and its adapters.
pub(super) fn register(
    engine: &Engine,
    served: ServedModel,
    quality_sample: f64,
) -> Result<Vec<Arc<RegisteredModel>>> {
    let ServedModel { name, version, model, options, drift_baseline } = served;
    let drift = drift_baseline.map(|baseline| DriftMonitor::new(baseline, model.clone())).transpose()?;
    let drift = drift.map(Arc::new);
    let health = Arc::new(ModelHealth::new());
    let (task, context_length) = add_to_engine(engine, &model, &options)?;
    let max_requests = options.scheduling.max_running.saturating_add(options.scheduling.max_waiting);
    let has_chat_template = matches!(model.template(), Ok(Some(_)));
    let mut all = Vec::new();
    for (name, slot, parent) in names_of(&name, &model)? {
        all.push(Arc::new(RegisteredModel {
            fingerprint: fingerprint(&model, slot, &options),
            max_requests,
            name,
            version: version.clone(),
            model: model.clone(),
            parent,
            task: task.with_adapter(slot),
            has_chat_template,
            context_length,
            created: unix_time(),
            metrics: ModelMetrics::default(),
            health: Arc::clone(&health),
            quality: QualityMonitor::new(quality_sample),
            drift: drift.clone(),
            goldens: Mutex::default(),
        }));
    }
    Ok(all)
}

/// Returns the names of a model and its adapters, with their fingerprints.
pub(super) fn fingerprints(served: &ServedModel) -> Result<Vec<(String, String)>> {
    let names = names_of(&served.name, &served.model)?.into_iter();
    Ok(names.map(|(name, slot, _)| (name, fingerprint(&served.model, slot, &served.options))).collect())
}

/// Returns the names of a model and its adapters, with their slots, and the names of their base models.
fn names_of(name: &str, model: &Model) -> Result<Vec<(String, AdapterSlot, Option<String>)>> {
    let mut names = vec![(name.to_owned(), AdapterSlot::default(), None)];
    for adapter in model.adapters() {
        names.push((adapter.to_owned(), model.adapter_slot(adapter)?, Some(name.to_owned())));
    }
    Ok(names)
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
fn add_to_engine(engine: &Engine, model: &Model, options: &ServedModelOptions) -> Result<(ModelTask, usize)> {
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
    let embed = EmbedOptions::of(model)?;
    let id = engine.add_encoder(model, encoder)?;
    let (engine_of, model_of) = (engine.clone(), model.clone());
    let with_head = EncoderOptions { head: true, ..encoder };
    let create = move || engine_of.encoder(&model_of, with_head);
    let workers = Arc::new(Workers::new(create, Encoder::cancel_handle, max_waiting));
    let task = ModelTask::Encoder(id, embed, workers);
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
