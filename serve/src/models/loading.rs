//! Loading and unloading models while the server runs.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use siskin::Result;

use super::registered::{self, ModelTask, RegisteredModel};
use super::{ModelRegistry, first_conflict};
use crate::clients::Client;
use crate::error::ApiError;
use crate::sync::lock;

/// How long requests of a model may take after it was unloaded.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the server looks whether the requests of an unloaded model have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A model that is loaded, or can be.
pub(crate) enum ModelStatus {
    Loaded(Arc<RegisteredModel>),
    /// Only its name is known.
    Unloaded(String),
}

impl ModelRegistry {
    /// Returns the models that a client may use, and those that it could use if they were loaded.
    pub(crate) fn states(&self, client: &Client) -> Result<Vec<ModelStatus>> {
        let models = self.of(client);
        let names =
            self.repository.as_ref().map_or_else(|| Ok(Vec::new()), |repository| repository.names())?;
        let names: BTreeSet<String> = names.into_iter().collect();
        let is_unloaded =
            |name: &String| client.may_use(name) && !models.iter().any(|model| model.name == *name);
        let unloaded: Vec<_> = names.into_iter().filter(is_unloaded).map(ModelStatus::Unloaded).collect();
        Ok(models.into_iter().map(ModelStatus::Loaded).chain(unloaded).collect())
    }

    /// Loads a model, or replaces it if its file was replaced: requests that have begun end with the old one. Blocks.
    pub(crate) fn load(&self, name: &str) -> std::result::Result<Arc<RegisteredModel>, ApiError> {
        let repository = self.repository.as_ref().ok_or_else(|| {
            ApiError::rejected(StatusCode::NOT_IMPLEMENTED, "this server has no repository of models")
        })?;
        let names = repository.names()?;
        if !names.iter().any(|known| known == name) {
            let known: Vec<_> = names.iter().map(String::as_str).collect();
            return Err(ApiError::model_not_found(name, &known));
        }
        let mut served = repository.open(name).map_err(|error| error.within(&format!("model {name}")))?;
        served.name = name.to_owned();
        // Not while it is opened, which may take long.
        let guard = lock(&self.loading);
        let (old, others): (Vec<_>, Vec<_>) =
            self.all().iter().cloned().partition(|model| is_of(model, name));
        let new = registered::fingerprints(&served)?;
        let is_same = |(known, (name, fingerprint)): (&Arc<RegisteredModel>, &(String, String))| {
            known.name == *name && known.fingerprint == *fingerprint && known.version == served.version
        };
        if let Some(first) =
            old.first().filter(|_| old.len() == new.len() && old.iter().zip(&new).all(is_same))
        {
            return Ok(Arc::clone(first));
        }
        let names = || new.iter().map(|(name, _)| name.as_str());
        if let Some(adapter) = names().skip(1).find(|adapter| *adapter == name) {
            return Err(ApiError::conflict(format!(
                "the model has an adapter of the same name, `{adapter}`"
            )));
        }
        if let Some(name) = first_conflict(&others, names()) {
            return Err(ApiError::conflict(format!("another model or adapter is named `{name}`")));
        }
        if let Some(name) = names().find(|name| self.aliases.current().contains_key(*name)) {
            return Err(ApiError::conflict(format!(
                "`{name}` is an alias; remove it from the file of aliases"
            )));
        }
        let added = registered::register(&self.engine, served, self.quality_sample)
            .map_err(|error| error.within(&format!("model {name}")))?;
        let first = added.first().cloned().ok_or_else(ApiError::panicked)?;
        self.replace(others.into_iter().chain(added).collect());
        drop(guard);
        self.retire(old);
        Ok(first)
    }

    /// Unloads a model and its adapters: further requests are rejected, and those that have begun have some time to end. Blocks.
    pub(crate) fn unload(&self, name: &str) -> std::result::Result<(), ApiError> {
        let guard = lock(&self.loading);
        let model = self.find_exactly(name)?;
        if let Some(parent) = &model.parent {
            let message = format!("`{name}` is an adapter of `{parent}`, and is unloaded with it");
            return Err(ApiError::conflict(message));
        }
        drop(model);
        let (old, others): (Vec<_>, Vec<_>) =
            self.all().iter().cloned().partition(|model| is_of(model, name));
        let is_old = |name: &str| old.iter().any(|model| model.name == name);
        if let Some((alias, model)) = self.aliases.current().iter().find(|(_, model)| is_old(model)) {
            let message =
                format!("the alias `{alias}` stands for `{model}`; remove it from the file of aliases");
            return Err(ApiError::conflict(message));
        }
        if let Some(fallback) = self.fallback.as_ref().filter(|fallback| is_old(fallback)) {
            return Err(ApiError::conflict(format!("`{fallback}` is the fallback of other models")));
        }
        self.replace(others);
        drop(guard);
        self.retire(old);
        Ok(())
    }

    fn find_exactly(&self, name: &str) -> std::result::Result<Arc<RegisteredModel>, ApiError> {
        let models = self.all();
        let found = models.iter().find(|model| model.name == name).cloned();
        found.ok_or_else(|| {
            let known: Vec<_> = models.iter().map(|model| model.name.as_str()).collect();
            ApiError::model_not_found(name, &known)
        })
    }

    fn replace(&self, models: Vec<Arc<RegisteredModel>>) {
        *self.models.write().unwrap_or_else(PoisonError::into_inner) = models.into();
        self.changes.send_replace(());
    }

    /// Waits until no request has a model that was replaced or unloaded, cancels those that take too long, and frees its
    /// memory.
    fn retire(&self, models: Vec<Arc<RegisteredModel>>) {
        let start = Instant::now();
        // Requests, and what scores them, have references of their own.
        while models.iter().any(|model| Arc::strong_count(model) > 1) && start.elapsed() < UNLOAD_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
        // A model and its adapters are one of the engine's.
        let removed = models.first().map(|model| match &model.task {
            ModelTask::Decoder(id) => self.engine.remove_model(*id, Duration::ZERO),
            ModelTask::Encoder(id, ..) => self.engine.remove_encoder(*id, Duration::ZERO),
            // They end with the last request that has them.
            ModelTask::Seq2Seq(_) | ModelTask::Speech(_) => Ok(()),
        });
        // It is a model of this engine.
        debug_assert!(removed.is_none_or(|outcome| outcome.is_ok()));
    }
}

/// Returns whether a model is the one of a name, or one of its adapters.
fn is_of(model: &RegisteredModel, name: &str) -> bool {
    model.parent.as_deref().map_or(model.name == name, |parent| parent == name)
}
