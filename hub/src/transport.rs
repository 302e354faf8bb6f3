//! HTTP requests: redirects, credentials, proxies and certificate authorities.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use siskin_format::{Error, ErrorKind, Result};
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::env::HubSettings;
use crate::url::{check_scheme, join, origin};

/// The maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// A body that takes longer is cut; downloads continue with another request.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);
/// Where systems keep their certificate authorities: Debian, Fedora, OpenSUSE, Alpine and macOS.
const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Sends requests.
pub(crate) struct Transport {
    agent: Agent,
}

/// A request with GET.
pub(crate) struct GetRequest<'a> {
    pub(crate) url: &'a str,
    /// A token for the origin of the URL; a redirect to another origin does not get it.
    pub(crate) token: Option<&'a str>,
    pub(crate) accept: Option<&'a str>,
    pub(crate) range: Option<Range<u64>>,
}

impl<'a> GetRequest<'a> {
    pub(crate) fn new(url: &'a str) -> Self {
        Self { url, token: None, accept: None, range: None }
    }
}

impl Transport {
    pub(crate) fn new(settings: &HubSettings) -> Result<Self> {
        let tls = TlsConfig::builder().root_certs(root_certificates(settings)?).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(RESPONSE_TIMEOUT))
            .timeout_recv_body(Some(BODY_TIMEOUT))
            .user_agent(concat!("siskin/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls)
            .build();
        Ok(Self { agent: config.into() })
    }

    /// Sends a request, and follows redirects.
    pub(crate) fn get(&self, request: &GetRequest<'_>) -> Result<Response<Body>> {
        let mut url = request.url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            check_scheme(&url)?;
            let mut builder = self.agent.get(&url);
            if let Some(token) = request.token.filter(|_| origin(&url) == origin(request.url)) {
                builder = builder.header("authorization", format!("Bearer {token}"));
            }
            if let Some(accept) = request.accept {
                builder = builder.header("accept", accept);
            }
            if let Some(range) = &request.range {
                // Ranges of a compressed body would be other bytes.
                builder = builder
                    .header("range", format!("bytes={}-{}", range.start, range.end - 1))
                    .header("accept-encoding", "identity");
            }
            let response = builder.call().map_err(|error| failed(&url, &error))?;
            let target = response.headers().get("location").and_then(|target| target.to_str().ok());
            match target {
                Some(target) if response.status().is_redirection() => {
                    url = join(&url, target)?;
                }
                _ => return Ok(response),
            }
        }
        let host = origin(request.url).unwrap_or_default();
        Err(Error::unsupported(host, format!("more than {MAX_REDIRECTS} redirects")))
    }

    /// Returns a body of at most `limit` bytes.
    pub(crate) fn get_bytes(&self, request: &GetRequest<'_>, limit: u64) -> Result<Vec<u8>> {
        let response = self.get(request)?;
        if response.status() != StatusCode::OK {
            return Err(refused(request.url, &response));
        }
        read_body(request.url, response, limit)
    }
}

/// Returns the body of a response, which has at most `limit` bytes.
pub(crate) fn read_body(url: &str, response: Response<Body>, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut body = response.into_body().into_reader().take(limit + 1);
    body.read_to_end(&mut bytes).map_err(|error| Error::io(host_of(url), &error))?;
    match bytes.len() as u64 > limit {
        true => Err(Error::corrupt(host_of(url), format!("the answer has more than {limit} bytes"))),
        false => Ok(bytes),
    }
}

fn host_of(url: &str) -> &str {
    origin(url).unwrap_or("url")
}

/// Returns the error of a request without a response; the path and query of a URL may have secrets.
fn failed(url: &str, error: &ureq::Error) -> Error {
    Error::new(ErrorKind::Io, host_of(url), error.to_string())
}

/// Returns the error for an unexpected status.
pub(crate) fn refused<B>(url: &str, response: &Response<B>) -> Error {
    let status = response.status();
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let advice = match (status.as_u16(), header("x-error-code")) {
        (_, Some("GatedRepo")) => {
            "; accept the license on its page, then set HF_TOKEN or run `hf auth login`"
        }
        (401, _) => "; set HF_TOKEN or run `hf auth login` if the repository is private",
        (403, _) => "; the token may not read it",
        (404, _) => "; is the name right?",
        (407, _) => "; the proxy needs a user name and a password in HTTPS_PROXY",
        (429, _) => "; too many requests: wait a few minutes",
        _ => "",
    };
    let kind = if status.as_u16() == 404 { ErrorKind::Missing } else { ErrorKind::Io };
    let path = url.get(host_of(url).len()..).and_then(|path| path.split('?').next()).unwrap_or_default();
    Error::new(kind, host_of(url), format!("{path}: {status}{advice}"))
}

/// Returns the certificate authorities: of a file, else of the system, else Mozilla's.
fn root_certificates(settings: &HubSettings) -> Result<RootCerts> {
    if let Some(path) = &settings.certificates {
        let place = path.display().to_string();
        let pem = std::fs::read(path).map_err(|error| Error::io(place.clone(), &error))?;
        let certificates = parse(&pem);
        return match certificates.is_empty() {
            true => Err(Error::argument(place, "SSL_CERT_FILE has no certificates in PEM")),
            false => Ok(RootCerts::Specific(Arc::new(certificates))),
        };
    }
    let read = SYSTEM_CERTIFICATES.iter().find_map(|path| std::fs::read(path).ok());
    let certificates = read.map(|pem| parse(&pem)).filter(|certificates| !certificates.is_empty());
    Ok(certificates.map_or(RootCerts::WebPki, |certificates| RootCerts::Specific(Arc::new(certificates))))
}

fn parse(pem: &[u8]) -> Vec<Certificate<'static>> {
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    parse_pem(pem).filter_map(certificate).collect()
}
