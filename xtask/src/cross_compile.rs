//! Cross-compilation.
//!
//! What ships is built by Debian's compiler, which builds the standard library from its sources, optimized for size.
//! Checks use rustup's compiler if it has the target's standard library, since they take half of the time then.

use crate::shell::{self, Result, output, program, run};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the standard library to build. Panics unwind, and are caught at the C interface.
pub(crate) const STANDARD: &str = "std,panic_unwind";
/// The standard library optimized for size: without symbol names in backtraces, and with small sorts.
pub(crate) const SMALL: &str = "-Zbuild-std-features=optimize_for_size";
/// [`STANDARD`] with the test library.
pub(crate) const STANDARD_WITH_TESTS: &str = "std,test,panic_unwind";

/// Returns the files of the compiler and of the standard library's sources, and the packages that provide them.
pub(crate) fn needs() -> Vec<(String, &'static str)> {
    [
        ("/usr/bin/rustc", "rustc-web"),
        ("/usr/bin/cargo", "cargo-web"),
        ("/usr/lib/rustlib/src/rust/library/Cargo.lock", "rust-web-src"),
    ]
    .map(|(path, package)| (path.to_owned(), package))
    .to_vec()
}

/// The packages with code that tests run often.
const OPTIMIZED: [&str; 9] = [
    "siskin-kernels",
    "siskin-format",
    "siskin-tokenizer",
    "siskin-chat-template",
    "siskin-audio",
    "siskin-graph",
    "siskin-backend",
    "siskin",
    "siskin-convert",
];

/// Returns cargo's arguments that build these packages at another level for development, without debug information:
/// quicker than optimizing them as the native tests do.
pub(crate) fn optimized_at(level: u8) -> impl Iterator<Item = String> {
    let settings = [format!("opt-level={level}"), "debug=false".to_owned()];
    OPTIMIZED.iter().flat_map(move |package| {
        settings.clone().map(|setting| format!("--config=profile.dev.package.{package}.{setting}"))
    })
}

/// Returns the folder of all cross builds.
pub(crate) fn folder() -> PathBuf {
    shell::built("arm")
}

/// Returns Debian's `cargo COMMAND` for the target `triple`, with its standard library.
pub(crate) fn cargo(command: &str, triple: &str, standard: &str) -> Command {
    let mut command = program("/usr/bin/cargo", &[command, "-Z"]);
    command.arg(format!("build-std={standard}"));
    command.args(["--target", triple, "--locked", "--target-dir"]).arg(folder());
    // The calling cargo's environment names another compiler. The flag to build the standard library is unstable.
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command.envs([("RUSTC", "/usr/bin/rustc"), ("RUSTDOC", "/usr/bin/rustdoc"), ("RUSTC_BOOTSTRAP", "1")]);
    command
}

/// Returns `cargo COMMAND` for the target `triple` with the standard library of rustup; without it, Debian's, which builds
/// `standard`.
pub(crate) fn cargo_with_std(command: &str, triple: &str, standard: &str) -> Result<Command> {
    let added = add_std(triple);
    if cfg!(target_os = "macos") {
        added?;
    } else if added.is_err() {
        tools::debian(&needs())?;
        return Ok(cargo(command, triple, standard));
    }
    let mut command = shell::cargo(&[command, "--target", triple, "--locked", "--target-dir"]);
    command.arg(folder());
    Ok(command)
}

/// Returns whether the compiler that cargo uses has the standard library of a target.
fn has_std(triple: &str) -> bool {
    let folder = output(&mut program("rustc", &["--print", "target-libdir", "--target", triple]));
    folder.is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

/// Ensures that rustup has the standard library of a target.
pub(crate) fn add_std(triple: &str) -> Result {
    if has_std(triple) { Ok(()) } else { run(&mut program("rustup", &["target", "add", triple])) }
}

/// Returns the variable that adds to the compiler's flags for the target `triple`.
pub(crate) fn flags_variable(triple: &str) -> String {
    format!("CARGO_TARGET_{}_RUSTFLAGS", key(triple))
}

/// Sets the linker for the target `triple`.
pub(crate) fn link_with<'a>(command: &'a mut Command, triple: &str, linker: &str) -> &'a mut Command {
    command.env(format!("CARGO_TARGET_{}_LINKER", key(triple)), linker)
}

/// Sets the runner for the target `triple`.
pub(crate) fn run_with<'a>(command: &'a mut Command, triple: &str, runner: &str) -> &'a mut Command {
    command.env(format!("CARGO_TARGET_{}_RUNNER", key(triple)), runner)
}

/// Returns the compiler's name and version.
pub(crate) fn compiler() -> Result<String> {
    Ok(output(&mut program("/usr/bin/rustc", &["--version"]))?.trim().to_owned())
}

/// Returns the target's name in cargo's environment variables.
fn key(triple: &str) -> String {
    triple.replace('-', "_").to_uppercase()
}
