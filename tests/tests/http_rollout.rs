//! The HTTP server while models are replaced: aliases, versions, and the share of requests that load balancers send.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::http::{Running, completion, request, status, tiny};
use serde_json::{Value, json};
use siskin::{CpuFeatures, DeviceKind, Model};
use siskin_serve::online_gate::{
    OnlineGate, OnlineGateOptions, OnlineReport, OnlineVerdict, disable_traffic,
};
use siskin_serve::{ApiKeys, OperationLog, ServedModel, ServerOptions};
use siskin_tests::golden::{load_from, model};
use siskin_tests::paths;
use siskin_tests::temp_folder::TempFolder;

/// Waits until a condition is met.
pub(super) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_met() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn get(server: &Running, path: &str) -> Value {
    let response = server.exchange(&request("GET", path, b""));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(status(head), 200, "{response}");
    serde_json::from_str(body).unwrap()
}

#[test]
fn aliases_are_replaced_while_requests_run() {
    let folder = TempFolder::new("http-aliases");
    let (path, next) = (folder.path().join("aliases.json"), folder.path().join("next"));
    let put = |text: &str| {
        std::fs::write(&next, text).unwrap();
        std::fs::rename(&next, &path).unwrap();
    };
    put("{\"chat\": \"tiny-v1\"}");
    let messages = Arc::new(Mutex::new(Vec::<String>::new()));
    let log = Arc::clone(&messages);
    let options = ServerOptions {
        aliases: Some(path.clone()),
        operation_log: Some(OperationLog::new(move |message| log.lock().unwrap().push(message.to_owned()))),
        ..ServerOptions::default()
    };
    let served = ["tiny-v1", "tiny-v2"].map(|name| ServedModel::new(name, tiny()));
    let server = Running::serve_all(options, served.into());
    let mut body = completion(&[1, 2, 3], 1, 4);
    body["model"] = "chat".into();
    let answered_by = || server.post("/v1/completions", &body).1["model"].as_str().unwrap().to_owned();
    assert_eq!(answered_by(), "tiny-v1", "responses have the name of the model");
    let list = get(&server, "/v1/models");
    let roots: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|model| [&model["id"], &model["root"]]).collect();
    let names = [["tiny-v1", "tiny-v1"], ["tiny-v2", "tiny-v2"], ["chat", "tiny-v1"]];
    assert_eq!(json!(roots), json!(names));
    assert_eq!(get(&server, "/v1/models/chat")["root"], "tiny-v1");

    // A long request is running when its alias gets another model.
    let mut long = body.clone();
    (long["stream"], long["max_tokens"], long["n"]) = (true.into(), 100.into(), 16.into());
    long["prompt"] = json!([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]);
    let mut stream = server.connect();
    stream.write_all(&request("POST", "/v1/completions", long.to_string().as_bytes())).unwrap();
    let mut begin = [0; 1000];
    stream.read_exact(&mut begin).unwrap();
    put("{\"chat\": \"tiny-v2\"}");
    wait_until("the new file is not used", || answered_by() == "tiny-v2");
    assert!(messages.lock().unwrap().is_empty());
    put("{\"chat\": \"tiny-v3\"}");
    wait_until("the wrong file is not reported", || !messages.lock().unwrap().is_empty());
    let message = messages.lock().unwrap()[0].clone();
    assert!(message.contains("tiny-v3") && message.contains("aliases.json"), "{message}");
    assert_eq!(answered_by(), "tiny-v2", "the aliases stay as they are");
    let page = server.exchange(&request("GET", "/metrics", b""));
    assert!(page.contains("siskin_model_alias{alias=\"chat\",model=\"tiny-v2\"} 1"), "{page}");
    server.wait_for("siskin_alias_reload_failures_total", 1);
    let version = list["data"][0]["version"].as_str().unwrap();
    assert_eq!(version.len(), 12);
    assert!(
        page.contains(&format!("siskin_generation_tokens_total{{model=\"tiny-v2\",version=\"{version}\"}}"))
    );
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.contains("\"model\":\"tiny-v1\"") && !response.contains("\"tiny-v2\""));
    assert!(response.contains("data: [DONE]"), "the request goes on to its end");
}

fn agent_check(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    line
}

/// A model that fails if a prompt has the token 7, whose embedding is not a number.
fn with_broken_token() -> Model {
    let folder = TempFolder::new("http-broken-token");
    let golden = paths::data("golden/llama");
    for name in ["config.json", "io.safetensors"] {
        std::fs::copy(golden.join(name), folder.path().join(name)).unwrap();
    }
    let mut bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let embedding = &tensors["model.embed_tokens.weight"];
    let start = header + embedding["data_offsets"][0].as_u64().unwrap() as usize;
    let columns = embedding["shape"][1].as_u64().unwrap() as usize;
    for value in bytes[start..].chunks_mut(4).skip(7 * columns).take(columns) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    model(&load_from(folder.path(), None).file, DeviceKind::Cpu, 1, CpuFeatures::NONE)
}

