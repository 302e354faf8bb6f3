//! Agent checks of HAProxy: a port that answers each connection with one line, whether and how many requests the server wants.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use siskin::{Error, Result};
use tokio::net::{TcpListener, TcpStream};

use crate::state::ServerState;

/// How long a connection may take to accept the line.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// Listens on an address.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener> {
    let failed = |error| Error::io(address.to_string(), &error);
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Answers all connections. Never returns, unless there is an error.
pub(crate) async fn answer(listener: std::net::TcpListener, state: Arc<ServerState>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let line = line(&state);
                // Load balancers check one after the other, and again a moment later.
                let _ = tokio::time::timeout(WRITE_TIMEOUT, write(&stream, line.as_bytes())).await;
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Returns the line for the present state. `up` ends an earlier `down`; a share of 0% needs no command that ends it, as
/// `drain` does, also after a restart of the server.
fn line(state: &ServerState) -> String {
    if state.is_draining() {
        return "up 0%\n".to_owned();
    }
    let models = state.models.base_models();
    // A full queue is a reason to send less, but no failure.
    if let Some(problem) = models.iter().find_map(|model| model.health.problem()) {
        return format!("down #{problem}\n");
    }
    let percent = models.iter().map(|model| model.health.traffic_share()).min().unwrap_or(100);
    format!("up {percent}%\n")
}

async fn write(stream: &TcpStream, line: &[u8]) -> std::io::Result<()> {
    stream.writable().await?;
    // Fits into the buffer of the socket.
    stream.try_write(line).map(|_| ())
}
