//! What all requests share.

use tokio::sync::watch;

use crate::models::ModelRegistry;

pub(crate) struct ServerState {
    pub(crate) models: ModelRegistry,
    /// The maximum number of tokens that a request may generate.
    pub(crate) max_tokens: usize,
    is_shutting_down: watch::Sender<bool>,
}

impl ServerState {
    pub(crate) fn new(models: ModelRegistry, max_tokens: usize) -> Self {
        Self { models, max_tokens, is_shutting_down: watch::Sender::new(false) }
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
}
