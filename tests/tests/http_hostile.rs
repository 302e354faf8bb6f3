//! The HTTP server and clients that mean harm: smuggled requests, slow clients, many connections, and every limit.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use siskin::serving::SchedulingOptions;
use siskin_serve::ServerOptions;
use siskin_tests::env;

use super::http::{Running, completion, request, status};

fn start(options: ServerOptions) -> Running {
    Running::start(options, SchedulingOptions::default())
}

/// What follows the request proper, and must not be answered.
const SMUGGLED: &str = "GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[test]
fn no_request_is_smuggled() {
    // Connections that stay open are idle.
    let server =
        start(ServerOptions { client_timeout: Duration::from_millis(200), ..ServerOptions::default() });
    let length = SMUGGLED.len();
    let chunked = format!("0\r\n\r\n{SMUGGLED}");
    // The headers of a request to a route that reads no body, and what comes after them.
    let cases = [
        (format!("content-length: {}\r\ntransfer-encoding: chunked", chunked.len()), chunked.clone()),
        (format!("transfer-encoding: chunked\r\ncontent-length: {}", chunked.len()), chunked.clone()),
        (format!("content-length: 0\r\ncontent-length: {length}"), SMUGGLED.to_owned()),
        (format!("content-length: {length}\r\ncontent-length: 0"), SMUGGLED.to_owned()),
        (format!("content-length: 0, {length}"), SMUGGLED.to_owned()),
        (format!("content-length: +{length}"), SMUGGLED.to_owned()),
        (format!("content-length: 0x{length:x}"), SMUGGLED.to_owned()),
        (format!("content-length:\x0b{length}"), SMUGGLED.to_owned()),
        (format!("content-length : {length}"), SMUGGLED.to_owned()),
        (format!(" content-length: {length}"), SMUGGLED.to_owned()),
        ("content-length: 99999999999999999999".to_owned(), SMUGGLED.to_owned()),
        ("content-length: -1".to_owned(), SMUGGLED.to_owned()),
        ("transfer-encoding: xchunked".to_owned(), chunked.clone()),
        ("transfer-encoding : chunked".to_owned(), chunked.clone()),
        ("transfer-encoding: chunked, identity".to_owned(), chunked.clone()),
        ("transfer-encoding: gzip, chunked, chunked".to_owned(), chunked.clone()),
        ("transfer-encoding: chunked\r\n x: y".to_owned(), chunked.clone()),
        ("transfer-encoding:\x0bchunked".to_owned(), chunked.clone()),
        ("transfer-encoding: chunked\r\nhost: evil.example".to_owned(), chunked.clone()),
        ("transfer-encoding: chunked".to_owned(), format!("0;a=\n\r\n\r\n{SMUGGLED}")),
        ("transfer-encoding: chunked".to_owned(), format!("00000000000000000\r\n{SMUGGLED}")),
        ("transfer-encoding: chunked".to_owned(), format!("ffffffffffffffff1\r\n{SMUGGLED}")),
        ("transfer-encoding: chunked".to_owned(), format!("-0\r\n\r\n{SMUGGLED}")),
        ("transfer-encoding: chunked".to_owned(), format!("0x0\r\n\r\n{SMUGGLED}")),
        ("transfer-encoding: chunked".to_owned(), format!("3\r\nabcdef\r\n0\r\n\r\n{SMUGGLED}")),
        ("x: a\rcontent-length: 0".to_owned(), SMUGGLED.to_owned()),
        ("x: a\0b".to_owned(), SMUGGLED.to_owned()),
        ("host: localhost:1".to_owned(), SMUGGLED.to_owned()),
    ];
    for (headers, rest) in cases {
        let text = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n{rest}");
        let response = server.exchange(text.as_bytes());
        assert!(response.matches("HTTP/1.1 ").count() <= 1, "{headers:?}\n{response}");
        assert!(!response.contains("\"version\":"), "{headers:?}\n{response}");
        assert_ne!(status(&response), 200, "{headers:?}\n{response}");
    }
    assert_eq!(status(&server.exchange(&request("GET", "/health", b""))), 200);
}

#[test]
fn requests_may_follow_each_other() {
    let server = start(ServerOptions::default());
    let one = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let last = "GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let response = server.exchange(format!("{one}{one}{last}").as_bytes());
    assert_eq!(response.matches("HTTP/1.1 ").count(), 3, "{response}");
    assert!(response.contains("\"version\":"), "{response}");
}

/// Sends the parts of a request with pauses, and returns the response and how long it took.
fn dripped(server: &Running, parts: &[&str], pause: Duration) -> (String, Duration) {
    let (mut stream, begin) = (server.connect(), Instant::now());
    for part in parts {
        if stream.write_all(part.as_bytes()).is_err() {
            break;
        }
        std::thread::sleep(pause);
    }
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    (response, begin.elapsed())
}

#[test]
fn slow_clients_are_disconnected() {
    let options = ServerOptions { client_timeout: Duration::from_millis(400), ..ServerOptions::default() };
    let server = start(options);
    let pause = Duration::from_millis(100);
    let head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n";
    let body = completion(&[1, 2, 3], 1, 4).to_string();
    let length = format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let (response, _) = dripped(&server, &[head, &length, &body], pause);
    assert_eq!(status(&response), 200, "slow, but not too slow: {response}");

    let drip = ["x: y\r\n"; 40];
    let (response, elapsed) = dripped(&server, &[&[head][..], &drip].concat(), pause);
    assert!(matches!(status(&response), 0 | 408), "a header that never ends: {response}");
    assert!(elapsed < Duration::from_secs(20));
    let spaces = [" "; 40];
    let (response, _) =
        dripped(&server, &[&[head, "content-length: 40\r\n\r\n"][..], &spaces].concat(), pause);
    assert_eq!(status(&response), 408, "a body that takes too long: {response}");
    let (response, _) = dripped(&server, &[], Duration::ZERO);
    assert!(matches!(status(&response), 0 | 408), "nothing at all: {response}");
}

