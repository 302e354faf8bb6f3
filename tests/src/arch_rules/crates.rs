//! Allowed dependencies between crates.

use super::Tree;

/// Our crates: the package, its folder, and our packages that it may depend on.
const CRATES: [(&str, &str, &[&str]); 26] = [
    ("siskin-kernels", "kernels", &[]),
    ("siskin-format", "runtime/format", &["siskin-kernels"]),
    ("siskin-tokenizer", "runtime/tokenizer", &["siskin-format"]),
    ("siskin-chat-template", "runtime/chat-template", &["siskin-format"]),
    ("siskin-audio", "runtime/audio", &["siskin-format"]),
    ("siskin-graph", "runtime/graph", &["siskin-format", "siskin-kernels"]),
    (
        "siskin-backend",
        "runtime/backend",
        &["siskin-device", "siskin-format", "siskin-graph", "siskin-kernels"],
    ),
    ("siskin-scheduler", "runtime/scheduler", &["siskin-backend", "siskin-format"]),
    ("siskin-device", "runtime/device", &["siskin-format"]),
    ("siskin-cuda", "runtime/cuda", &["siskin-device", "siskin-format", "siskin-graph", "siskin-kernels"]),
    (
        "siskin-cuda-backend",
        "runtime/cuda-backend",
        &[
            "siskin-backend",
            "siskin-cuda",
            "siskin-device",
            "siskin-format",
            "siskin-graph",
            "siskin-kernels",
        ],
    ),
    (
        "siskin",
        "runtime/siskin",
        &[
            "siskin-audio",
            "siskin-backend",
            "siskin-chat-template",
            "siskin-format",
            "siskin-graph",
            "siskin-kernels",
            "siskin-scheduler",
            "siskin-tokenizer",
        ],
    ),
    (
        "siskin-convert",
        "convert",
        &["siskin-backend", "siskin-format", "siskin-graph", "siskin-kernels", "siskin-tokenizer"],
    ),
    (
        "siskin-trainer",
        "trainer",
        &[
            "siskin-cuda",
            "siskin-device",
            "siskin-format",
            "siskin-graph",
            "siskin-kernels",
            "siskin-tokenizer",
        ],
    ),
    ("siskin-ffi", "ffi", &["siskin", "siskin-convert"]),
    ("siskin-media", "media", &["siskin-audio", "siskin-format"]),
    ("siskin-hub", "hub", &["siskin-format"]),
    ("siskin-serve", "serve", &["siskin", "siskin-cuda", "siskin-format", "siskin-media"]),
    (
        "siskin-cli",
        "cli",
        &[
            "siskin",
            "siskin-convert",
            "siskin-cuda-backend",
            "siskin-format",
            "siskin-hub",
            "siskin-media",
            "siskin-serve",
            "siskin-trainer",
        ],
    ),
    ("siskin-py", "py", &["siskin", "siskin-convert", "siskin-hub", "siskin-media", "siskin-trainer"]),
    ("siskin-examples", "examples/rust", &["siskin", "siskin-convert"]),
    ("siskin-emulator", "emulator", &[]),
    (
        "siskin-tests",
        "tests",
        &[
            "siskin",
            "siskin-benches",
            "siskin-convert",
            "siskin-cuda",
            "siskin-cuda-backend",
            "siskin-device",
            "siskin-emulator",
            "siskin-format",
            "siskin-graph",
            "siskin-hub",
            "siskin-kernels",
            "siskin-media",
            "siskin-scheduler",
            "siskin-serve",
            "siskin-tokenizer",
            "siskin-trainer",
            "siskin-ffi",
        ],
    ),
    ("siskin-benches", "benches", &["siskin-kernels"]),
    ("siskin-fuzz", "fuzz", &["siskin-tests"]),
    ("xtask", "xtask", &[]),
];

/// Returns the manifests of the crates in the table.
pub(super) fn folders() -> Vec<String> {
    CRATES.iter().map(|(_, folder, _)| format!("{folder}/Cargo.toml")).collect()
}

/// Returns the folder of the crate that a file or folder belongs to.
pub(super) fn folder_of(path: &str) -> Option<&'static str> {
    let inside = |folder: &&str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    CRATES.iter().map(|(_, folder, _)| *folder).find(inside)
}

