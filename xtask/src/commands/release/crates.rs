//! The crates, as crates.io would take them.

use super::Part;
use crate::shell::{Result, cargo, run};

pub(super) const PART: Part =
    Part { name: "crates", need_tools: || Ok(()), build: |_| Ok(()), check: |_| check_packages(true) };

/// Packages all crates, and with `build` compiles each from its package.
pub(super) fn check_packages(build: bool) -> Result {
    let mut publish = cargo(&["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"]);
    if !build {
        publish.arg("--no-verify");
    }
    run(&mut publish)
}
