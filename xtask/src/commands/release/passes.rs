//! Builds from clean clones in different folders, with the same results.

use super::{Part, files};
use crate::shell::{self, Result, output, program, run};
use crate::{cross_compile, env};
use std::fs;
use std::path::{Path, PathBuf};

/// The first argument of a build in a clone; its second is the folder for the files.
pub(super) const FLAG: &str = "--pass";
/// Names of different lengths: a path in a file would change its size, too.
const NAMES: [&str; 2] = ["first", "the-second"];
/// The standard libraries that the parts need.
const TARGETS: [&str; 4] = [
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-musl",
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
];

/// Variables that would change what is built.
const FOREIGN: [&str; 9] = [
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CC",
    "CFLAGS",
    "CXXFLAGS",
];

/// A clone and the files that were built in it. The clone is removed on drop.
pub(super) struct CleanBuild {
    folder: PathBuf,
}

impl CleanBuild {
    /// The folder of the built files.
    pub(super) fn files(&self) -> &Path {
        &self.folder
    }

    /// The clone.
    pub(super) fn source(&self) -> PathBuf {
        self.folder.with_extension("source")
    }
}

impl Drop for CleanBuild {
    fn drop(&mut self) {
        for folder in [self.source(), self.folder.clone()] {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Builds the parts `count` times, and returns the first build if all are equal.
pub(super) fn build(parts: &[&Part], count: usize) -> Result<CleanBuild> {
    let commit = commit()?;
    let mut passes = Vec::new();
    for name in NAMES.iter().take(count) {
        passes.push(pass(name, &commit, parts)?);
    }
    let first = passes.remove(0);
    for other in &passes {
        compare(first.files(), other.files())?;
        println!("{} files, byte-identical when built again", files(first.files())?.len());
    }
    Ok(first)
}

fn pass(name: &str, commit: &str, parts: &[&Part]) -> Result<CleanBuild> {
    // Without links: the compiler sees the path that it resolves to.
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().map_err(|error| format!("{}: {error}", temporary.display()))?;
    let folder = temporary.join(format!("siskin-release-{}-{name}", std::process::id()));
    let pass = CleanBuild { folder };
    let (to, source) = (pass.files(), pass.source());
    // A folder of someone else is refused.
    fs::create_dir(to).map_err(|error| format!("{}: {error}", to.display()))?;
    run(program("git", &["clone", "--quiet", "--no-hardlinks", "."]).arg(&source))?;
    run(program("git", &["checkout", "--quiet", "--detach", commit]).current_dir(&source))?;
    link(&shell::models()?, &source.join(".models"))?;
    let mut command = shell::cargo(&["xtask", "release", super::VERSION, FLAG]);
    command.arg(to).args(parts.iter().map(|part| part.name)).current_dir(&source);
    for target in TARGETS {
        command.env(cross_compile::flags_variable(target), flags(&source)?);
    }
    let time = time()?;
    command.envs([("SOURCE_DATE_EPOCH", time.as_str()), ("CARGO_INCREMENTAL", "0"), ("LC_ALL", "C")]);
    for variable in FOREIGN {
        command.env_remove(variable);
    }
    run(&mut command)?;
    Ok(pass)
}

/// Returns the commit that is released.
pub(super) fn commit() -> Result<String> {
    output(&mut program("git", &["rev-parse", "HEAD"])).map(|commit| commit.trim().to_owned())
}

/// Returns the time of all files: that of the commit, in seconds.
pub(super) fn time() -> Result<String> {
    output(&mut program("git", &["log", "-1", "--format=%ct"])).map(|time| time.trim().to_owned())
}

/// Returns the compiler's flags that keep folders of this machine out of files.
fn flags(source: &Path) -> Result<String> {
    let cargo = env::cargo_home().ok_or("HOME is not set")?;
    let cargo = cargo.canonicalize().unwrap_or(cargo);
    let pairs = [(source, "/siskin"), (cargo.as_path(), "/cargo")];
    if let Some((path, _)) = pairs.iter().find(|(path, _)| path.to_string_lossy().contains(' ')) {
        return Err(format!("{}: a release cannot be built in a path with a space", path.display()));
    }
    let flags = pairs.map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    Ok(flags.join(" "))
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> Result {
    std::os::unix::fs::symlink(from, to).map_err(|error| format!("{}: {error}", to.display()))
}

#[cfg(not(unix))]
fn link(_: &Path, to: &Path) -> Result {
    Err(format!("{}: releases are built on Linux", to.display()))
}

fn compare(first: &Path, second: &Path) -> Result {
    let names =
        |folder| files(folder).map(|files| files.iter().map(|file| shell::name(file)).collect::<Vec<_>>());
    let (names, others) = (names(first)?, names(second)?);
    if names != others {
        return Err(format!("one build has the files {names:?}, the other {others:?}"));
    }
    let read = |folder: &Path, name: &str| {
        let file = folder.join(name);
        fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let mut different = Vec::new();
    for name in names {
        if read(first, &name)? != read(second, &name)? {
            different.push(name);
        }
    }
    if different.is_empty() { Ok(()) } else { Err(format!("files differ when built again: {different:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_are_named() {
        let folder = std::env::temp_dir().join(format!("siskin-passes-{}", std::process::id()));
        let (first, second) = (folder.join("a"), folder.join("b"));
        for (place, text) in [(&first, "1"), (&second, "1")] {
            fs::create_dir_all(place).expect("a folder is made");
            fs::write(place.join("same"), text).expect("a file is written");
        }
        assert_eq!(compare(&first, &second), Ok(()));
        fs::write(second.join("same"), "2").expect("a file is written");
        assert_eq!(
            compare(&first, &second).expect_err("it differs"),
            "files differ when built again: [\"same\"]"
        );
        fs::write(second.join("more"), "2").expect("a file is written");
        assert!(compare(&first, &second).expect_err("one is missing").contains("more"));
        fs::remove_dir_all(&folder).expect("a folder is removed");
    }
}
