//! Options for a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use siskin::{Error, Result};

use crate::access_log::AccessLog;
use crate::clients::ApiKeys;
use crate::operations::OperationLog;
use crate::served_model::ModelRepository;
use crate::tls::TlsFiles;

/// Options for a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where it listens. Port 0 selects a free one. Addresses that are not loopback addresses need
    /// [`ServerOptions::api_keys`] or [`ServerOptions::allows_anyone`].
    pub address: SocketAddr,
    /// The keys that clients need; `None`: they need none.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// Other machines may use the server without keys.
    pub allows_anyone: bool,
    /// Host names under which clients without keys may address the server, besides `localhost`. Any other name may be that
    /// of a web page (DNS rebinding).
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may use the server, such as `https://app.example`, besides its own (CORS).
    pub allowed_origins: Vec<String>,
    /// The files for TLS; `None`: connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The number of compute threads; 0: as many as the first model was opened with.
    pub threads: usize,
    /// The memory for the KV caches and activations of all decoders, in bytes; `None`: no limit.
    pub memory_budget: Option<usize>,
    /// Where a line about each request goes; `None`: nowhere.
    pub access_log: Option<AccessLog>,
    /// Where messages about the operation of the server go; `None`: nowhere.
    pub operation_log: Option<OperationLog>,
    /// A file with further names of models: a JSON object or TOML with the name of a model for each alias. A file that
    /// replaces it is read within a second; requests that have begun keep their model.
    pub aliases: Option<PathBuf>,
    /// Where a running server finds models to load; `None`: it loads none.
    pub repository: Option<Arc<dyn ModelRepository>>,
    /// Where agent checks of HAProxy are answered: the share of requests that the server wants. Port 0 selects a free one.
    /// Anyone who reaches the port can see it. `None`: nowhere.
    pub agent_check: Option<SocketAddr>,
    /// The share of the generated responses, from 0 to 1, that are scored again when nothing else runs, for the metrics of
    /// quality. Decoders need output rows for that ([`ServedModelOptions::output_rows`]).
    ///
    /// [`ServedModelOptions::output_rows`]: siskin::serving::ServedModelOptions::output_rows
    pub quality_sample: f64,
    /// How often the outputs of all models are compared with those that their files record, or that they had at first, to
    /// detect faulty memory; also at the start. `None`: never.
    pub integrity_interval: Option<Duration>,
    /// How long requests may be predicted to wait until the server gives up speculative decoding; after twice, four, eight and
    /// sixteen times as long it lets requests of the lowest priority wait, shortens responses, uses the fallback for
    /// requests that allow it, and rejects further ones. `None`: it does none of this.
    pub degrade_after: Option<Duration>,
    /// The model that answers requests with `allow_fallback` instead of a model whose queue is too long.
    pub fallback: Option<String>,
    /// Metrics that vLLM has as well are also there under its names.
    pub has_vllm_metric_names: bool,
    /// The maximum number of open connections; more are answered with status 503.
    pub max_connections: usize,
    /// The maximum number of tokens that a request may generate.
    pub max_tokens: usize,
    /// Uses the socket that systemd listens on, if the process was started for one (socket activation), instead of
    /// [`ServerOptions::address`].
    pub inherits_socket: bool,
    /// How long a client may take to send a header or a body, to do a handshake, or to read a response.
    pub client_timeout: Duration,
    /// How long further requests are answered after the shutdown began, so that load balancers notice that the server is not
    /// ready.
    pub drain_delay: Duration,
    /// How long running requests may take after that.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            api_keys: None,
            allows_anyone: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            threads: 0,
            memory_budget: None,
            access_log: None,
            operation_log: None,
            aliases: None,
            repository: None,
            agent_check: None,
            quality_sample: 0.0,
            integrity_interval: Some(Duration::from_secs(3600)),
            degrade_after: None,
            fallback: None,
            has_vllm_metric_names: false,
            max_connections: 512,
            max_tokens: usize::MAX,
            inherits_socket: false,
            client_timeout: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl ServerOptions {
    /// Checks the options, as [`Server::bind`](crate::Server::bind) does.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) for an address that other machines reach without keys.
    pub fn check(&self) -> Result<()> {
        if self.address.ip().is_loopback() || self.api_keys.is_some() || self.allows_anyone {
            return Ok(());
        }
        let message = format!(
            "{} is reachable from other machines, which could all use the server: require API keys with \
             --api-key-file, or allow it with --insecure",
            self.address.ip()
        );
        Err(Error::argument("address", message))
    }
}
