//! Runs programs and reports errors.

use crate::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a command: a value, or a message that says what failed and what to do.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// For builds without the ONNX import: tract takes minutes to compile.
pub(crate) const WITHOUT_TRACT: &str = "--no-default-features";

/// The environment variable that makes tests run all cases, including the redundant ones.
pub(crate) const ALL_CASES: (&str, &str) = ("SISKIN_TEST_ALL", "1");

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// Returns the folder for downloads, which git ignores.
pub(crate) fn models() -> Result<PathBuf> {
    let path = root().join(".models");
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// Returns the path of a file in cargo's target folder.
pub(crate) fn built(path: &str) -> PathBuf {
    let target = env::target_folder().map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(target).join(path)
}

/// Returns the path of a file of a release build.
pub(crate) fn release(name: &str) -> PathBuf {
    built("release").join(name)
}

/// Builds a kernel benchmark and returns its path.
pub(crate) fn measuring(name: &str) -> Result<PathBuf> {
    run(&mut cargo(&["build", "--release", "--locked", "--package", "siskin-benches", "--bin", name]))?;
    Ok(release(name))
}

/// Returns a command that runs one of our programs, built as the workspace's tests build it so that nothing is compiled
/// twice: building a single package would compile dependencies again with only its own features.
pub(crate) fn member(name: &str) -> Command {
    cargo(&["run", "--quiet", "--locked", "--bin", name, "--"])
}

/// Builds one of our programs in the same way and returns its path.
pub(crate) fn built_member(name: &str) -> Result<PathBuf> {
    run(&mut cargo(&["build", "--workspace", "--locked", "--bin", name]))?;
    Ok(built("debug").join(name))
}

/// Builds the C library in the same way, for tests: quickly, with overflow checks, and with all features that other
/// packages enable, such as tract. `size` checks the library as it ships.
pub(crate) fn c_library(testing: bool) -> Result {
    let mut command = cargo(&["build", "--workspace", "--lib", "--locked"]);
    if testing {
        command.args(["--features", "siskin-ffi/ffi-testing"]);
    }
    run(&mut command)
}

/// Returns a function that adds the path to an I/O error.
pub(crate) fn said(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Returns the name of a file.
pub(crate) fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns a command that runs at the root of the workspace.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// Returns a command of this cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    program(env::cargo(), arguments)
}

/// Returns the command as typed in a shell.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(key, value)| {
        value.map(|value| format!("{}={:?}", key.to_string_lossy(), value.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| {
        let word = word.to_string_lossy();
        if word.contains(' ') || word.is_empty() { format!("'{word}'") } else { word.into_owned() }
    });
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// Prints and runs the command. Returns an error if it fails.
pub(crate) fn run(command: &mut Command) -> Result {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| format!("`{}`: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(command))) }
}

/// Runs the command quietly and returns its standard output. An error contains its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let answer = command.output().map_err(|error| format!("`{}`: {error}", shown(command)))?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    Err(format!("`{}` ended with {}\n{}", shown(command), answer.status, said.trim_end()))
}

/// Runs a program with a text on its standard input, and returns what it prints. Printing nothing is an error.
pub(crate) fn answer(command: &mut Command, input: &str) -> Result<String> {
    let failed = |command: &Command, error| format!("`{}`: {error}", shown(command));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| failed(command, error))?;
    // A program that does not read it may have ended.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let answer = child.wait_with_output().map_err(|error| failed(command, error))?;
    let printed = String::from_utf8_lossy(&answer.stdout).into_owned();
    match (answer.status.success(), printed.trim().is_empty()) {
        (true, false) => Ok(printed),
        (true, true) => Err(format!("`{}` prints nothing", shown(command))),
        (false, _) => Err(format!("`{}` ended with {}", shown(command), answer.status)),
    }
}

/// Returns the processor time of all child processes that were waited for, including their descendants, or `None` if
/// the system does not report it.
pub(crate) fn seconds_of_programs() -> Option<f64> {
    // The kernel reports times of processes in 1/100 s, regardless of its tick rate.
    const TICKS: f64 = 100.0;
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, which may contain spaces, ends at the last parenthesis.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some((ticks(13)? + ticks(14)?) as f64 / TICKS)
}

/// Returns true if the command runs and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
