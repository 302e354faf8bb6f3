//! Whether packages can be installed in fresh systems.

use super::machine::DebArchitecture;
use super::packages::{DebPackage, Version};
use crate::shell::Result;
use crate::systems::{self, emulator::Emulator};
use std::path::Path;

/// The Debian release that packages are tested on.
pub(super) const RELEASE: &str = "bookworm";
/// The C library of that release.
const C_LIBRARY: Version = (2, 36);

/// Checks that systems can be created for an architecture and that its packages can be installed there.
pub(super) fn check(machine: &DebArchitecture, folder: &Path, made: &[DebPackage]) -> Result {
    let needed = made.iter().filter(|package| package.machine == machine.name);
    installable(needed.map(|package| package.c_library).max().unwrap_or_default())?;
    systems::debian_is_available(RELEASE, folder)?;
    Emulator::begin(machine.name).map(drop)
}

/// Programs linked with a newer C library require it.
fn installable(needed: Version) -> Result {
    if needed <= C_LIBRARY {
        return Ok(());
    }
    let [(major, minor), (has_major, has_minor)] = [needed, C_LIBRARY];
    Err(format!(
        "the packages need a C library of version {major}.{minor}, and {RELEASE} has {has_major}.{has_minor}; \
        build them on {RELEASE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_for_a_newer_system_are_not_installed() {
        assert_eq!([installable((2, 34)), installable(C_LIBRARY)], [Ok(()), Ok(())]);
        let why = installable((2, 41)).expect_err("it is newer");
        assert!(why.contains("2.41") && why.contains("2.36"), "{why}");
    }
}
