//! The HTTP server: which clients may use it, from where, and how much.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use siskin::serving::SchedulingOptions;
use siskin_serve::{ApiKeys, ServedModel, Server, ServerOptions};

use super::http::{Running, completion, request, status, tiny};

#[test]
fn keys_are_required_and_limited() {
    let [one, two] = ["one", "two"].map(|name| ApiKeys::generate(name, false).unwrap());
    let text = format!("{}requests_per_minute = 2\n{}models = [\"other\"]\n", one.entry, two.entry);
    let options = ServerOptions {
        api_keys: Some(Arc::new(ApiKeys::parse(&text).unwrap())),
        address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        ..ServerOptions::default()
    };
    let server = Running::start(options, SchedulingOptions::default());
    let body = completion(&[1, 2, 3], 1, 2).to_string();
    let post = |header: &str| {
        let request = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: any.example\r\nconnection: close\r\n{header}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        server.exchange(request.as_bytes())
    };
    let bearer = |key: &str| post(&format!("Authorization: Bearer {key}\r\n"));
    for response in [post(""), bearer("sk-siskin-0"), post("authorization: Basic abc\r\n")] {
        assert_eq!(status(&response), 401, "{response}");
        assert!(response.contains("www-authenticate: Bearer") && response.contains("invalid_api_key"));
    }
    let response = bearer(&one.key);
    assert_eq!(status(&response), 200, "{response}");
    assert!(response.contains("x-ratelimit-remaining-requests: 1\r\n"), "{response}");
    assert_eq!(status(&post(&format!("x-api-key: {}\r\n", one.key))), 200);
    let response = bearer(&one.key);
    assert_eq!(status(&response), 429, "{response}");
    assert!(response.contains("retry-after: ") && response.contains("rate_limit_exceeded"), "{response}");
    let response = bearer(&two.key);
    assert_eq!(status(&response), 404, "{response}");
    assert!(!response.contains("tiny`,"), "the models of other keys are not listed: {response}");
    for public in ["/health", "/version", "/openapi.json"] {
        assert_eq!(status(&server.exchange(&request("GET", public, b""))), 200, "{public}");
    }
    assert_eq!(status(&server.exchange(&request("GET", "/metrics", b""))), 401);
}

#[test]
fn other_machines_need_keys() {
    let mut options =
        ServerOptions { address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), ..ServerOptions::default() };
    assert!(options.check().unwrap_err().to_string().contains("--api-key-file"));
    options.allows_anyone = true;
    options.allowed_origins = vec!["http://app.example".to_owned()];
    let server = Running::serve(options, ServedModel::new("tiny", tiny()));
    let get = |headers: &str| {
        let request = format!("GET /v1/models HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
        server.exchange(request.as_bytes())
    };
    assert_eq!(status(&get("host: 192.168.1.5:8080\r\n")), 200, "an address is not a name");
    assert_eq!(status(&get("host: evil.example\r\n")), 403);
    let response = get("host: localhost\r\norigin: http://app.example\r\nx-request-id: abc\r\n");
    assert!(response.contains("access-control-allow-origin: http://app.example\r\n"), "{response}");
    assert!(response.contains("x-request-id: abc\r\n"), "{response}");
    let preflight = |origin: &str| {
        let request = format!(
            "OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\n\r\n"
        );
        server.exchange(request.as_bytes())
    };
    assert_eq!(status(&preflight("http://app.example")), 204);
    let response = preflight("http://evil.example");
    assert_eq!(status(&response), 403, "{response}");
    assert!(!response.contains("access-control-allow-origin"), "{response}");
}

#[test]
fn only_loopback_addresses_are_listened_on() {
    for address in ["0.0.0.0:0", "[::]:0", "192.168.1.1:0"] {
        let options = ServerOptions { address: address.parse().unwrap(), ..ServerOptions::default() };
        assert!(
            Server::bind(&options, Vec::new()).is_err_and(|error| error.location() == "address"),
            "{address}"
        );
    }
}
