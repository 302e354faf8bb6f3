//! The HTTP server: hostile clients, limits, and the tokens that sessions generate.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::request_adapters;
use serde_json::{Value, json};
use siskin::sample::SamplerOptions;
use siskin::serving::{Admission, DiskCacheOptions, SchedulingOptions};
use siskin::{CpuFeatures, DeviceKind, GenerateOptions, GenerationStep, Model, ModelOptions, SessionOptions};
use siskin_serve::{ServedModel, Server, ServerOptions, ShutdownHandle};
use siskin_tests::golden::{load, model};
use siskin_tests::random_adapters;
use siskin_tests::temp_folder::TempFolder;

/// A running server. Its usual model is a tiny one without a tokenizer: prompts are tokens, and texts are empty.
pub(super) struct Running {
    address: SocketAddr,
    pub(super) agent_check: Option<SocketAddr>,
    shutdown: ShutdownHandle,
    thread: Option<JoinHandle<siskin::Result<()>>>,
}

impl Running {
    pub(super) fn start(options: ServerOptions, scheduling: SchedulingOptions) -> Self {
        let mut served = ServedModel::new("tiny", tiny());
        served.options.scheduling = scheduling;
        Self::serve(options, served)
    }

    pub(super) fn serve(options: ServerOptions, served: ServedModel) -> Self {
        Self::serve_all(options, vec![served])
    }