#[test]
fn agent_checks_follow_the_health_of_models() {
    let agent = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let options = ServerOptions { agent_check: agent, integrity_interval: None, ..ServerOptions::default() };
    let server = Running::serve(options, ServedModel::new("tiny", with_broken_token()));
    let address = server.agent_check.unwrap();
    assert_eq!(agent_check(address), "up 100%\n");
    let status_of = |prompt: &[u32]| server.post("/v1/completions", &completion(prompt, 1, 2)).0;
    // A fifth of the requests fails: too few for the circuit breaker.
    for index in 0..40 {
        let token = if index % 5 == 0 { 7 } else { 8 };
        assert_eq!(status_of(&[1, token, 3]), if token == 7 { 500 } else { 200 });
    }
    assert_eq!(agent_check(address), "up 0%\n");
    assert_eq!(status_of(&[1, 2, 3]), 200, "requests that arrive nevertheless are answered");
    while status_of(&[1, 7, 3]) != 503 {}
    assert_eq!(agent_check(address), "down #its requests fail\n");

    let options = ServerOptions {
        agent_check: agent,
        drain_delay: Duration::from_millis(500),
        ..ServerOptions::default()
    };
    let server = Running::serve(options, ServedModel::new("tiny", tiny()));
    let address = server.agent_check.unwrap();
    assert_eq!(agent_check(address), "up 100%\n");
    server.shut_down();
    assert_eq!(agent_check(address), "up 0%\n");
}

/// Sends requests to both servers until `gate` has a verdict.
fn online_verdict(stable: &Running, canary: &Running, options: OnlineGateOptions) -> OnlineReport {
    let gate = OnlineGate::new(&stable.url(), &canary.url(), options).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for server in [stable, canary] {
            let is_over = &is_over;
            scope.spawn(move || {
                for index in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    // A fifth of the prompts has the token that a broken model lacks.
                    let token = if index % 5 == 0 { 7 } else { 8 };
                    server.post("/v1/completions", &completion(&[1, token, 3], 1, 2));
                }
            });
        }
        let report = gate.run(&mut |_| {}).unwrap();
        is_over.store(true, Ordering::Relaxed);
        report
    })
}

#[test]
fn canaries_are_compared_with_stable_servers() {
    let start = |model: Model| {
        let options = ServerOptions { integrity_interval: None, ..ServerOptions::default() };
        Running::serve(options, ServedModel::new("tiny", model))
    };
    let (stable, broken) = (start(tiny()), start(with_broken_token()));
    let options = OnlineGateOptions {
        interval: Duration::from_millis(50),
        max_time: Duration::from_secs(60),
        // Both run on one machine beside other tests.
        max_slow_increase: 0.5,
        model: Some("tiny".to_owned()),
        ..OnlineGateOptions::default()
    };
    let report = online_verdict(&stable, &broken, options.clone());
    assert_eq!(report.verdict(), OnlineVerdict::Regression, "{}", report.text());
    assert!(report.text().contains("REGRESSION  failed requests: "), "{}", report.text());
    let report = online_verdict(&stable, &start(tiny()), options.clone());
    assert_eq!(report.verdict(), OnlineVerdict::Passed, "{}", report.text());
    let other = OnlineGateOptions {
        model: Some("other".to_owned()),
        max_time: Duration::from_millis(200),
        ..options.clone()
    };
    let report = online_verdict(&stable, &broken, other);
    assert_eq!(report.verdict(), OnlineVerdict::Undecided, "{}", report.text());
    let url = broken.url();
    drop(broken);
    let report = OnlineGate::new(&stable.url(), &url, options).unwrap().run(&mut |_| {}).unwrap();
    assert_eq!(
        report.verdict(),
        OnlineVerdict::Regression,
        "a server that does not answer: {}",
        report.text()
    );
}

#[cfg(unix)]
#[test]
fn haproxy_sends_no_more_requests_to_a_canary() {
    let folder = TempFolder::new("http-haproxy");
    let socket = folder.path().join("haproxy.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    // Answers of HAProxy: without an agent, and without such a server.
    let answers = ["No agent.\n\n", "\n", "\n", "No such server.\n"];
    let commands = std::thread::spawn(move || {
        answers.map(|answer| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut command = String::new();
            BufReader::new(&stream).read_line(&mut command).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            command
        })
    });
    disable_traffic(&socket, "replicas/canary").unwrap();
    let error = disable_traffic(&socket, "replicas/other").unwrap_err();
    assert!(error.to_string().contains("No such server"), "{error}");
    let commands = commands.join().unwrap();
    assert_eq!(commands[..2], ["disable agent replicas/canary\n", "set weight replicas/canary 0\n"]);
}

#[test]
fn a_key_for_an_alias_allows_its_model_by_that_name() {
    let folder = TempFolder::new("http-alias-keys");
    let aliases = folder.path().join("aliases.toml");
    std::fs::write(&aliases, "chat = 'tiny'").unwrap();
    let key = ApiKeys::generate("one", false).unwrap();
    let keys = ApiKeys::parse(&format!("{}models = ['chat']\n", key.entry)).unwrap();
    let options = ServerOptions {
        aliases: Some(aliases.clone()),
        api_keys: Some(Arc::new(keys)),
        ..ServerOptions::default()
    };
    let server = Running::serve(options, ServedModel::new("tiny", tiny()));
    let post = |model: Option<&str>| {
        let mut body = completion(&[1, 2, 3], 1, 4);
        let fields = body.as_object_mut().unwrap();
        fields.remove("model");
        fields.extend(model.map(|name| ("model".to_owned(), name.into())));
        let (body, length) = (body.to_string(), body.to_string().len());
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-api-key: {}\r\ncontent-length: {length}\r\n\r\n",
            key.key
        );
        status(&server.exchange(format!("{head}{body}").as_bytes()))
    };
    assert_eq!((post(Some("chat")), post(Some("tiny"))), (200, 404));
    assert_eq!(post(None), 200, "the only model of the key");
    drop(server);
    std::fs::write(&aliases, "tiny = 'tiny'").unwrap();
    let options = ServerOptions { aliases: Some(aliases), ..ServerOptions::default() };
    let error = siskin_serve::Server::bind(&options, vec![ServedModel::new("tiny", tiny())]).err().unwrap();
    assert!(error.to_string().contains("`tiny` is the name of a model"), "{error}");
}
