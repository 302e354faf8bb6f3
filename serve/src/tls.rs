//! TLS termination.

use std::path::PathBuf;

use siskin::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "tls")]
use {
    std::path::Path,
    std::sync::Arc,
    tokio_rustls::TlsAcceptor,
    tokio_rustls::rustls::ServerConfig,
    tokio_rustls::rustls::crypto::ring,
    tokio_rustls::rustls::pki_types::pem::{self, PemObject},
    tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer},
};

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the server, and those between it and a root.
    pub certificates: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
}

/// The TLS handshake of new connections, if enabled.
#[derive(Clone)]
pub(crate) struct Handshake {
    #[cfg(feature = "tls")]
    acceptor: Option<TlsAcceptor>,
}

/// A connection, encrypted or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Connection for S {}

impl Handshake {
    /// Reads the files; without them, connections are not encrypted.
    #[cfg(feature = "tls")]
    pub(crate) fn new(files: Option<&TlsFiles>) -> Result<Self> {
        let config = files.map(server_config).transpose()?;
        Ok(Self { acceptor: config.map(|config| TlsAcceptor::from(Arc::new(config))) })
    }

    /// Checks that no files are given.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(files: Option<&TlsFiles>) -> Result<Self> {
        match files {
            None => Ok(Self {}),
            Some(files) => Err(Error::new(
                siskin::ErrorKind::Unsupported,
                files.certificates.display().to_string(),
                "this build has no TLS: build it with the feature `tls`, or encrypt with a proxy",
            )),
        }
    }

    /// Does the handshake on a new connection; `None` if it fails.
    pub(crate) async fn perform(&self, stream: impl Connection + 'static) -> Option<Box<dyn Connection>> {
        #[cfg(feature = "tls")]
        if let Some(acceptor) = &self.acceptor {
            return Some(Box::new(acceptor.accept(stream).await.ok()?));
        }
        Some(Box::new(stream))
    }

    /// Returns whether connections are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.acceptor.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}

#[cfg(feature = "tls")]
fn server_config(files: &TlsFiles) -> Result<ServerConfig> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        Error::argument(path.display().to_string(), error.to_string())
    };
    let unreadable = |path: &Path, error: pem::Error| match error {
        pem::Error::Io(error) => Error::io(path.display().to_string(), &error),
        other => failed(path, &other),
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| unreadable(&files.certificates, error))?;
    if certificates.is_empty() {
        return Err(failed(&files.certificates, &"has no certificate in the PEM format"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&files.certificates, &error))?;
    let config = builder.with_no_client_auth().with_single_cert(certificates, key);
    let mut config = config.map_err(|error| failed(&files.key, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    fn files(certificates: &str, key: &str) -> TlsFiles {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        TlsFiles { certificates: folder.join(certificates), key: folder.join(key) }
    }

    fn connector() -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(files("localhost.pem", "").certificates).unwrap();
        roots.add(certificate).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    #[test]
    fn connections_are_encrypted() {
        let handshake = Handshake::new(Some(&files("localhost.pem", "localhost.key"))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (client, server) = duplex(1 << 16);
            let name = "localhost".try_into().unwrap();
            let (client, server) = tokio::join!(connector().connect(name, client), handshake.perform(server));
            let (mut client, mut server) = (client.unwrap(), server.unwrap());
            let mut bytes = [0; 4];
            server.write_all(b"ping").await.unwrap();
            server.flush().await.unwrap();
            client.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"ping");

            let (mut client, server) = duplex(1 << 16);
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            assert!(handshake.perform(server).await.is_none());
        });
    }

    #[test]
    fn wrong_files_are_errors() {
        for (certificates, key) in [
            ("none.pem", "localhost.key"),
            ("localhost.pem", "none.key"),
            ("localhost.key", "localhost.key"),
            ("localhost.pem", "localhost.pem"),
        ] {
            let error = Handshake::new(Some(&files(certificates, key))).err().unwrap();
            let wrong = if key == "localhost.key" { certificates } else { key };
            assert!(error.location().ends_with(wrong), "{error}");
        }
    }
}
