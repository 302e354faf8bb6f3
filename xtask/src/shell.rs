//! Running programs and saying what went wrong.

use crate::knobs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a chore gives back: nothing, or what went wrong and what to do.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// For builds that read no ONNX models: tract takes minutes to compile.
pub(crate) const WITHOUT_TRACT: &str = "--no-default-features";

/// What tells tests to run also the cases that others stand for.
pub(crate) const ALL_CASES: (&str, &str) = ("SISKIN_TEST_ALL", "1");

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// The folder for downloads, which version control ignores.
pub(crate) fn models() -> Result<PathBuf> {
    let path = root().join(".models");
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// What lies at `path` where cargo puts what it builds.
pub(crate) fn built(path: &str) -> PathBuf {
    let target = knobs::target_folder().map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root().join(target).join(path)
}

/// A file that a release build makes.
pub(crate) fn release(name: &str) -> PathBuf {
    built("release").join(name)
}

/// Builds a program that measures kernels, and gives its file.
pub(crate) fn measuring(name: &str) -> Result<PathBuf> {
    run(&mut cargo(&["build", "--release", "--locked", "--package", "siskin-benches", "--bin", name]))?;
    Ok(release(name))
}

/// A run of a program of ours as the tests of the workspace build it, so that nothing is compiled twice: dependencies of
/// a single member would be, with the features that it alone asks for.
pub(crate) fn member(name: &str) -> Command {
    cargo(&["run", "--quiet", "--locked", "--bin", name, "--"])
}

/// Builds the C library in the same way, for tests: quick, with checks for overflow, and with all that other members ask
/// of what it is made of, such as tract. What is shipped is weighed and looked at by `size`.
pub(crate) fn c_library(testing: bool) -> Result {
    let mut command = cargo(&["build", "--workspace", "--lib", "--locked"]);
    if testing {
        command.args(["--features", "siskin-ffi/ffi-testing"]);
    }
    run(&mut command)
}

/// A program that will run at the root of the workspace.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    command
}

/// This cargo.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    program(knobs::cargo(), arguments)
}

/// The command as a person would type it.
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

/// Prints the command, runs it, and fails where it fails.
pub(crate) fn run(command: &mut Command) -> Result {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|error| format!("`{}`: {error}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(command))) }
}

/// Runs the command quietly and gives what it printed; what it said on the way is in the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let answer = command.output().map_err(|error| format!("`{}`: {error}", shown(command)))?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    Err(format!("`{}` ended with {}\n{}", shown(command), answer.status, said.trim_end()))
}

/// Processor time of all programs that this one has run and waited for, and of those that they have; `None` where the
/// system does not say.
pub(crate) fn seconds_of_programs() -> Option<f64> {
    // The kernel counts for programs in hundredths, whatever it counts in itself.
    const TICKS: f64 = 100.0;
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, which may have spaces, ends at the last parenthesis.
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    Some((ticks(13)? + ticks(14)?) as f64 / TICKS)
}

/// Whether the command runs and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
