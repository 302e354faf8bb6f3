//! What all requests share.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::clients::ApiKeys;
use crate::error::ApiError;
use crate::guard::Guard;
use crate::models::ModelRegistry;
use crate::options::ServerOptions;

/// Threads that tokenize, render chat templates and write long responses.
const BLOCKING_THREADS: usize = 2;

pub(crate) struct ServerState {
    pub(crate) models: ModelRegistry,
    /// The maximum number of tokens that a request may generate.
    pub(crate) max_tokens: usize,
    /// The description of the routes, in the format of OpenAPI.
    pub(crate) description: Value,
    pub(crate) guard: Guard,
    /// The keys that clients need; `None`: they need none.
    pub(crate) api_keys: Option<Arc<ApiKeys>>,
    is_shutting_down: watch::Sender<bool>,
    /// A permit for each thread of blocking work.
    blocking: Arc<Semaphore>,
}

impl ServerState {
    pub(crate) fn new(models: ModelRegistry, description: Value, options: &ServerOptions) -> Self {
        let has_keys = options.api_keys.is_some();
        Self {
            models,
            max_tokens: options.max_tokens,
            description,
            guard: Guard {
                hosts: options.allowed_hosts.clone(),
                allows_addresses: !options.address.ip().is_loopback(),
                allows_any_host: has_keys,
                origins: options.allowed_origins.clone(),
            },
            api_keys: options.api_keys.clone(),
            is_shutting_down: watch::Sender::new(false),
            blocking: Arc::new(Semaphore::new(BLOCKING_THREADS)),
        }
    }

    /// Begins the shutdown.
    pub(crate) fn shut_down(&self) {
        self.is_shutting_down.send_replace(true);
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.is_shutting_down.borrow()
    }

    /// Waits until the shutdown begins.
    pub(crate) async fn wait_for_shutdown(&self) {
        // The sender lives as long as this.
        let _ = self.is_shutting_down.subscribe().wait_for(|is_begun| *is_begun).await;
    }

    /// Does work that takes long on another thread. Nothing is started if the caller is dropped while it waits for one.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let internal = || ApiError::internal("internal error, please report it");
        let permit = Arc::clone(&self.blocking).acquire_owned().await.map_err(|_| internal())?;
        // Started work cannot be canceled: the permit is free when it ends, whether or not the caller still waits.
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| internal())
    }
}
