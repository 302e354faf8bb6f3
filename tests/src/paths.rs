//! Where the committed test data and the downloaded models lie.

use std::path::PathBuf;

/// The root of the workspace.
pub fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// The committed test data: `tests/data/<name>`.
pub fn data(name: &str) -> PathBuf {
    root().join("tests/data").join(name)
}

/// A real model brought by `cargo xtask model <name>`, or `None` after printing how to bring it.
pub fn model(name: &str) -> Option<PathBuf> {
    let path = root().join(".models").join(format!("{name}.gguf"));
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there; `cargo xtask model {name}` brings it", path.display());
    None
}
