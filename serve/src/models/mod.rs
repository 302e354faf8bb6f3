//! The models of the server, by name.

mod loading;
mod registered;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use siskin::serving::{Drive, Engine, EngineOptions, SchedulerStats};
use siskin::{Error, Result};
use tokio::sync::watch;

use crate::clients::Client;
use crate::error::ApiError;
use crate::metrics::gpu::GpuMetrics;
use crate::metrics::{self, NamedMetrics};
use crate::operations::aliases::{AliasTargets, Aliases};
use crate::operations::degradation::DegradationLevel;
use crate::operations::{drift, quality};
use crate::options::ServerOptions;
use crate::prometheus::model_labels;
use crate::served_model::{ModelRepository, ServedModel};

pub(crate) use loading::ModelStatus;
pub(crate) use registered::{ModelTask, RegisteredModel};

/// All models, on one engine.
pub(crate) struct ModelRegistry {
    engine: Engine,
    /// Requests take their model when they begin, and keep it when it is replaced. Adapters follow their models.
    models: RwLock<Arc<[Arc<RegisteredModel>]>>,
    /// Tells when models are loaded or unloaded.
    changes: watch::Sender<()>,
    aliases: Aliases,
    repository: Option<Arc<dyn ModelRepository>>,
    /// Locked while models are loaded or unloaded.
    loading: Mutex<()>,
    fallback: Option<String>,
    quality_sample: f64,
}

impl ModelRegistry {
    pub(crate) fn new(served: Vec<ServedModel>, options: &ServerOptions) -> Result<Self> {
        let engine = Engine::new(EngineOptions {
            threads: options.threads,
            drive: Drive::Thread,
            memory_budget: options.memory_budget,
        })?;
        let mut models: Vec<Arc<RegisteredModel>> = Vec::new();
        for served in served {
            let name = served.name.clone();
            let added = registered::register(&engine, served, options.quality_sample)
                .map_err(|error| error.within(&format!("model {name}")))?;
            if let Some(name) = first_conflict(&models, added.iter().map(|model| &*model.name)) {
                let message =
                    format!("two models or adapters are named `{name}`; give one another name: NAME=PATH");
                return Err(Error::argument("models", message));
            }
            models.extend(added);
        }
        let aliases =
            Aliases::read(options.aliases.clone(), &alias_targets(&models, options.repository.as_deref())?)?;
        let registry = Self {
            engine,
            models: RwLock::new(models.into()),
            changes: watch::Sender::new(()),
            aliases,
            repository: options.repository.clone(),
            loading: Mutex::default(),
            fallback: options.fallback.clone(),
            quality_sample: options.quality_sample,
        };
        if let Some(name) = &options.fallback {
            registry.need(name).map_err(|error| error.within("fallback"))?;
        }
        Ok(registry)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns all models and adapters, as they are now.
    pub(crate) fn all(&self) -> Arc<[Arc<RegisteredModel>]> {
        Arc::clone(&self.models.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns all models without their adapters.
    pub(crate) fn base_models(&self) -> Vec<Arc<RegisteredModel>> {
        self.all().iter().filter(|model| model.parent.is_none()).cloned().collect()
    }

    /// Returns what tells when models are loaded or unloaded.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns the counters of a decoder's requests, without the samples that are scored when nothing else runs.
    fn stats(&self, model: &RegisteredModel) -> Option<SchedulerStats> {
        let mut stats = self.engine.stats(model.decoder().ok()?)?;
        let shares = |other: &&Arc<RegisteredModel>| other.decoder().ok() == model.decoder().ok();
        let scored = self.all().iter().filter(shares).filter(|other| other.quality.is_scoring()).count();
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
    fn need(&self, name: &str) -> Result<()> {
        let found = self.find(name, &Client::anonymous());
        found.map(drop).map_err(|error| Error::argument(name, error.message()))
    }

    /// Returns the models that a client may use.
    pub(crate) fn of(&self, client: &Client) -> Vec<Arc<RegisteredModel>> {
        self.all().iter().filter(|model| client.may_use(&model.name)).cloned().collect()
    }

    /// Returns the model of a client that may use only one, under whatever names; adapters do not count.
    pub(crate) fn only_of(&self, client: &Client) -> Option<Arc<RegisteredModel>> {
        let mut all = self.of(client);
        all.extend(self.aliases_of(client).into_iter().map(|(_, model)| model));
        all.retain(|model| model.parent.is_none());
        let first = all.pop()?;
        all.iter().all(|model| model.name == first.name).then_some(first)
    }

    /// Reads the file of aliases if it has changed, and returns why that failed.
    pub(crate) fn reload_aliases(&self) -> Result<()> {
        self.aliases.reload_if_changed(&|| alias_targets(&self.all(), self.repository.as_deref()))
    }

    /// Returns whether there is a file of aliases.
    pub(crate) fn has_alias_file(&self) -> bool {
        self.aliases.has_file()
    }

    /// Returns the aliases that a client may use, with their models. A key for an alias allows its model by that name.
    pub(crate) fn aliases_of(&self, client: &Client) -> Vec<(String, Arc<RegisteredModel>)> {
        let models = self.all();
        let find = |(alias, name): (&String, &String)| {
            let model = models.iter().find(|model| model.name == *name)?;
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
        let models = self.of(client);
        if let Some(model) = models.iter().find(|model| model.name == name) {
            return Ok(Arc::clone(model));
        }
        let aliases = self.aliases_of(client);
        if let Some((_, model)) = aliases.iter().find(|(alias, _)| alias == name) {
            return Ok(Arc::clone(model));
        }
        let known = models.iter().map(|model| model.name.as_str());
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
        let models = self.of(client);
        let all: Vec<NamedMetrics<'_>> = models
            .iter()
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
        quality::write_metrics(models.iter().map(|model| (labels(model), &model.quality)), &mut page);
        let drift = models
            .iter()
            .filter(|model| model.parent.is_none())
            .filter_map(|model| Some((labels(model), &**model.drift.as_ref()?)));
        drift::write_metrics(drift, &mut page);
        page
    }
}

/// Returns the names that aliases may stand for: also those of models that can be loaded later.
fn alias_targets(
    models: &[Arc<RegisteredModel>],
    repository: Option<&dyn ModelRepository>,
) -> Result<AliasTargets> {
    Ok(AliasTargets {
        loaded: models.iter().map(|model| model.name.clone()).collect(),
        others: repository.map_or_else(|| Ok(Vec::new()), ModelRepository::names)?,
    })
}

/// Returns a name that is also that of a model.
fn first_conflict<'a>(
    models: &[Arc<RegisteredModel>],
    mut names: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    names.find(|name| models.iter().any(|model| model.name == *name))
}
