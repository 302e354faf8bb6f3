//! `siskin bench` on models of every kind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

#[test]
fn every_kind_of_model_is_measured() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");
    let kinds: [(&str, &[&str]); 4] = [
        ("golden/llama", &["first_token_ms", "prompt_tok_s", "generate_tok_s"]),
        ("golden-texts/bert", &["first_read_ms", "read_ms", "read_tok_s", "padding"]),
        ("golden-texts/t5", &["first_token_ms", "read_ms", "read_tok_s", "generate_tok_s"]),
        ("golden-texts/whisper", &["first_token_ms", "read_ms", "generate_tok_s"]),
    ];
    for (folder, fields) in kinds {
        let output = Command::new(env!("CARGO_BIN_EXE_siskin"))
            .args(["bench", &format!("{data}/{folder}"), "--no-cache", "--quiet", "--json", "--repeat", "2"])
            .args(["--prompt", "8", "--generate", "4", "--depth", "2"])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
        for field in fields {
            assert!(report[*field].as_f64().is_some_and(f64::is_finite), "{folder}: {field} in {printed}");
        }
    }
}

/// More sequences than tokens in each, with a cache of keys and values, sliding windows and recurrent states.
#[test]
fn sequences_decode_together() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");
    let bench = |folder: &str, arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_siskin"))
            .args(["bench", &format!("{data}/{folder}"), "--no-cache", "--quiet", "--json", "--repeat", "2"])
            .args(arguments)
            .output()
            .unwrap()
    };
    let work = ["--prompt", "0", "--generate", "4", "--depth", "2", "--sequences", "16"];
    for folder in ["golden/llama", "golden/gemma2", "golden/lfm2", "golden/qwen3-next", "golden-texts/t5"] {
        let output = bench(folder, &work);
        assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["sequences"], 16, "{folder}");
        assert!(report["generate_tok_s"].as_f64().is_some_and(|rate| rate > 0.0), "{folder}: {report}");
    }
    for (folder, arguments) in
        [("golden-texts/bert", &["--sequences", "2"]), ("golden/llama", &["--sequences=2", "--generate=0"])]
    {
        let output = bench(folder, arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains("--sequences"), "{folder}: {error}");
    }
}

#[test]
fn people_get_a_table() {
    let bench = ["bench", "shakespeare", "--prompt", "8", "--generate", "4", "--repeat", "1"];
    let output = Command::new(env!("CARGO_BIN_EXE_siskin")).args(bench).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let line =
        |name: &str| printed.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("prefill  ").ends_with(" tokens/s"), "{printed}");
    assert!(line("time to first token  ").ends_with(" ms"), "{printed}");
    assert!(line("threads  ").ends_with(|c: char| c.is_ascii_digit()), "{printed}");
}
