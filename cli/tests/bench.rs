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