    pub(super) fn serve_all(options: ServerOptions, served: Vec<ServedModel>) -> Self {
        let address = match options.address.ip().is_loopback() {
            true => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            false => options.address,
        };
        let options = ServerOptions { address, ..options };
        let server = Server::bind(&options, served).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.address().port()));
        let (agent_check, shutdown) = (server.agent_check_address(), server.shutdown_handle());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, agent_check, shutdown, thread }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn shut_down(&self) {
        self.shutdown.shut_down();
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends bytes, and returns all that comes back until the server closes the connection.
    pub(super) fn exchange_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may close while a body that is too long is being sent.
        let _ = stream.write_all(bytes);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        response
    }

    /// The same as text.
    pub(super) fn exchange(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&self.exchange_bytes(bytes)).into_owned()
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = self.connect();
        stream.write_all(&request("POST", path, body.to_string().as_bytes())).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (status(head), serde_json::from_str(body).unwrap())
    }

    pub(super) fn metric(&self, series: &str) -> u64 {
        let page = self.exchange(&request("GET", "/metrics", b""));
        let line = page.lines().find(|line| line.starts_with(series)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub(super) fn wait_for(&self, series: &str, value: u64) {
        let start = Instant::now();
        while self.metric(series) != value {
            assert!(start.elapsed() < Duration::from_secs(20), "{series} is not {value}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.shut_down();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

pub(super) fn tiny() -> Model {
    model(&load("llama").file, DeviceKind::Cpu, 1, CpuFeatures::NONE)
}

pub(super) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

pub(super) fn completion(prompt: &[u32], seed: u64, max_tokens: usize) -> Value {
    json!({"model": "tiny", "prompt": prompt, "seed": seed, "max_tokens": max_tokens, "logprobs": 0})
}

/// The log-probabilities of the tokens that a session generates.
fn alone(prompt: &[u32], seed: u64, max_tokens: usize) -> Vec<Value> {
    alone_on(&tiny(), prompt, seed, max_tokens)
}

fn alone_on(model: &Model, prompt: &[u32], seed: u64, max_tokens: usize) -> Vec<Value> {
    let sampler = SamplerOptions { seed, log_probabilities: true, ..SamplerOptions::default() };
    let mut session = model.session(SessionOptions { sampler, ..SessionOptions::default() }).unwrap();
    let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
    let mut generation = session.begin_tokens(prompt, options).unwrap();
    let (mut text, mut all) = (String::new(), Vec::new());
    while let Some(step) = generation.step(&mut session, &mut text).unwrap() {
        if let GenerationStep::Token(token) = step {
            all.push(json!(token.log_probability));
        }
    }
    all
}

#[test]
fn requests_have_the_tokens_of_sessions() {
    let server = Running::start(ServerOptions::default(), SchedulingOptions::default());
    let check = |seed: u64| {
        let prompt: Vec<u32> = (0..5 + seed as u32).map(|index| index * 3 % 50).collect();
        let (status, body) = server.post("/v1/completions", &completion(&prompt, seed, 12));
        assert_eq!(status, 200, "{body}");
        let choice = &body["choices"][0];
        assert_eq!(choice["logprobs"]["token_logprobs"], Value::from(alone(&prompt, seed, 12)));
        assert_eq!(choice["finish_reason"], "length");
        assert_eq!(body["usage"]["prompt_tokens"], prompt.len());
        assert_eq!(body["usage"]["completion_tokens"], 12);
    };
    std::thread::scope(|scope| (0..8).for_each(|seed| _ = scope.spawn(move || check(seed))));
    // The number of a request's events is that of its tokens, and one for the end.
    let mut streamed = completion(&[1, 2, 3], 5, 9);
    streamed["stream"] = true.into();
    let response = server.exchange(&request("POST", "/v1/completions", streamed.to_string().as_bytes()));
    let events: Vec<&str> = response.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!((events.len(), events.last()), (11, Some(&"[DONE]")), "{response}");
    let logprobs: Vec<Value> = events[..9]
        .iter()
        .map(|event| {
            let event: Value = serde_json::from_str(event).unwrap();
            event["choices"][0]["logprobs"]["token_logprobs"][0].clone()
        })
        .collect();
    assert_eq!(logprobs, alone(&[1, 2, 3], 5, 9));
}

#[test]
fn adapters_are_selected_as_models() {
    let file = load("llama").file;
    let adapters = random_adapters::adapters(&file);
    let models = request_adapters::single(&file, &adapters);
    let model =
        Model::with_adapters(file, &adapters, &ModelOptions { threads: 2, ..Default::default() }).unwrap();
    let server = Running::serve(ServerOptions::default(), ServedModel::new("tiny", model));
    let check = |name: &str, model: &Model| {
        let mut body = completion(&[3, 4, 5, 6], 1, 10);
        body["model"] = name.into();
        let (status, response) = server.post("/v1/completions", &body);
        assert_eq!(status, 200, "{response}");
        let choice = &response["choices"][0];
        // A parsed number may be the neighbor of what was printed, but has the same f32.
        let single = |number: &Value| number.as_f64().unwrap() as f32;
        let got = choice["logprobs"]["token_logprobs"].as_array().unwrap().iter().map(single);
        assert!(got.eq(alone_on(model, &[3, 4, 5, 6], 1, 10).iter().map(single)), "{name}");
        assert_eq!(response["model"], name);
        response["system_fingerprint"].clone()
    };
    std::thread::scope(|scope| {
        let names = adapters.iter().map(|adapter| adapter.name.as_str());
        let all = std::iter::once("tiny").chain(names).zip(&models);
        let checks: Vec<_> = all.map(|(name, model)| scope.spawn(move || check(name, model))).collect();
        let fingerprints: Vec<Value> = checks.into_iter().map(|check| check.join().unwrap()).collect();
        assert!((1..4).all(|at| !fingerprints[..at].contains(&fingerprints[at])), "{fingerprints:?}");
    });
    let list = server.exchange(&request("GET", "/v1/models", b""));
    let list: Value = serde_json::from_str(list.split_once("\r\n\r\n").unwrap().1).unwrap();
    let parents: Vec<_> = (0..4).map(|at| &list["data"][at]["parent"]).collect();
    assert_eq!(parents, [&Value::Null, &json!("tiny"), &json!("tiny"), &json!("tiny")]);
    assert_eq!(list["data"][2]["id"], "some");
    let mut unknown = completion(&[3], 1, 1);
    unknown["model"] = "other".into();
    assert_eq!(server.post("/v1/completions", &unknown).0, 404);
}

#[test]
fn malformed_requests_get_errors() {
    let server = Running::start(ServerOptions::default(), SchedulingOptions::default());
    let json = |body: &str| request("POST", "/v1/completions", body.as_bytes());
    let chat = |messages: &str| {
        let body = format!(r#"{{"model": "tiny", "messages": {messages}}}"#);
        request("POST", "/v1/chat/completions", body.as_bytes())
    };
    let long = vec![b' '; (4 << 20) + 1];
    let raw = |head: &str| head.replace('\n', "\r\n").into_bytes();
    let deep = format!("{{\"model\": \"tiny\", \"prompt\": {}", "[".repeat(100_000));
    let cases = [
        (request("GET", "/nothing", b""), 404, "no route"),
        (request("GET", "/../etc/passwd", b""), 404, "no route"),
        (request("DELETE", "/v1/models", b""), 405, "allow: GET"),
        (request("GET", "/v1/models/%zz", b""), 400, "percent-encoding"),
        (request("HEAD", "/health", b""), 200, ""),
        (request("GET", "/v1/models/other", b""), 404, "no model `other`"),
        (json(""), 400, "invalid JSON"),
        (json("[1]"), 400, "expected a JSON object"),
        (json("{\"model\": \"tiny\", \"prompt\": [1]"), 400, "invalid JSON"),
        (json(&deep), 400, "invalid JSON"),
        (request("POST", "/v1/completions", b"{\"model\": \"\xff\"}"), 400, "not UTF-8"),
        (json("{}"), 400, "prompt: missing"),
        (json(r#"{"model": 5}"#), 400, "model: expected a string"),
        (json(r#"{"model": "tiny"}"#), 400, "prompt: missing"),
        (json(r#"{"model": "tiny", "prompt": {"a": 1}}"#), 400, "expected a text"),
        (json(r#"{"model": "tiny", "prompt": [1], "bogus": 1}"#), 400, "unknown field `bogus`"),
        (json(r#"{"model": "tiny", "prompt": [1], "bogus": null, "max_tokens": 1}"#), 200, "usage"),
        (chat(r#"[]"#), 400, "at least one message"),
        (chat(r#"[{"role": "user"}]"#), 400, "messages[0].content: missing"),
        (chat(r#"[{"role": "user", "content": 5}]"#), 400, "expected a string or a list of text parts"),
        (
            chat(r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#),
            400,
            "`image_url` are not supported",
        ),
        (chat(r#"[{"role": "critic", "content": ""}]"#), 400, "messages[0].role: `critic` is not supported"),
        (chat(r#"[{"role": "user", "content": "a", "audio": {}}]"#), 400, "unknown field `audio`"),
        (
            json(r#"{"model": "tiny", "prompt": [1], "max_tokens": -1}"#),
            400,
            "expected a non-negative integer",
        ),
        (json(r#"{"model": "tiny", "prompt": [1], "temperature": 1e99}"#), 400, "finite"),
        (json(r#"{"model": "tiny", "prompt": [4000000000]}"#), 400, "out of range"),
        (json(r#"{"model": "tiny", "prompt": []}"#), 400, "expected 1 to 64 prompts"),
        (json(r#"{"model": "tiny", "prompt": "text"}"#), 500, "tokenizer"),
        (json(r#"{"model": "tiny", "prompt": [1], "logit_bias": {"-1": 1}}"#), 400, "not a token id"),
        (request("POST", "/v1/completions", &long), 413, "exceeds"),
        (raw("GET /v1/models HTTP/1.1\nconnection: close\n\n"), 403, "Host"),
        (raw("GET /v1/models HTTP/1.1\nhost: evil.example\nconnection: close\n\n"), 403, "is not allowed"),
        (
            raw(
                "GET /v1/models HTTP/1.1\nhost: localhost\norigin: http://evil.example\nconnection: close\n\n",
            ),
            403,
            "origin",
        ),
        (raw("GET /health HTTP/1.0\n\n"), 200, "ok"),
        (raw("GET /health HTTP/9.9\nhost: localhost\n\n"), 400, ""),
        (raw("garbage\n\n"), 400, ""),
        (raw(&format!("GET /health HTTP/1.1\nhost: localhost\nx: {}\n\n", "x".repeat(1 << 17))), 431, ""),
        (raw(&format!("GET /health HTTP/1.1\nhost: localhost\n{}\n", "a: b\n".repeat(1000))), 431, ""),
        (
            raw("POST /v1/completions HTTP/1.1\nhost: localhost\ncontent-length: 1\ncontent-length: 2\n\n{}"),
            400,
            "",
        ),
        (raw("POST /v1/completions HTTP/1.1\nhost: localhost\ncontent-length: x\n\n{}"), 400, ""),
        (raw("POST /v1/completions HTTP/1.1\nhost: localhost\ntransfer-encoding: gzip\n\n{}"), 400, ""),
    ];
    for (bytes, expected, message) in cases {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
        let response = server.exchange(&bytes);
        assert_eq!(status(&response), expected, "{start}\n{response}");
        assert!(response.contains(message), "{start}\n{response}");
    }
    assert_eq!(status(&server.exchange(&request("GET", "/health", b""))), 200);
}

#[test]
fn prompts_are_echoed_with_their_log_probabilities() {
    let scheduling = SchedulingOptions { max_running: 2, ..SchedulingOptions::default() };
    let server = Running::start(ServerOptions::default(), scheduling);
    let prompt: Vec<u32> = (0..40).map(|index| index * 7 % 50).collect();
    // A session that scores the prompt token by token.
    let mut session = tiny().session(SessionOptions::default()).unwrap();
    let mut expected = vec![Value::Null];
    session
        .score(&prompt, &mut |index, logits| {
            let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            if let Some(next) = prompt.get(index + 1) {
                expected.push(json!(f64::from(logits[*next as usize]) - sum.ln()));
            }
        })
        .unwrap();
    let generated = server.post("/v1/completions", &completion(&prompt, 3, 5)).1["choices"][0].clone();
    let mut body = completion(&prompt, 3, 5);
    (body["echo"], body["logprobs"]) = (true.into(), 2.into());
    // Whether its prompt is cached or not, and alone or beside others.
    let check = || {
        let (status, response) = server.post("/v1/completions", &body);
        assert_eq!(status, 200, "{response}");
        let logprobs = &response["choices"][0]["logprobs"];
        let scores = logprobs["token_logprobs"].as_array().unwrap();
        assert_eq!(scores.len(), 45);
        for (score, expected) in scores.iter().zip(&expected) {
            let close = |score: f64| (score - expected.as_f64().unwrap()).abs() < 1e-4;
            assert!(score.as_f64().map_or(expected.is_null(), close), "{score} is not {expected}");
        }
        assert_eq!(scores[40..], generated["logprobs"]["token_logprobs"].as_array().unwrap()[..]);
        let top = logprobs["top_logprobs"].as_array().unwrap();
        assert!(top[0].is_null() && top[1..].iter().all(Value::is_object), "{top:?}");
        assert_eq!(response["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        scores.clone()
    };
    let first = check();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..4).map(|_| scope.spawn(check)).collect();
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), first));
    });
    body["max_tokens"] = 0.into();
    let (_, response) = server.post("/v1/completions", &body);
    assert_eq!(response["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap()[..], first[..40]);
    assert_eq!(response["usage"]["completion_tokens"], 0);
    (body["stream"], body["max_tokens"]) = (true.into(), 5.into());
    let response = server.exchange(&request("POST", "/v1/completions", body.to_string().as_bytes()));
    let events = response.lines().filter_map(|line| line.strip_prefix("data: {"));
    let streamed: Vec<Value> = events
        .flat_map(|event| {
            let event: Value = serde_json::from_str(&format!("{{{event}")).unwrap();
            event["choices"][0]["logprobs"]["token_logprobs"].as_array().cloned().unwrap_or_default()
        })
        .collect();
    assert_eq!(streamed, first);
    body["echo"] = false.into();
    body["max_tokens"] = 0.into();
    assert_eq!(server.post("/v1/completions", &body).0, 400, "nothing to do");
}

#[test]
fn the_chat_page_may_only_reach_this_server() {
    let server = Running::start(ServerOptions::default(), SchedulingOptions::default());
    let response = server.exchange(&request("GET", "/", b""));
    assert_eq!(status(&response), 200);
    for header in [
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none';",
        "x-frame-options: DENY",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        assert!(response.contains(header), "{header}");
    }
    assert!(response.ends_with("</html>\n"));
}

#[test]
fn a_client_that_leaves_ends_its_request() {
    let server = Running::start(ServerOptions::default(), SchedulingOptions::default());
    for is_streamed in [true, false] {
        let mut body = completion(&[1, 2, 3], 1, 1_000_000);
        body["stream"] = is_streamed.into();
        body["n"] = 4.into();
        let mut stream = server.connect();
        stream.write_all(&request("POST", "/v1/completions", body.to_string().as_bytes())).unwrap();
        if is_streamed {
            let mut some = [0; 2000];
            stream.read_exact(&mut some).unwrap();
        }
        drop(stream);
        server.wait_for("siskin_requests_running", 0);
        server.wait_for("siskin_requests_waiting", 0);
    }
}

#[test]
fn a_full_queue_is_an_error_that_says_when_to_retry() {
    let scheduling = SchedulingOptions {
        max_running: 1,
        max_waiting: 2,
        admission: Admission::Overcommit,
        ..SchedulingOptions::default()
    };
    let server = Running::start(ServerOptions::default(), scheduling);
    let mut body = completion(&[1, 2, 3], 1, 60);
    body["n"] = 4.into();
    let (code, error) = server.post("/v1/completions", &body);
    assert_eq!((code, &error["error"]["param"]), (400, &json!("n")), "more than ever fit: {error}");
    body["n"] = 3.into();
    assert_eq!(server.post("/v1/completions", &body).0, 200, "fits into an idle server");
    let full = |_| server.exchange(&request("POST", "/v1/completions", body.to_string().as_bytes()));
    let responses: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16).map(|client| scope.spawn(move || full(client))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let rejected: Vec<_> = responses.iter().filter(|response| status(response) != 200).collect();
    assert!(!rejected.is_empty());
    for response in &rejected {
        assert_eq!(status(response), 429, "{response}");
        assert!(
            response.contains("retry-after: 1\r\n") && response.contains("rate_limit_error"),
            "{response}"
        );
    }
    assert_eq!(server.metric("siskin_requests_rejected_total"), rejected.len() as u64);
    // What was submitted before a rejection is canceled, and leaves room.
    server.wait_for("siskin_requests_running", 0);
    server.wait_for("siskin_requests_waiting", 0);
    assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4)).0, 200);
}

#[test]
fn a_shutdown_ends_requests_that_take_too_long() {
    let options = ServerOptions { drain_timeout: Duration::from_millis(1), ..ServerOptions::default() };
    let mut server = Running::start(options, SchedulingOptions::default());
    let mut body = completion(&[1, 2, 3], 1, 90);
    (body["n"], body["stream"]) = (16.into(), true.into());
    let mut streams: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&request("POST", "/v1/completions", body.to_string().as_bytes())).unwrap();
    }
    streams[0].read_exact(&mut [0; 200]).unwrap();
    let start = Instant::now();
    server.shutdown.shut_down();
    server.thread.take().unwrap().join().unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(10));
    for stream in &mut streams {
        // Complete, or an error: never silence.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

#[test]
fn prefixes_outlive_a_server() {
    let folder = TempFolder::new("served-prefixes");
    let prompt: Vec<u32> = (0..90).collect();
    let mut answers = Vec::new();
    for restored in [0, 64] {
        let mut served = ServedModel::new("tiny", tiny());
        served.options.disk_cache =
            Some(DiskCacheOptions { folder: folder.path().to_owned(), max_bytes: 1 << 30 });
        let server = Running::serve(ServerOptions::default(), served);
        answers.push(server.post("/v1/completions", &completion(&prompt, 1, 8)).1["choices"].clone());
        let tokens = server.metric("siskin_prefix_cache_restored_tokens_total");
        assert!(tokens >= restored && (tokens > 0) == (restored > 0), "{tokens} tokens restored");
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_shutdown_lets_requests_end() {
    let server = Running::start(ServerOptions::default(), SchedulingOptions::default());
    let mut body = completion(&[1, 2, 3], 1, 60);
    body["stream"] = true.into();
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/completions", body.to_string().as_bytes())).unwrap();
    let mut response = vec![0; 500];
    stream.read_exact(&mut response).unwrap();
    server.shutdown.shut_down();
    stream.read_to_end(&mut response).unwrap();
    let response = String::from_utf8(response).unwrap();
    let events = response.lines().filter(|line| line.starts_with("data: ")).count();
    assert_eq!(events, 62, "{response}");
    assert!(response.contains("data: [DONE]"));
    drop(server);
}
