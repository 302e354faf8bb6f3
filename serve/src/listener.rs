//! Connections: accepting them, their limits, and the end of the server.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use siskin::{Error, Result};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use crate::agent_check;
use crate::client_stream::ClientStream;
use crate::jobs;
use crate::models::ModelRegistry;
use crate::options::ServerOptions;
use crate::routes;
use crate::served_model::ServedModel;
use crate::service_manager;
use crate::shadow_scoring;
use crate::state::ServerState;
use crate::tls::Handshake;

/// The maximum size of a header in bytes.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// How long connections may stay open after their requests were canceled.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The response to connections beyond the limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n";

/// Listens on an address, and answers requests.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    agent_check: Option<TcpListener>,
    options: ServerOptions,
    handshake: Handshake,
    state: Arc<ServerState>,
}

/// Shuts a server down. Clones do the same.
#[derive(Clone)]
pub struct ShutdownHandle {
    state: Arc<ServerState>,
}

impl ShutdownHandle {
    /// Rejects further requests, lets the running ones end, and makes [`Server::run`] return.
    pub fn shut_down(&self) {
        self.state.shut_down();
    }
}

impl Server {
    /// Listens on the address of `options`. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) for an address that other machines reach without keys, and for two
    /// models of the same name; [`ErrorKind::Io`](siskin::ErrorKind::Io) if the address is in use;
    /// [`ErrorKind::Unsupported`](siskin::ErrorKind::Unsupported) for models that are neither decoders nor encoders.
    pub fn bind(options: &ServerOptions, models: Vec<ServedModel>) -> Result<Self> {
        options.check()?;
        let handshake = Handshake::new(options.tls.as_ref())?;
        let failed = |error: &std::io::Error| Error::io(options.address.to_string(), error);
        let inherited = match options.inherits_socket {
            true => listenfd::ListenFd::from_env().take_tcp_listener(0).map_err(|error| failed(&error))?,
            false => None,
        };
        let listener = match inherited {
            Some(listener) => listener,
            None => TcpListener::bind(options.address).map_err(|error| failed(&error))?,
        };
        listener.set_nonblocking(true).map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let models = ModelRegistry::new(models, options)?;
        let state = ServerState::new(models, routes::description(), options);
        let agent_check = options.agent_check.map(agent_check::bind).transpose()?;
        let (options, state) = (options.clone(), Arc::new(state));
        Ok(Self { listener, address, agent_check, options, handshake, state })
    }

    /// Returns the address with the port that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL under which this machine reaches it.
    pub fn url(&self) -> String {
        let scheme = if self.handshake.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address with the port that answers agent checks.
    pub fn agent_check_address(&self) -> Option<SocketAddr> {
        self.agent_check.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns a handle that shuts the server down from another thread.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { state: Arc::clone(&self.state) }
    }

    /// Answers requests until the server is shut down.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::io("sockets", &error))?;
        let outcome = runtime.block_on(self.serve());
        // What still runs on other threads belongs to requests without a client.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(self) -> Result<()> {
        let Self { listener, address, agent_check, options, handshake, state } = self;
        let failed = |error: std::io::Error| Error::io(address.to_string(), &error);
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let mut connections = JoinSet::new();
        let free = Arc::new(Semaphore::new(options.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        // Until the end: load balancers are to send nothing while the server shuts down.
        let checks =
            agent_check.map(|listener| tokio::spawn(agent_check::answer(listener, Arc::clone(&state))));
        service_manager::ready();
        tokio::select! {
            () = accept(&listener, &free, &handshake, &state, &mut connections) => {}
            () = jobs::check_integrity(Arc::clone(&state), options.integrity_interval) => {}
            () = jobs::watch_progress(Arc::clone(&state)) => {}
            () = jobs::watch_aliases(Arc::clone(&state)) => {}
            () = shadow_scoring::score_samples(Arc::clone(&state)) => {}
            () = service_manager::keep_alive() => {}
            () = state.wait_for_shutdown() => {}
        }
        service_manager::stopping();
        // Load balancers see that the server is not ready, and meanwhile send further requests.
        let draining = accept(&listener, &free, &handshake, &state, &mut connections);
        let _ = tokio::time::timeout(options.drain_delay, draining).await;
        drop(listener);
        state.close_connections();
        let mut closed = async || while connections.join_next().await.is_some() {};
        let have_all_closed = tokio::time::timeout(options.drain_timeout, closed()).await.is_ok();
        // Cancels what still runs, and writes cached prefixes to disk.
        let engine = state.models.engine().clone();
        let _ = tokio::task::spawn_blocking(move || engine.drain(Duration::ZERO)).await;
        if !have_all_closed {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed()).await;
        }
        checks.inspect(JoinHandle::abort);
        Ok(())
    }
}

/// Accepts connections until the future is dropped.
async fn accept(
    listener: &tokio::net::TcpListener,
    free: &Arc<Semaphore>,
    handshake: &Handshake,
    state: &Arc<ServerState>,
    connections: &mut JoinSet<()>,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match (accepted, Arc::clone(free).try_acquire_owned()) {
                (Ok((stream, _)), Ok(permit)) => {
                    let connection = serve_connection(stream, handshake.clone(), Arc::clone(state));
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                // Fits into the buffer of the socket: there is nothing to wait for.
                (Ok((stream, _)), Err(_)) => _ = stream.try_write(TOO_MANY_CONNECTIONS),
                // Out of file descriptors, or a client that left: others may do better a moment later.
                (Err(_), _) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers the requests of a connection, and closes it after the current one if the server is shut down.
async fn serve_connection(stream: TcpStream, handshake: Handshake, state: Arc<ServerState>) {
    let shared = Arc::clone(&state);
    // Events are small and wait for no others.
    let _ = stream.set_nodelay(true);
    let handshake = handshake.perform(ClientStream::new(stream, shared.client_timeout));
    let stream = tokio::select! {
        stream = tokio::time::timeout(shared.client_timeout, handshake) => stream,
        () = shared.wait_for_close() => return,
    };
    let Ok(Some(stream)) = stream else { return };
    let service = service_fn(move |request| {
        let answer = routes::answer(Arc::clone(&state), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.client_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // Errors are those of the client, who has left.
        _ = connection.as_mut() => return,
        () = shared.wait_for_close() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
