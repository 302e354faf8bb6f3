//! The crates, as crates.io would take them.

use super::Part;
use crate::shell::{Result, cargo, run};

pub(super) const PART: Part =
    Part { name: "crates", need_tools: || Ok(()), build: |_| Ok(()), check: |_| check() };

/// Packages all crates, and compiles each from its package.
fn check() -> Result {
    run(&mut cargo(&["publish", "--workspace", "--dry-run", "--locked", "--allow-dirty"]))
}
