//! `siskin run`: log-probabilities.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use std::process::{Command, Output};

fn siskin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siskin")).args(arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn value(output: &Output) -> Value {
    assert!(output.status.success(), "{}", errors(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn tokens_have_log_probabilities() {
    let run = ["run", "shakespeare", "ROMEO:", "--greedy", "-n", "12", "--json"];
    let plain = value(&siskin(&run));
    assert!(plain.get("logprobs").is_none());
    let report = value(&siskin(&[&run[..], &["--top-logprobs", "3"]].concat()));
    let tokens = report["logprobs"].as_array().unwrap();
    assert_eq!((tokens.len(), &report["text"]), (12, &plain["text"]));
    let mut text = Vec::new();
    for token in tokens {
        let logprob = token["logprob"].as_f64().unwrap();
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((&top[0]["id"], top.len()), (&token["id"], 3), "the most likely token is chosen");
        assert_eq!(top[0]["logprob"].as_f64(), Some(logprob));
        assert!(logprob <= 0.0 && top[1]["logprob"].as_f64().unwrap() <= logprob, "{token}");
        text.extend(token["bytes"].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8));
    }
    assert_eq!(String::from_utf8(text).unwrap(), report["text"].as_str().unwrap());
    let report = value(&siskin(&[&run[..], &["--logprobs"]].concat()));
    assert_eq!(report["logprobs"][3]["logprob"], tokens[3]["logprob"]);
    assert!(report["logprobs"][3].get("top_logprobs").is_none());
    assert_eq!(siskin(&["run", "shakespeare", "a", "--logprobs"]).status.code(), Some(2), "without --json");
}
