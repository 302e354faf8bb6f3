//! `siskin run`: log-probabilities, and variables of the chat template.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::chat::with_template;
use serde_json::{Value, json};
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

/// Returns a tokenizer with a token for each printable byte, which has its id, and an end token.
fn printable_bytes() -> Value {
    let visible = (33..127_u8).map(|byte| (char::from(byte).to_string(), Value::from(byte)));
    let vocabulary: serde_json::Map<_, _> =
        visible.chain([("\u{120}".to_owned(), 32.into()), ("\u{10a}".to_owned(), 10.into())]).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let end = json!({"id": 2, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [end], "normalizer": null,
        "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocabulary, "merges": []}
    })
}

/// A model that must call a tool writes a call that fits its schema.
#[test]
fn tool_calls_are_parsed() {
    let template =
        "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}{{ messages[-1].content }}";
    let folder = with_template("run-calls", template);
    std::fs::write(folder.join("tokenizer.json"), printable_bytes().to_string()).unwrap();
    // Tools that the template does not show are described in a system message, and a token is a byte here.
    let config = std::fs::read(folder.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["max_position_embeddings"] = 4096.into();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let tools = folder.with_file_name("run-calls.list");
    let parameters = r#"{"type": "object", "properties": {"days": {"enum": [1, 2]}}, "required": ["days"], "additionalProperties": false}"#;
    let list = format!(
        r#"[{{"type": "function", "function": {{"name": "forecast", "parameters": {parameters}}}}}]"#
    );
    std::fs::write(&tools, list).unwrap();
    let (folder, tools) = (folder.to_str().unwrap(), tools.to_str().unwrap());
    let run = |more: &[&str]| {
        let arguments = ["run", folder, "w5", "--no-cache", "--seed", "3", "--tools", tools];
        siskin(&[&arguments[..], more].concat())
    };
    let output = run(&["--tool-choice", "required", "--json"]);
    assert!(output.status.success(), "{}", errors(&output));
    let message = value(&output)["message"].clone();
    let call = &message["tool_calls"][0]["function"];
    assert_eq!((&message["role"], &call["name"]), (&json!("assistant"), &json!("forecast")), "{message}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!([1, 2].contains(&arguments["days"].as_i64().unwrap()), "{message}");
    let output = run(&["--tool-choice", "forecast"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["name"], "forecast");
    let output = run(&["--tool-choice", "none", "-n", "4", "--json"]);
    assert!(value(&output)["message"].get("tool_calls").is_none());
    let unknown = run(&["--tool-choice", "other"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", errors(&unknown));
}

#[test]
fn variables_reach_the_chat_template() {
    let template = "{% for tool in tools or [] %}{{ tool.name }} {% endfor %}\
                    {% if enable_thinking is not false %}w7 {% endif %}\
                    {% for document in documents or [] %}{{ document }} {% endfor %}\
                    {{ messages[-1].content }}";
    let folder = with_template("run-variables", template);
    let tools = folder.with_file_name("run-tools.list");
    std::fs::write(&tools, r#"[{"name": "w8"}, {"name": "w9"}]"#).unwrap();
    let (folder, tools) = (folder.to_str().unwrap(), tools.to_str().unwrap());
    let run = |more: &[&str]| {
        let arguments = ["run", folder, "w5", "--no-cache", "--greedy", "-n", "0", "--json"];
        siskin(&[&arguments[..], more].concat())
    };
    for (options, tokens) in [
        (&[][..], 2),
        (&["--template-var", "enable_thinking=false"], 1),
        (&["--template-var", "enable_thinking=\"false\""], 2),
        (&["--tools", tools], 4),
    ] {
        assert_eq!(value(&run(options))["context_tokens"], tokens, "{options:?}");
    }
    let unused = run(&["--template-var", "thinking=false"]);
    assert!(errors(&unused).contains("warning: the model's chat template does not use `thinking`"));
    for (options, code, words) in [
        (&["--tools", "/no/such/file"][..], 3, "no such file"),
        (&["--tools", tools, "--raw"], 2, "cannot be combined with --raw"),
        (&["--template-var", "messages=[]"], 2, "cannot be set"),
        (&["--documents", &format!("{folder}/config.json")], 2, "not a JSON list"),
    ] {
        let output = run(options);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {}", errors(&output));
        assert!(errors(&output).contains(words), "{options:?}: {}", errors(&output));
    }
    let none = siskin(&["run", "shakespeare", "a", "--template-var", "a=1"]);
    assert!(none.status.code() == Some(2) && errors(&none).contains("has no chat template"));
}
