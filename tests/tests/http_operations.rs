//! The HTTP server in operation: self-tests, long queues, the log.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::http::{Running, completion, request, status, tiny};
use serde_json::{Value, json};
use siskin::file::File;
use siskin::self_test::Goldens;
use siskin::serving::SchedulingOptions;
use siskin::{CpuFeatures, DeviceKind, Model};
use siskin_format::file::SectionKind;
use siskin_serve::{AccessLog, ServedModel, ServerOptions};
use siskin_tests::golden::{load, model};
use siskin_tests::paths;

/// A model whose file has goldens, with a weight that is damaged if `is_damaged`.
fn with_goldens(is_damaged: bool) -> Model {
    let open = |file: &File| model(file, DeviceKind::Cpu, 1, CpuFeatures::NONE);
    let file = load("llama").file;
    let goldens = Goldens::compute(&open(&file)).unwrap();
    let copy = Cursor::new(file.bytes().to_vec());
    let mut bytes =
        file.append_section(copy, SectionKind::Goldens, &goldens.to_section()).unwrap().into_inner();
    if is_damaged {
        bytes[file.tensor("output_norm.weight").unwrap().offset() + 2] ^= 0x40;
    }
    open(&File::from_bytes(bytes).unwrap())
}

fn health(server: &Running) -> u16 {
    status(&server.exchange(&request("GET", "/health/ready", b"")))
}

#[test]
fn models_that_compute_wrong_outputs_get_no_requests() {
    let server = Running::serve(ServerOptions::default(), ServedModel::new("tiny", with_goldens(true)));
    let start = Instant::now();
    while health(&server) == 200 {
        assert!(start.elapsed() < Duration::from_secs(20), "the damage is not detected");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, error) = server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4));
    assert_eq!((code, &error["error"]["code"]), (503, &json!("model_unavailable")), "{error}");
    assert_eq!(server.metric("siskin_integrity_failures_total"), 1);
    assert_eq!(server.metric("siskin_circuit_breaker_state"), 2);
    let live = server.exchange(&request("GET", "/health/live", b""));
    assert_eq!(status(&live), 200, "the process lives");

    let server = Running::serve(ServerOptions::default(), ServedModel::new("tiny", with_goldens(false)));
    server.wait_for("siskin_integrity_checks_total", 1);
    assert_eq!((health(&server), server.metric("siskin_integrity_failures_total")), (200, 0));
    assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4)).0, 200);
}

/// A server with two models, of which the first runs one request at a time, and requests that wait for it.
fn with_queue(degrade_after: Duration, check: &dyn Fn(&Running)) {
    let mut served = ["tiny", "small"].map(|name| ServedModel::new(name, tiny()));
    served[0].options.scheduling = SchedulingOptions { max_running: 1, ..SchedulingOptions::default() };
    let options = ServerOptions {
        degrade_after: Some(degrade_after),
        fallback: Some("small".to_owned()),
        ..ServerOptions::default()
    };
    let server = Running::serve_all(options, served.into());
    for seed in 0..4 {
        assert_eq!(server.post("/v1/completions", &completion(&[1, 2, 3], seed, 4)).0, 200);
    }
    let mut body = completion(&[1, 2, 3], 1, 1_000_000);
    (body["n"], body["stream"]) = (16.into(), true.into());
    // They take seconds, so that some still wait when slow machines look.
    let mut streams: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(&request("POST", "/v1/completions", body.to_string().as_bytes())).unwrap();
    }
    let start = Instant::now();
    while server.metric("siskin_requests_waiting{model=\"tiny\"") == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "no request waits");
    }
    check(&server);
}

#[test]
fn a_server_that_falls_behind_gives_up_what_costs_least() {
    with_queue(Duration::from_nanos(1), &|server| {
        let (code, error) = server.post("/v1/completions", &completion(&[1, 2, 3], 1, 4));
        assert_eq!((code, &error["error"]["code"]), (429, &json!("rate_limit_exceeded")), "{error}");
        let mut body = completion(&[1, 2, 3], 1, 4);
        body["allow_fallback"] = true.into();
        let response = server.exchange(&request("POST", "/v1/completions", body.to_string().as_bytes()));
        assert_eq!(status(&response), 200, "{response}");
        assert!(response.contains("x-siskin-degraded: fallback=small\r\n"), "{response}");
        assert!(response.contains("\"model\":\"small\""), "it says which model answers: {response}");
        assert_eq!(server.metric("siskin_degradation_level{model=\"tiny\""), 5);
    });
    with_queue(Duration::from_secs(1000), &|server| {
        assert_eq!(server.metric("siskin_degradation_level{model=\"tiny\""), 0);
    });
}

#[test]
fn the_log_has_requests_and_no_texts() {
    let lines = Arc::new(Mutex::new(Vec::<String>::new()));
    let log = Arc::clone(&lines);
    let options = ServerOptions {
        access_log: Some(AccessLog::new(move |line| log.lock().unwrap().push(line.to_owned()))),
        ..ServerOptions::default()
    };
    let server = Running::serve(options, ServedModel::new("tiny", tiny()));
    let body = json!({"model": "tiny", "prompt": "secret words"}).to_string();
    server.exchange(&request("POST", "/v1/completions", body.as_bytes()));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let head = format!(
        "GET /v1/models/tiny HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-request-id: mine\r\n\
         traceparent: {trace}\r\n\r\n"
    );
    server.exchange(head.as_bytes());
    server.exchange(&request("GET", "/nothing?secret=1", b""));
    let lines: Vec<Value> =
        lines.lock().unwrap().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [failed, found, nothing] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&failed["route"], &failed["status"]), (&json!("/v1/completions"), &json!(500)));
    assert_eq!((&found["route"], &found["id"]), (&json!("/v1/models/{model}"), &json!("mine")));
    assert_eq!((&found["traceparent"], &found["complete"]), (&json!(trace), &json!(true)));
    assert!(found["bytes"].as_u64().unwrap() > 100 && found["seconds"].as_f64().unwrap() >= 0.0);
    assert_eq!((&nothing["route"], &nothing["status"]), (&json!(""), &json!(404)));
    assert!(!format!("{lines:?}").contains("secret"), "{lines:?}");
}

#[test]
fn every_metric_is_explained() {
    let options = ServerOptions { has_vllm_metric_names: false, ..ServerOptions::default() };
    let server = Running::serve(options, ServedModel::new("tiny", tiny()));
    let page = server.exchange(&request("GET", "/metrics", b""));
    let text = std::fs::read_to_string(paths::root().join("docs/operations.md")).unwrap();
    let names: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 40, "{page}");
    let missing: Vec<_> = names.iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/operations.md does not explain {missing:?}");
}

#[test]
fn the_dashboard_and_alerts_name_metrics_that_exist() {
    let read = |path: &str| std::fs::read_to_string(paths::root().join(path)).unwrap();
    let explained = read("docs/operations.md");
    let mut count = 0;
    for path in ["deploy/grafana/dashboard.json", "deploy/prometheus/alerts.yaml", "deploy/kserve/keda.yaml"]
    {
        let text = read(path);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("siskin_") || word.starts_with("process_")) {
            let series = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let metric = series.unwrap_or(name);
            assert!(explained.contains(&format!("`{metric}`")), "{path}: {name}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
