//! Fair shares of compute time for clients: virtual token counters (arXiv:2401.00588), in time instead of tokens.

use std::collections::HashMap;
use std::time::Duration;

use crate::request::ClientId;

/// Clients that are remembered after their last request.
const REMEMBERED: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct ClientShare {
    /// Compute time, or that of the least served client when it became active.
    service: Duration,
    /// Requests that wait or run.
    requests: usize,
}

/// The compute time that each client has had.
#[derive(Clone, Debug, Default)]
pub(super) struct FairShare {
    clients: HashMap<ClientId, ClientShare>,
}

impl FairShare {
    /// Counts a request that arrives. A client without requests does not save up its share meanwhile: it continues from
    /// the least served active client.
    pub(super) fn enter(&mut self, client: ClientId) {
        let least = self.least();
        let share = self.clients.entry(client).or_default();
        if share.requests == 0 {
            share.service = share.service.max(least.unwrap_or_default());
        }
        share.requests += 1;
    }

    /// Counts a request that has ended.
    pub(super) fn leave(&mut self, client: ClientId) {
        if let Some(share) = self.clients.get_mut(&client) {
            share.requests = share.requests.saturating_sub(1);
        }
        if self.clients.len() > REMEMBERED {
            // Those that are forgotten continue from the least served active client.
            self.clients.retain(|_, share| share.requests > 0);
        }
    }

    /// Adds compute time.
    pub(super) fn add(&mut self, client: ClientId, time: Duration) {
        if let Some(share) = self.clients.get_mut(&client) {
            share.service += time;
        }
    }

    /// Returns the compute time that a client has had.
    pub(super) fn service(&self, client: ClientId) -> Duration {
        self.clients.get(&client).map_or(Duration::ZERO, |share| share.service)
    }

    fn least(&self) -> Option<Duration> {
        self.clients.values().filter(|share| share.requests > 0).map(|share| share.service).min()
    }
}
