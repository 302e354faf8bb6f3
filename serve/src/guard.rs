//! Which requests the server answers: those of programs, of its own pages, and of the origins that it was told to.

use std::net::IpAddr;

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderMap,
    HeaderValue, ORIGIN, TRANSFER_ENCODING, VARY,
};
use hyper::{Method, Request, StatusCode, Uri};

use crate::error::{ApiError, ErrorFormat};
use crate::response::{self, Response};

/// What requests may name as their host and origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    /// Host names besides loopback ones, without ports.
    pub(crate) hosts: Vec<String>,
    /// Addresses are allowed as hosts, too: the server listens on other interfaces. Web pages can make a name resolve to
    /// this machine, but not an address.
    pub(crate) allows_addresses: bool,
    /// Any host is allowed: clients have keys, which web pages lack.
    pub(crate) allows_any_host: bool,
    /// Origins of web pages besides the server's own.
    pub(crate) origins: Vec<String>,
}

/// Rejects requests that a proxy in front of the server could read as another number of requests: those with several hosts,
/// and with other transfer encodings than a single `chunked`.
pub(crate) fn check_framing(headers: &HeaderMap) -> Result<(), ApiError> {
    let invalid = |message: &str| Err(ApiError::rejected(StatusCode::BAD_REQUEST, message));
    if headers.get_all(HOST).iter().count() > 1 {
        return invalid("the request has several Host headers");
    }
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(encoding), None) if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => invalid("the only supported transfer encoding is `chunked`"),
    }
}

/// Rejects requests of web pages of other origins, and those for another host: a page can make its own host name
/// resolve to this machine (DNS rebinding), but cannot change the `Host` header.
pub(crate) fn check(guard: &Guard, headers: &HeaderMap) -> Result<(), ApiError> {
    let host = text(headers.get(HOST)).ok_or_else(|| forbidden("the request has no valid Host header"))?;
    if !guard.allows_any_host && !is_allowed(guard, host) {
        let message = format!("the host `{host}` is not allowed; start the server with --allow-host {host}");
        return Err(forbidden(&message));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let is_listed = || text(Some(origin)).is_some_and(|origin| guard.origins.iter().any(|own| own == origin));
    let own = text(Some(origin))
        .and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
    match own.is_some_and(|own| own.eq_ignore_ascii_case(host)) || is_listed() {
        true => Ok(()),
        false => {
            Err(forbidden("web pages of this origin are not allowed; start the server with --allow-origin"))
        }
    }
}

/// Returns the headers by which the browser lets a page of an allowed origin read the response.
pub(crate) fn cross_origin_headers(guard: &Guard, headers: &HeaderMap) -> HeaderMap {
    let mut added = HeaderMap::new();
    let origin = headers.get(ORIGIN).filter(|origin| guard.origins.iter().any(|own| *origin == own));
    if let Some(origin) = origin {
        added.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        added.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
        added.insert(VARY, HeaderValue::from_static("origin"));
    }
    added
}

/// Returns whether a browser asks whether a page may send a request.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a browser that asks whether a page may send a request.
pub(crate) fn answer_preflight(guard: &Guard, headers: &HeaderMap) -> Response {
    if let Err(error) = check(guard, headers) {
        return error.response(ErrorFormat::OpenAi);
    }
    let mut response = response::empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    let allowed = HeaderValue::from_static("authorization, content-type, x-api-key, x-request-id");
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

fn text(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok())
}

/// Returns whether the server answers for a host, with or without a port.
fn is_allowed(guard: &Guard, host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let is_plain = uri.authority().is_some_and(|authority| authority.as_str() == host);
    if !is_plain || host.contains('@') {
        return false;
    }
    let name = uri.host().unwrap_or_default();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || guard.allows_addresses,
        Err(_) => {
            let is_name = |known: &str| name.eq_ignore_ascii_case(known);
            is_name("localhost") || guard.hosts.iter().any(|known| is_name(known))
        }
    }
}

fn forbidden(message: &str) -> ApiError {
    ApiError::rejected(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ok(guard: &Guard, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check(guard, &headers).is_ok()
    }

    #[test]
    fn other_hosts_and_origins_are_rejected() {
        let guard = Guard::default();
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST:80", "127.0.0.2:80"]
        {
            assert!(is_ok(&guard, host, None), "{host}");
            assert!(is_ok(&guard, host, Some(&format!("http://{host}"))), "{host}");
            assert!(!is_ok(&guard, host, Some("http://evil.example")), "{host}");
            assert!(!is_ok(&guard, host, Some("null")), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "127.0.0.1@x",
            "10.0.0.1",
            "x y",
            "",
        ] {
            assert!(!is_ok(&guard, host, None), "{host}");
        }
        assert!(
            !is_ok(&guard, "localhost:8080", Some("http://localhost:3000")),
            "another port is another origin"
        );
        assert!(check(&guard, &HeaderMap::new()).is_err());
    }

    #[test]
    fn hosts_and_origins_can_be_allowed() {
        let guard = Guard {
            hosts: vec!["box.lan".to_owned()],
            allows_addresses: true,
            origins: vec!["http://app.lan:3000".to_owned()],
            ..Guard::default()
        };
        for host in ["box.lan", "BOX.lan:8080", "10.0.0.1:8080", "[fe80::1]:80", "localhost"] {
            assert!(is_ok(&guard, host, None), "{host}");
            assert!(is_ok(&guard, host, Some("http://app.lan:3000")), "{host}");
            assert!(!is_ok(&guard, host, Some("http://app.lan")), "{host}");
        }
        assert!(!is_ok(&guard, "other.lan", None));
        let any = Guard { allows_any_host: true, ..Guard::default() };
        assert!(is_ok(&any, "other.lan", None));
        assert!(is_ok(&any, "other.lan", Some("https://other.lan")), "behind a proxy with TLS");
        assert!(!is_ok(&any, "other.lan", Some("https://evil.example")));
    }
}
