//! The paths of committed test data and downloaded models.

use std::path::PathBuf;

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// Returns the path of committed test data: `tests/data/<name>`.
pub fn data(name: &str) -> PathBuf {
    root().join("tests/data").join(name)
}

/// Returns the real model downloaded by `cargo xtask model <name>`, or `None` after printing how to download it.
pub fn model(name: &str) -> Option<PathBuf> {
    let path = root().join(".models").join(format!("{name}.gguf"));
    // Models of several files are folders.
    for path in [&path, &path.with_extension("")] {
        if path.exists() {
            return Some(path.clone());
        }
    }
    eprintln!("skipped: {} is not there; `cargo xtask model {name}` brings it", path.display());
    None
}
