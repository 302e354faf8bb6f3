//! The socket of HAProxy.

use std::path::Path;

use siskin::{Error, Result};

/// How long a command may take.
#[cfg(unix)]
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Makes HAProxy send no further requests to a server, by its socket (`stats socket PATH level admin`). The server's agent
/// checks are disabled, as they would set the weight again.
///
/// # Errors
/// [`ErrorKind::Argument`](siskin::ErrorKind::Argument) if `server` is not `BACKEND/SERVER`;
/// [`ErrorKind::Io`](siskin::ErrorKind::Io) if HAProxy does not answer or rejects the command.
pub fn disable_traffic(socket: &Path, server: &str) -> Result<()> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
    };
    if !server.split_once('/').is_some_and(|(backend, server)| is_name(backend) && is_name(server)) {
        return Err(Error::argument("server", format!("`{server}`: expected BACKEND/SERVER")));
    }
    // Fails if the server has none.
    send(socket, &format!("disable agent {server}"))?;
    let answer = send(socket, &format!("set weight {server} 0"))?;
    match answer.trim() {
        "" => Ok(()),
        answer => Err(Error::io(socket.display().to_string(), &std::io::Error::other(answer.to_owned()))),
    }
}

/// Sends a command; returns the answer.
#[cfg(unix)]
fn send(socket: &Path, command: &str) -> Result<String> {
    use std::io::{Read, Write};

    let exchange = || {
        let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    exchange().map_err(|error: std::io::Error| Error::io(socket.display().to_string(), &error))
}

#[cfg(not(unix))]
fn send(socket: &Path, _: &str) -> Result<String> {
    let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
    Err(Error::io(socket.display().to_string(), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_backend() {
        for wrong in ["canary", "/canary", "a/", "a/b;shutdown", "a/b c", "a/b/c", "a\n/b"] {
            let error = disable_traffic(Path::new("/nowhere"), wrong).unwrap_err();
            assert_eq!(error.kind(), siskin::ErrorKind::Argument, "{wrong}");
        }
        let error = disable_traffic(Path::new("/nowhere"), "replicas/canary").unwrap_err();
        assert_eq!(error.kind(), siskin::ErrorKind::Io);
    }
}
