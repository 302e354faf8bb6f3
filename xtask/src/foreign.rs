//! Building for other machines than this one.
//!
//! Debian's own compiler builds the standard library from its sources, because that needs nothing but packages.

use crate::shell::{self, Result, output, program};
use std::path::PathBuf;
use std::process::Command;

/// What the standard library is built of: panics unwind, and end at the C interface.
pub(crate) const STANDARD: &str = "std,panic_unwind";
/// The standard library without what prints the names of functions where a program fails, and with small sorts.
pub(crate) const SMALL: &str = "-Zbuild-std-features=optimize_for_size";
/// [`STANDARD`] with the library that tests are built on.
pub(crate) const STANDARD_WITH_TESTS: &str = "std,test,panic_unwind";

/// The files of the compiler and of the standard library's sources, and the packages that bring them.
pub(crate) fn needs() -> Vec<(String, &'static str)> {
    [
        ("/usr/bin/rustc", "rustc-web"),
        ("/usr/bin/cargo", "cargo-web"),
        ("/usr/lib/rustlib/src/rust/library/Cargo.lock", "rust-web-src"),
    ]
    .map(|(path, package)| (path.to_owned(), package))
    .to_vec()
}

/// The folder in which everything for other machines is built.
pub(crate) fn folder() -> PathBuf {
    shell::built("arm")
}

/// Debian's `cargo VERB` for the machine `triple`, with its standard library.
pub(crate) fn cargo(verb: &str, triple: &str, standard: &str) -> Command {
    let mut command = program("/usr/bin/cargo", &[verb, "-Z"]);
    command.arg(format!("build-std={standard}"));
    command.args(["--target", triple, "--locked", "--target-dir"]).arg(folder());
    // The calling cargo's settings name another compiler. The flag to build the standard library is unstable.
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.envs([("RUSTC", "/usr/bin/rustc"), ("RUSTDOC", "/usr/bin/rustdoc"), ("RUSTC_BOOTSTRAP", "1")]);
    command
}

/// Has `linker` link what `command` builds for the machine `triple`.
pub(crate) fn link_with<'a>(command: &'a mut Command, triple: &str, linker: &str) -> &'a mut Command {
    command.env(format!("CARGO_TARGET_{}_LINKER", key(triple)), linker)
}

/// Has `runner` run what `command` builds for the machine `triple`.
pub(crate) fn run_with<'a>(command: &'a mut Command, triple: &str, runner: &str) -> &'a mut Command {
    command.env(format!("CARGO_TARGET_{}_RUNNER", key(triple)), runner)
}

/// The compiler's name and version.
pub(crate) fn compiler() -> Result<String> {
    Ok(output(&mut program("/usr/bin/rustc", &["--version"]))?.trim().to_owned())
}

/// How the names of cargo's settings spell a machine.
fn key(triple: &str) -> String {
    triple.replace('-', "_").to_uppercase()
}
