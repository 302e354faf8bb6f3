//! The Debian packages.

use super::{Part, copy};
use crate::commands::deb;
use crate::shell::Result;
use std::path::Path;

pub(super) const PART: Part = Part { name: "debian", need_tools: deb::need_all_tools, build, check };

fn build(to: &Path) -> Result {
    deb::build_all()?.iter().try_for_each(|file| copy(file, to))
}

/// Installs, tests and removes the packages in fresh systems.
fn check(built: &Path) -> Result {
    deb::check_all(built)
}
