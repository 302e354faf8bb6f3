//! What all requests share.

use tokio::sync::{Semaphore, watch};

use crate::error::ApiError;
use crate::models::ModelRegistry;

/// Threads that tokenize, render chat templates and write long responses.
const BLOCKING_THREADS: usize = 2;

pub(crate) struct ServerState {
    pub(crate) models: ModelRegistry,
    /// The maximum number of tokens that a request may generate.
    pub(crate) max_tokens: usize,
    is_shutting_down: watch::Sender<bool>,
    /// A permit for each thread of blocking work.
    blocking: Semaphore,
}

impl ServerState {
    pub(crate) fn new(models: ModelRegistry, max_tokens: usize) -> Self {
        let (is_shutting_down, blocking) = (watch::Sender::new(false), Semaphore::new(BLOCKING_THREADS));
        Self { models, max_tokens, is_shutting_down, blocking }
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

    /// Does work that takes long on another thread. A request whose client leaves before a thread is free leaves nothing
    /// behind.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let internal = || ApiError::internal("internal error, please report it");
        let _permit = self.blocking.acquire().await.map_err(|_| internal())?;
        tokio::task::spawn_blocking(work).await.map_err(|_| internal())
    }
}