/// Dependencies that only tests of a crate have.
const FOR_TESTS: [(&str, &str); 2] = [("siskin-kernels", "siskin-emulator"), ("siskin-convert", "siskin")];

/// A dependency as declared by a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// The line of the manifest, from one.
    pub line: usize,
    /// Whether only tests and benches use it.
    pub dev: bool,
}

/// The relevant parts of a `Cargo.toml`.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The path of the manifest, relative to the workspace root.
    pub path: String,
    /// The package's name; empty for a manifest without a package.
    pub name: String,
    /// All dependencies, including those of targets and build scripts.
    pub dependencies: Vec<Dependency>,
}

impl Manifest {
    /// Returns the folder of the package.
    pub fn folder(&self) -> &str {
        self.path.strip_suffix("/Cargo.toml").unwrap_or("")
    }

    fn parse(path: &str, text: &str) -> Self {
        let mut manifest = Self { path: path.to_owned(), ..Self::default() };
        let mut section = String::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = header.trim_matches(['[', ']']).to_owned();
                if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                    manifest.add(name, index, kind.ends_with("dev-"));
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.trim().trim_matches('"');
            if section == "package" && key == "name" {
                manifest.name = value.trim().trim_matches('"').to_owned();
            } else if section.ends_with("dependencies") && section != "workspace.dependencies" {
                let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
                let name = renamed.unwrap_or_else(|| key.split('.').next().unwrap_or(key));
                manifest.add(name, index, section.ends_with("dev-dependencies"));
            }
        }
        manifest
    }

    fn add(&mut self, name: &str, index: usize, dev: bool) {
        self.dependencies.push(Dependency { name: name.to_owned(), line: index + 1, dev });
    }
}

/// Returns every manifest that has a package.
pub fn manifests(tree: &Tree) -> Vec<Manifest> {
    tree.files
        .iter()
        .filter(|file| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml"))
        .map(|file| Manifest::parse(&file.path, &file.text))
        .filter(|manifest| !manifest.name.is_empty())
        .collect()
}

/// Returns true if `name` is one of our packages.
pub(super) fn is_ours(name: &str) -> bool {
    name == "siskin" || name.starts_with("siskin-") || name == "xtask"
}

/// Returns disallowed dependencies between our crates.
pub fn crate_directions(tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    for manifest in manifests(tree) {
        let Manifest { path, name, .. } = &manifest;
        let Some((_, folder, allowed)) = CRATES.iter().find(|(known, ..)| known == name) else {
            breaches
                .push(format!("{path}:1: no crate `{name}` in the table of tests/src/arch_rules/crates.rs"));
            continue;
        };
        if *folder != manifest.folder() {
            breaches.push(format!("{path}:1: `{name}` belongs in `{folder}/`"));
        }
        for dependency in manifest.dependencies.iter().filter(|dependency| is_ours(&dependency.name)) {
            let for_tests = dependency.dev && FOR_TESTS.contains(&(name, &dependency.name));
            if !for_tests && !allowed.contains(&dependency.name.as_str()) {
                breaches.push(format!(
                    "{path}:{}: `{name}` may not depend on `{}`; it may on {allowed:?}",
                    dependency.line, dependency.name
                ));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_found_in_every_spelling() {
        for line in [
            "[dependencies]\nsiskin.workspace = true",
            "[dependencies.siskin]\nworkspace = true",
            "[dev-dependencies]\nsiskin = { path = \"../runtime\" }",
            "[target.'cfg(unix)'.dependencies]\nother = { package = \"siskin\" }",
            "[dependencies]\nsiskin-emulator.workspace = true",
        ] {
            let text = format!("[package]\nname = \"siskin-kernels\"\n{line}\n");
            let found = crate_directions(&Tree::from_files(&[("kernels/Cargo.toml", &text)]));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].starts_with("kernels/Cargo.toml:"), "{found:?}");
        }
    }

    #[test]
    fn unknown_crates_are_named() {
        let found =
            crate_directions(&Tree::from_files(&[("new/Cargo.toml", "[package]\nname = \"siskin-new\"")]));
        assert_eq!(found.len(), 1);
    }
}
