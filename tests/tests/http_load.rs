//! The load generator, against the HTTP server.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use serde_json::json;
use siskin_serve::load::{LatencyTargets, LoadOptions, LoadPlan, LoadReport, Target, Workload};

use super::http::Running;
use super::http_chat::serve;

const TEMPLATE: &str = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}";

fn run(server: &Running, workload: Workload, options: &LoadOptions) -> LoadReport {
    let target = Target::new(&server.url(), None).unwrap();
    LoadPlan::new(workload, options).unwrap().run(&target).unwrap()
}

fn options() -> LoadOptions {
    // A token of this model is a byte.
    LoadOptions { requests: 6, concurrency: 3, max_prompt: 20, max_output: 24, ..LoadOptions::default() }
}

#[test]
fn every_workload_is_answered_and_counted() {
    let server = serve("load", TEMPLATE);
    for (name, workload) in Workload::ALL {
        let rate = (workload == Workload::Bursts).then_some(100.0);
        let options = LoadOptions {
            requests: if workload == Workload::LongPrompts { 1 } else { 6 },
            rate,
            ..options()
        };
        let report = run(&server, workload, &options);
        if workload == Workload::Embeddings {
            // The model is a decoder.
            assert_eq!((report.succeeded, report.errors.len()), (0, 6), "{name}");
            assert!(report.errors[0].contains("status 4"), "{name}: {}", report.errors[0]);
            continue;
        }
        assert_eq!(report.errors, Vec::<String>::new(), "{name}");
        assert!(report.prompt_tokens > 0 && report.generated_tokens > 0, "{name}: {report:?}");
        let measured = if workload == Workload::LongPrompts { 4 } else { 6 };
        assert_eq!(report.total.count, measured, "{name}: {report:?}");
        assert!(report.first_token.max <= report.total.max, "{name}: {report:?}");
        assert!(report.duration >= report.total.max, "{name}: {report:?}");
        assert_eq!(report.to_json(&LatencyTargets::default())["failed"], 0);
    }
}

/// With `ignore_eos`, the number of generated tokens is that of the plan, and the same on every run.
#[test]
fn responses_have_all_of_their_tokens() {
    let server = serve("load-eos", TEMPLATE);
    let counts = [1, 3].map(|concurrency| {
        let options = LoadOptions { requests: 12, concurrency, ..options() };
        run(&server, Workload::Chat, &options).generated_tokens
    });
    assert_eq!(counts[0], counts[1]);
    // Medians of 130 tokens are cut to 24.
    assert!(counts[0] > 12 * 20, "{counts:?}");
}

#[test]
fn failures_are_reported_and_a_missing_server_is_an_error() {
    let server = serve("load-errors", TEMPLATE);
    let target = Target::new(&server.url(), Some("another".to_owned())).unwrap();
    let plan = LoadPlan::new(Workload::Chat, &options()).unwrap();
    let report = plan.run(&target).unwrap();
    assert_eq!((report.succeeded, report.errors.len()), (0, 6));
    assert!(report.errors[0].contains("404") && report.errors[0].contains("another"), "{}", report.errors[0]);
    let url = server.url();
    drop(server);
    let error = plan.run(&Target::new(&url, None).unwrap()).unwrap_err();
    assert_eq!(error.kind(), siskin::ErrorKind::Io, "{error}");
}

#[test]
fn end_tokens_wait_for_the_minimum() {
    let server = serve("load-minimum", TEMPLATE);
    let usage = |fields: serde_json::Value| {
        let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "a"}], "seed": 3,
            "logit_bias": {"2": 100}, "max_tokens": 30});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let (status, response) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{response}");
        let reason = response["choices"][0]["finish_reason"].as_str().unwrap().to_owned();
        (response["usage"]["completion_tokens"].as_u64().unwrap(), reason)
    };
    assert_eq!(usage(json!({})), (0, "stop".to_owned()));
    assert_eq!(usage(json!({"min_tokens": 9})), (9, "stop".to_owned()));
    assert_eq!(usage(json!({"ignore_eos": true})), (30, "length".to_owned()));
    let body = json!({"model": "tiny", "messages": [], "min_tokens": 9, "max_tokens": 5});
    assert_eq!(server.post("/v1/chat/completions", &body).0, 400);
}
