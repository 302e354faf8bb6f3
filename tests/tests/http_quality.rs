//! The HTTP server watches itself: the quality of responses, and how prompts change.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use crate::http::{Running, completion, request, tiny};
use crate::http_chat;
use crate::http_rollout::wait_until;
use crate::http_tasks;
use siskin::EncoderOptions;
use siskin::encoder::EmbedOptions;
use siskin::serving::PromptInput;
use siskin_serve::{BaselinePrompt, DriftBaseline, ServedModel, ServerOptions};

/// A model whose prompts can be scored.
fn scored() -> ServedModel {
    let mut served = ServedModel::new("tiny", tiny());
    served.options.output_rows = 16;
    served
}

/// The value of a series that has these labels; `None` if there is no such series.
fn gauge(server: &Running, name: &str, label: &str) -> Option<f64> {
    let page = server.exchange(&request("GET", "/metrics", b""));
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
    let line = page.lines().find(is_it)?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn samples_of_responses_are_scored_again() {
    let options = ServerOptions { quality_sample: 1.0, ..ServerOptions::default() };
    let server = Running::serve(options, scored());
    assert_eq!(gauge(&server, "siskin_quality_perplexity", "answer"), None);
    let mut body = completion(&[1, 2, 3, 4, 5], 1, 12);
    body["echo"] = true.into();
    let (status, response) = server.post("/v1/completions", &body);
    assert_eq!(status, 200, "{response}");
    server.wait_for("siskin_quality_samples_total", 1);
    let log_probabilities = response["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap();
    let mean = |values: &[serde_json::Value]| {
        values.iter().map(|value| value.as_f64().unwrap()).sum::<f64>() / values.len() as f64
    };
    for (part, expected) in
        [("\"prompt\"", mean(&log_probabilities[1..5])), ("\"answer\"", mean(&log_probabilities[5..]))]
    {
        let found = gauge(&server, "siskin_quality_log_probability", part).unwrap();
        assert!((found - expected).abs() < 1e-5, "{part}: {found}, not {expected}");
        let perplexity = gauge(&server, "siskin_quality_perplexity", part).unwrap();
        assert!((perplexity - (-expected).exp()).abs() < 1e-3 * perplexity, "{part}: {perplexity}");
        // The vocabulary has 256 tokens.
        let entropy = gauge(&server, "siskin_quality_entropy", part).unwrap();
        assert!((0.0..=256_f64.ln()).contains(&entropy), "{part}: {entropy}");
    }
    assert_eq!(gauge(&server, "siskin_quality_truncation_ratio", ""), Some(1.0));
    let before = gauge(&server, "siskin_quality_repetition_ratio", "").unwrap();
    assert!(before < 0.5, "{before}");

    // Responses that repeat a token.
    let mut body = completion(&[1, 2, 3], 1, 40);
    body["logit_bias"] = serde_json::json!({"9": 100});
    for _ in 0..8 {
        server.post("/v1/completions", &body);
    }
    server.wait_for("siskin_quality_samples_total", 9);
    let after = gauge(&server, "siskin_quality_repetition_ratio", "").unwrap();
    assert!(after > 0.8, "{after}");
}

#[test]
fn samples_wait_for_other_requests_and_few_are_kept() {
    let options = ServerOptions { quality_sample: 0.5, ..ServerOptions::default() };
    let server = Running::serve(options, scored());
    for seed in 0..6 {
        server.post("/v1/completions", &completion(&[1, 2, 3], seed, 4));
    }
    server.wait_for("siskin_quality_samples_total", 3);
    // All end at about the same time.
    let mut many = completion(&[1, 2, 3], 1, 100);
    many["n"] = 16.into();
    many["prompt"] = serde_json::json!((0..16).map(|token| [token, 2, 3]).collect::<Vec<_>>());
    assert_eq!(server.post("/v1/completions", &many).0, 200);
    let count = |name| gauge(&server, name, "").unwrap();
    wait_until("samples wait", || {
        count("siskin_quality_samples_total") + count("siskin_quality_samples_dropped_total") == 131.0
    });
}

/// Prompts with tokens from `first` on, more of small ones.
fn prompts(seed: u64, first: u32) -> Vec<Vec<u32>> {
    let mut state = seed;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..768)
        .map(|_| (0..8 + random(24)).map(|_| first + random(60).min(random(60)) as u32).collect())
        .collect()
}

#[test]
fn prompts_that_differ_from_the_baseline_are_noticed() {
    let known: Vec<BaselinePrompt> = prompts(1, 10)
        .into_iter()
        .map(|tokens| BaselinePrompt { tokens, ..BaselinePrompt::default() })
        .collect();
    let baseline = DriftBaseline::of(&tiny(), &known).unwrap();
    for (first, has_drift) in [(10, false), (100, true)] {
        let mut served = scored();
        served.drift_baseline = Some(DriftBaseline::parse(&baseline.to_json()).unwrap());
        let server = Running::serve(ServerOptions::default(), served);
        let psi = |feature: &str, window: &str| {
            gauge(&server, "siskin_drift_psi", &format!("feature=\"{feature}\",window=\"{window}\""))
        };
        for (index, prompts) in prompts(2, first).chunks(64).enumerate() {
            assert!(index >= 8 || psi("token_frequency", "1h").is_none(), "there are too few prompts");
            let mut body = completion(&[], 1, 1);
            body["prompt"] = serde_json::json!(prompts);
            assert_eq!(server.post("/v1/completions", &body).0, 200);
        }
        for window in ["1h", "24h"] {
            let frequency = psi("token_frequency", window).unwrap();
            assert_eq!(frequency > 0.25, has_drift, "{first}: {frequency}");
            assert!(has_drift || frequency < 0.1, "{frequency}");
            let length = psi("prompt_length", window).unwrap();
            assert!(length < 0.1, "{length}");
            assert_eq!(psi("characters", window), None, "there is no tokenizer");
        }
    }
}

#[test]
fn texts_that_differ_from_the_baseline_move_their_embeddings() {
    let model = http_tasks::open("golden-texts/bert-classes");
    let text = |numbers: &[u32], first: u32| {
        numbers.iter().map(|number| format!("w{}", first + number % 10)).collect::<Vec<_>>().join(" ")
    };
    let texts: Vec<String> = prompts(3, 0).iter().map(|numbers| text(numbers, 5)).collect();
    let mut encoder = model.encoder(EncoderOptions { head: false, ..EncoderOptions::default() }).unwrap();
    let vectors = encoder.embed(&texts, &EmbedOptions::of(&model).unwrap()).unwrap();
    let known: Vec<BaselinePrompt> = texts
        .iter()
        .zip(vectors)
        .map(|(text, vector)| BaselinePrompt {
            tokens: PromptInput::Text(text.clone()).tokens(&model).unwrap(),
            log_probability: None,
            embedding: Some(vector),
        })
        .collect();
    let baseline = DriftBaseline::of(&model, &known).unwrap();
    let distance = |first: u32| {
        let mut served = ServedModel::new("bert", model.clone());
        served.drift_baseline = Some(DriftBaseline::parse(&baseline.to_json()).unwrap());
        let server = Running::serve(ServerOptions::default(), served);
        for numbers in prompts(4, 0).chunks(256) {
            let input: Vec<String> = numbers.iter().map(|numbers| text(numbers, first)).collect();
            let body = serde_json::json!({"model": "bert", "input": input});
            assert_eq!(server.post("/v1/embeddings", &body).0, 200);
        }
        let frequency = gauge(&server, "siskin_drift_psi", "token_frequency").unwrap();
        (gauge(&server, "siskin_drift_embedding_distance", "1h").unwrap(), frequency)
    };
    let (same, frequency) = distance(5);
    assert!(same < 0.1 && frequency < 0.1, "{same} {frequency}");
    let (changed, frequency) = distance(30);
    assert!(changed > 0.25 && frequency > 0.25, "{changed} {frequency}");
}

#[test]
fn rejected_grammars_are_counted() {
    let server = http_chat::serve("rejected-grammars", None);
    let mut body = completion(&[1, 2, 3], 1, 4);
    (body["prompt"], body["guided_regex"]) = ("a".into(), "(".into());
    let (status, error) = server.post("/v1/completions", &body);
    assert_eq!((status, &error["error"]["param"]), (400, &"guided_regex".into()), "{error}");
    server.wait_for("siskin_quality_rejected_outputs_total", 1);
}
