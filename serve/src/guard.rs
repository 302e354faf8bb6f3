//! Which requests a loopback server answers: those of programs on this machine, and of its own pages.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{StatusCode, Uri};

use crate::error::ApiError;

/// Rejects requests of web pages of other origins, and those for another host: a page can make its own host name
/// resolve to this machine (DNS rebinding), but cannot change the `Host` header.
pub(crate) fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = text(headers.get(HOST)).ok_or_else(|| forbidden("the request has no valid Host header"))?;
    if !is_loopback(host) {
        return Err(forbidden("the server only answers for localhost and loopback addresses"));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let own = text(Some(origin)).and_then(|origin| origin.strip_prefix("http://"));
    match own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => Err(forbidden("requests of web pages of other origins are rejected")),
    }
}

fn text(value: Option<&HeaderValue>) -> Option<&str> {
    value.and_then(|value| value.to_str().ok())
}

/// Returns whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let is_plain = uri.authority().is_some_and(|authority| authority.as_str() == host);
    let name = uri.host().unwrap_or_default();
    is_plain && !host.contains('@') && (name.eq_ignore_ascii_case("localhost") || is_loopback_address(name))
}

fn is_loopback_address(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn forbidden(message: &str) -> ApiError {
    ApiError::rejected(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        check(&headers).is_ok()
    }

    #[test]
    fn other_hosts_and_origins_are_rejected() {
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST:80", "127.0.0.2:80"]
        {
            assert!(status(host, None), "{host}");
            assert!(status(host, Some(&format!("http://{host}"))), "{host}");
            assert!(!status(host, Some("http://evil.example")), "{host}");
            assert!(!status(host, Some("null")), "{host}");
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
            assert!(!status(host, None), "{host}");
        }
        assert!(!status("localhost:8080", Some("http://localhost:3000")), "another port is another origin");
        assert!(check(&HeaderMap::new()).is_err());
    }
}
