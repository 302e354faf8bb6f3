//! Training an adapter and running it: `train`, `eval`, `run --adapter`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("siskin-cli-adapters-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let line = |i: usize| {
            format!("The {} sings to the {}.\n\n", ["wren", "newt"][i % 2], ["otter", "heron"][i % 3 / 2])
        };
        std::fs::write(path.join("text.txt"), (0..120).map(line).collect::<String>()).unwrap();
        Self(path)
    }

    /// Writes a config that trains on the text.
    fn config(&self, name: &str, model: &str, more: &str) -> PathBuf {
        let text = format!(
            "steps = 8\n[model]\n{model}\n[data]\ntask = \"causal_lm\"\n\
             train = [\"text.txt\"]\nvalidation_split = 0.2\nsettings = {{ max_length = 32 }}\n\
             [batch]\nmax_tokens = 256\n[schedule]\nlearning_rate = 1e-2\n{more}\n"
        );
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn siskin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siskin")).arg("-q").args(arguments).output().unwrap()
}

fn report(arguments: &[&str]) -> Value {
    let output = siskin(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn of(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn an_adapter_is_trained_measured_and_run() {
    let place = Place::new();
    let tiny = "family = \"gpt2\"\ntokenizer_vocab_size = 280\n\
                config = { vocab_size = 280, n_embd = 32, n_layer = 2, n_head = 4, \
                n_positions = 64 }";
    let base = place.config("base.toml", tiny, "[qat]\nweight_type = \"W8r\"");
    report(&["train", of(&base), "--json"]);
    let adapters = "[adapters]\nmethod = \"dora\"\nrank = 4";
    let from = "from = \"base.siskin\"";
    let apart = place.config("apart.toml", from, &format!("{adapters}\n[export]\nadapter = true"));
    let trained = report(&["train", of(&apart), "--json"]);
    let together = place.config("together.toml", from, adapters);
    let merged = report(&["train", of(&together), "--json"]);
    assert_eq!(trained["validation_loss"], merged["validation_loss"]);
    let measured = report(&["eval", of(&apart), "--json"])["loss"].as_f64().unwrap();
    assert!((measured - trained["validation_loss"].as_f64().unwrap()).abs() < 1e-5, "{measured}");
    let size = |name: &str| std::fs::metadata(place.0.join(name)).unwrap().len();
    assert!(size("apart.siskin") < size("together.siskin"));

    let [base, adapter, merged] =
        ["base.siskin", "apart.siskin", "together.siskin"].map(|name| place.0.join(name));
    let write = |model: &Path, more: &[&str]| {
        let arguments =
            [&["run", of(model), "The wren", "--raw", "--greedy", "--max-tokens", "24"], more].concat();
        siskin(&arguments)
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let beside = write(&base, &["--adapter", of(&adapter)]);
    assert!(beside.status.success(), "{}", String::from_utf8_lossy(&beside.stderr));
    assert_eq!(text(&beside), text(&write(&base, &["--adapter", of(&adapter), "--threads", "3"])));
    assert_ne!(text(&beside), text(&write(&base, &[])));
    report(&["doctor", of(&base), "--adapter", of(&adapter), "--json"]);

    let rejected = write(&merged, &["--adapter", of(&adapter)]);
    let message = String::from_utf8_lossy(&rejected.stderr).into_owned();
    assert!(rejected.status.code() == Some(2) && message.contains("on different weights"), "{message}");
    assert!(write(&merged, &["--adapter", of(&adapter), "--any-base"]).status.success());
    let alone = write(&adapter, &[]);
    let message = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(!alone.status.success() && message.contains("an adapter without a model"), "{message}");
    assert!(!write(&base, &["--any-base"]).status.success(), "says nothing without an adapter");
}