#[test]
fn a_client_that_reads_nothing_ends_its_request() {
    let options = ServerOptions { client_timeout: Duration::from_millis(400), ..ServerOptions::default() };
    let server = start(options);
    let mut body = completion(&[1, 2, 3], 1, 1_000_000);
    (body["stream"], body["n"]) = (true.into(), 16.into());
    (body["logprobs"], body["ignore_eos"]) = (5.into(), true.into());
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(&request("POST", "/v1/completions", body.to_string().as_bytes())).unwrap();
    }
    // They stay connected.
    server.wait_for("siskin_requests_running", 0);
    server.wait_for("siskin_requests_waiting", 0);
    assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4)).0, 200);
    drop(clients);
}

#[test]
fn further_connections_are_rejected() {
    let server = Running::start(
        ServerOptions { max_connections: 2, ..ServerOptions::default() },
        SchedulingOptions::default(),
    );
    let (first, _second) = (server.connect(), server.connect());
    let health = || status(&server.exchange(&request("GET", "/health", b"")));
    let start = Instant::now();
    while health() != 503 {
        assert!(start.elapsed() < Duration::from_secs(20), "answered beside two others");
    }
    drop(first);
    while health() != 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "a connection that was closed counts");
    }
}

/// Returns the number of open file descriptors, on systems that tell.
fn descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

#[test]
fn many_connections_leave_nothing_behind() {
    let server = start(ServerOptions { max_connections: 64, ..ServerOptions::default() });
    assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4)).0, 200);
    let before = descriptors();
    let waves = if env::test_all() { 100 } else { 20 };
    for wave in 0..waves {
        let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            // Nothing, half a request, or a whole one whose response is not read.
            let sent: &[u8] =
                [&b""[..], b"GET /health HTTP/1.1\r\nho", SMUGGLED.as_bytes()][(index + wave) % 3];
            let _ = client.write_all(sent);
        }
    }
    let begin = Instant::now();
    while status(&server.exchange(&request("GET", "/health", b""))) != 200 || descriptors() > before {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{before:?} descriptors became {:?}",
            descriptors()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4)).0, 200);
}

#[test]
fn every_limit_has_its_error() {
    let server = start(ServerOptions::default());
    let with = |more: Value| {
        let mut body = completion(&[1, 2, 3], 1, 2);
        more.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        body
    };
    let biases: serde_json::Map<String, Value> = (0..1025).map(|id| (id.to_string(), json!(1))).collect();
    let many = |count: usize| vec![json!([1]); count];
    for (path, body, field) in [
        ("/v1/completions", with(json!({"n": 17})), "n"),
        ("/v1/completions", with(json!({"stop": vec!["a"; 17]})), "stop"),
        ("/v1/completions", with(json!({"stop": "a".repeat(2049)})), "stop"),
        ("/v1/completions", with(json!({"logit_bias": biases})), "logit_bias"),
        ("/v1/completions", with(json!({"logprobs": 21})), "logprobs"),
        ("/v1/completions", with(json!({"prompt": many(65)})), "prompt"),
        ("/v1/completions", with(json!({"prompt": vec![1; 5000]})), "prompt"),
        ("/v1/completions", with(json!({"min_tokens": 3})), "min_tokens"),
        ("/tokenize", json!({"model": "tiny", "prompt": 5}), "prompt"),
        ("/detokenize", json!({"model": "tiny", "tokens": vec![1; (1 << 18) + 1]}), "tokens"),
    ] {
        let (code, response) = server.post(path, &body);
        assert_eq!(code, 400, "{path} {field}: {response}");
        let message = response["error"]["message"].as_str().unwrap();
        let param = response["error"]["param"].as_str();
        assert!(param == Some(field) || message.contains(field), "{path} {field}: {response}");
    }
}

#[test]
fn forms_have_limits() {
    let server = start(ServerOptions::default());
    let post = |content_type: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        server.exchange(&[head.as_bytes(), body].concat())
    };
    let field = |name: &str, value: &str| {
        format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let form = "multipart/form-data; boundary=x";
    let many = format!("{}--x--", field("a", "b").repeat(33));
    let long = format!("{}--x--", field("model", &"m".repeat((64 << 10) + 1)));
    let header = format!("--x\r\nx: {}\r\n\r\n\r\n--x--", "y".repeat(9 << 10));
    for (content_type, body, code) in [
        ("application/json", "{}".to_owned(), 415),
        ("multipart/form-data", many.clone(), 415),
        (form, many, 400),
        (form, long, 400),
        (form, header, 400),
        (form, "--x\r\n".to_owned(), 400),
        (form, String::new(), 400),
    ] {
        let response = post(content_type, body.as_bytes());
        assert_eq!(status(&response), code, "{content_type}: {response}");
    }
    let response = post(form, &vec![0; (64 << 20) + 1]);
    assert!(matches!(status(&response), 413 | 0), "{response}");
}
