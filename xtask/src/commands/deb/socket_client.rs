//! Sends a request to a model over a socket, as client programs do.

use crate::shell::Result;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// Number of connection attempts, and the interval between them.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);
/// The timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"{\"id\": 1, \"prompt\": \"Why?\", \"greedy\": true, \"max_tokens\": 4}\n";

/// Sends a request and checks that the answer is complete.
pub(super) fn ask(socket: &Path) -> Result {
    let said = answer(socket).map_err(|error| format!("{}: {error}", socket.display()))?;
    match said.trim_end().lines().last() {
        Some(line) if line.starts_with("{\"id\":1,\"done\":") => Ok(()),
        _ => Err(format!("over a socket siskin serve says\n{said}")),
    }
}

#[cfg(unix)]
fn answer(socket: &Path) -> std::io::Result<String> {
    use std::os::unix::net::UnixStream;

    let mut tries = 0;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Err(_) if tries < TRIES => std::thread::sleep(PAUSE),
            outcome => break outcome?,
        }
        tries += 1;
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}

#[cfg(not(unix))]
fn answer(_: &Path) -> std::io::Result<String> {
    Err(std::io::ErrorKind::Unsupported.into())
}
