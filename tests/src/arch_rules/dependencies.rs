//! Restricts each third-party dependency to certain folders.

use super::crates::{folder_of, is_ours};
use super::rust::word_positions;
use super::{RustFile, Tree, manifests};

/// Crates that parse or write JSON.
const SERDE: &[&str] = &[
    "runtime/chat-template",
    "runtime/format",
    "runtime/graph",
    "runtime/siskin",
    "convert",
    "trainer",
    "hub",
    "serve",
    "cli",
];

/// The folders of shipped code that may use a package. Test code and the tests crate are not restricted.
const ALLOWED: [(&str, &[&str]); 41] = [
    ("base64", &["cli", "serve"]),
    (
        "blake3",
        &[
            "runtime/backend",
            "runtime/format",
            "runtime/graph",
            "runtime/scheduler",
            "runtime/siskin",
            "serve",
        ],
    ),
    ("cbindgen", &["tests"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("ctrlc", &["cli"]),
    ("cudarc", &["runtime/cuda/src/driver"]),
    ("flate2", &["tests"]),
    ("getrandom", &["serve"]),
    ("half", &["kernels"]),
    ("http-body-util", &["serve"]),
    ("hyper", &["serve"]),
    ("hyper-util", &["serve"]),
    ("indicatif", &["cli"]),
    ("libc", &["emulator", "runtime/format/src/file", "runtime/backend/src/thread_pool"]),
    ("libfuzzer-sys", &["fuzz"]),
    (
        "libm",
        &[
            "kernels",
            "runtime/audio",
            "runtime/backend",
            "runtime/chat-template",
            "runtime/graph",
            "runtime/siskin",
            "trainer",
        ],
    ),
    ("libloading", &["runtime/cuda/src/driver"]),
    ("listenfd", &["serve"]),
    ("llguidance", &["runtime/siskin/src/constraint"]),
    ("matrixmultiply", &["trainer"]),
    ("memmap2", &["runtime/backend/src/kv_storage", "runtime/format/src/file", "convert/src/import"]),
    ("numpy", &["py"]),
    ("pyo3", &["py"]),
    ("rayon", &["convert", "trainer"]),
    ("rustix", &["hub/src/disk.rs"]),
    ("rustyline", &["cli"]),
    ("sd-notify", &["serve"]),
    ("serde", SERDE),
    ("serde_json", SERDE),
    ("sha1", &["hub/src/digest.rs"]),
    ("sha2", &["hub/src/digest.rs"]),
    ("strsim", &["cli", "trainer"]),
    ("symphonia", &["media"]),
    ("tokio", &["serve"]),
    ("tokio-rustls", &["serve/src/tls.rs"]),
    ("toml", &["hub", "serve", "trainer"]),
    ("tract-onnx", &["convert/src/import/onnx/general"]),
    ("ureq", &["hub"]),
    ("zip", &["hub/src/source/pypi.rs"]),
];

/// Returns the folders in the table.
pub(super) fn folders() -> Vec<String> {
    let folders = ALLOWED.iter().flat_map(|(_, folders)| *folders);
    // A crate is known by its manifest.
    let is_folder = |folder: &str| folder.contains('/') || folder == "runtime";
    let path =
        |folder: &str| if is_folder(folder) { folder.to_owned() } else { format!("{folder}/Cargo.toml") };
    folders.map(|folder| path(folder)).collect()
}

/// Returns dependencies that a manifest declares outside their folders, or that have no folders.
pub fn declared_where_allowed(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for manifest in manifests(tree) {
        for dependency in manifest.dependencies.iter().filter(|dependency| !is_ours(&dependency.name)) {
            let place = format!("{}:{}: `{}`", manifest.path, dependency.line, dependency.name);
            let folder = manifest.folder();
            match ALLOWED.iter().find(|(name, _)| *name == dependency.name) {
                None => {
                    breaches.push(format!(
                        "{place} is not listed; list it in tests/src/arch_rules/dependencies.rs"
                    ));
                }
                Some((_, folders)) => {
                    let is_allowed = folders.iter().any(|allowed| folder_of(allowed) == Some(folder));
                    if !is_allowed && !dependency.dev && folder != "tests" {
                        breaches.push(format!("{place} may only be used in {folders:?}"));
                    }
                }
            }
        }
    }
    breaches
}

/// Returns shipped code that uses a dependency outside its folders.
pub fn used_where_allowed(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for source in tree.rust().filter(|file| !file.is_test() && !file.path.starts_with("tests/")) {
        let file = RustFile::new(source);
        for (name, folders) in ALLOWED {
            let inside = |folder: &str| {
                let below = file.path == folder || file.path.starts_with(&format!("{folder}/"));
                below && folder_of(folder) == folder_of(file.path)
            };
            if folders.iter().any(|folder| inside(folder)) {
                continue;
            }
            let name = name.replace('-', "_");
            for (number, line) in file.shipped() {
                if word_positions(&line.code, &name).any(|at| is_path(&line.code, at, &name)) {
                    breaches
                        .push(format!("{}:{number}: `{name}` may only be used in {folders:?}", file.path));
                }
            }
        }
    }
    breaches
}

/// Returns true if the word at `at` starts a path of an external crate, and is not a local of the same name.
fn is_path(code: &str, at: usize, name: &str) -> bool {
    let before = code[..at].trim_end();
    let after = code[at + name.len()..].trim_start();
    let inner =
        before.ends_with("::") && before.trim_end_matches("::").ends_with(|c: char| c.is_alphanumeric());
    let imported = before.ends_with("use") || before.ends_with("extern crate");
    !inner && (after.starts_with("::") || imported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_outside_its_room_is_found() {
        let rows = [
            ("runtime/graph/src/arch/a.rs", "use memmap2::Mmap;", 1),
            ("runtime/format/src/file/map.rs", "use memmap2::Mmap;", 0),
            ("runtime/backend/src/a.rs", "fn f() { ::rayon::join(a, b); }", 1),
            ("runtime/backend/src/a.rs", "half::f16::ZERO", 1),
            ("runtime/cuda/src/a.rs", "use serde::Serialize;", 1),
            ("runtime/graph/src/a.rs", "use serde::Serialize;", 0),
            ("runtime/backend/src/a.rs", "let half = n / 2; crate::half::x()", 0),
            ("runtime/backend/src/a.rs", "#[cfg(test)]\nmod tests { use rayon::join; }", 0),
        ];
        for (path, code, count) in rows {
            assert_eq!(used_where_allowed(&Tree::from_files(&[(path, code)])).len(), count, "{path}: {code}");
        }
    }

    #[test]
    fn a_manifest_may_not_declare_what_it_may_not_use() {
        let declare = |path: &str, name: &str, text: &str| {
            let text = format!("[package]\nname = \"{name}\"\n{text}\n");
            declared_where_allowed(&Tree::from_files(&[(path, &text)])).len()
        };
        assert_eq!(declare("cli/Cargo.toml", "siskin-cli", "[dependencies]\nrayon.workspace = true"), 1);
        assert_eq!(declare("cli/Cargo.toml", "siskin-cli", "[dependencies]\nclap.workspace = true"), 0);
        assert_eq!(declare("cli/Cargo.toml", "siskin-cli", "[dev-dependencies]\nrandom = \"1\""), 1);
        assert_eq!(
            declare("kernels/Cargo.toml", "siskin-kernels", "[dev-dependencies]\nserde_json = \"1\""),
            0
        );
    }
}
