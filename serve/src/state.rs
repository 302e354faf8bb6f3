//! What all requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::access_log::AccessLog;
use crate::clients::ApiKeys;
use crate::error::ApiError;
use crate::guard::Guard;
use crate::metrics::gpu::GpuMetrics;
use crate::models::ModelRegistry;
use crate::operations::OperationLog;
use crate::options::ServerOptions;
use crate::response_store::ResponseStore;
use crate::sync::lock;

/// Threads that tokenize, render chat templates and write long responses.
const BLOCKING_THREADS: usize = 2;

/// Files that are in memory at the same time.
const MAX_UPLOADS: usize = 8;

/// How far the shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Requests are still answered, but load balancers are to send no more.
    Draining,
    /// Connections close after their responses.
    Closing,
}

pub(crate) struct ServerState {
    pub(crate) models: ModelRegistry,
    /// The maximum number of tokens that a request may generate.
    pub(crate) max_tokens: usize,
    /// The description of the routes, in the format of OpenAPI.
    pub(crate) description: Value,
    pub(crate) guard: Guard,
    /// The keys that clients need; `None`: they need none.
    pub(crate) api_keys: Option<Arc<ApiKeys>>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) operation_log: Option<OperationLog>,
    pub(crate) degrade_after: Option<Duration>,
    pub(crate) has_vllm_metric_names: bool,
    pub(crate) gpus: GpuMetrics,
    /// The name of the model for requests that allow it.
    pub(crate) fallback: Option<String>,
    /// Responses that later requests refer to.
    responses: Mutex<ResponseStore>,
    /// How long a client may take to send or read something.
    pub(crate) client_timeout: Duration,
    phase: watch::Sender<Phase>,
    /// Whether an operator wants load balancers to send no more requests.
    is_drained: AtomicBool,
    /// A permit for each large body in memory.
    pub(crate) uploads: Arc<Semaphore>,
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
            access_log: options.access_log.clone(),
            operation_log: options.operation_log.clone(),
            degrade_after: options.degrade_after,
            has_vllm_metric_names: options.has_vllm_metric_names,
            gpus: GpuMetrics::new(),
            fallback: options.fallback.clone(),
            responses: Mutex::default(),
            client_timeout: options.client_timeout,
            phase: watch::Sender::new(Phase::Serving),
            is_drained: AtomicBool::new(false),
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
            blocking: Arc::new(Semaphore::new(BLOCKING_THREADS)),
        }
    }

    /// Returns the responses that later requests refer to, locked.
    pub(crate) fn responses(&self) -> MutexGuard<'_, ResponseStore> {
        lock(&self.responses)
    }

    /// Returns why the server is not ready for requests; `None` if it is.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.is_shutting_down() {
            return Some("the server is shutting down".to_owned());
        }
        if self.is_draining() {
            return Some("the server is draining".to_owned());
        }
        self.models.base_models().iter().find_map(|model| {
            // Names are for clients with keys.
            let name = if self.api_keys.is_some() { "a model" } else { &model.name };
            let problem =
                model.health.problem().or_else(|| self.models.is_full(model).then_some("its queue is full"));
            problem.map(|problem| format!("{name}: {problem}"))
        })
    }

    /// Begins the shutdown.
    pub(crate) fn shut_down(&self) {
        self.enter(Phase::Draining);
    }

    /// Closes connections after their responses.
    pub(crate) fn close_connections(&self) {
        self.enter(Phase::Closing);
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    /// Makes load balancers send no more requests, or requests again. Those that arrive are answered.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        self.is_drained.store(is_draining, Ordering::Relaxed);
    }

    /// Returns whether load balancers are to send no more requests.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed) || self.is_shutting_down()
    }

    /// Waits until the shutdown begins.
    pub(crate) async fn wait_for_shutdown(&self) {
        self.wait_for(Phase::Draining).await;
    }

    /// Waits until connections are to close.
    pub(crate) async fn wait_for_close(&self) {
        self.wait_for(Phase::Closing).await;
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| std::mem::replace(now, phase.max(*now)) < phase);
    }

    async fn wait_for(&self, phase: Phase) {
        // The sender lives as long as this.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Does work that takes long on another thread. Nothing is started if the caller is dropped while it waits for one.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.blocking).acquire_owned().await.map_err(|_| ApiError::panicked())?;
        // Started work cannot be canceled: the permit is free when it ends, whether or not the caller still waits.
        let work = move || {
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::panicked())
    }
}
