//! Tools the chores need: found, installed, or named with the command that installs them.

use crate::shell::{self, Result, cargo, program, run, succeeds};
use std::path::PathBuf;

/// Installs Debian packages, or says which command would.
fn apt(packages: &[&str]) -> Result {
    let list = packages.join(" ");
    let advice = format!("run as root: apt-get update && apt-get install -y {list}");
    if !succeeds(&mut program("apt-get", &["--version"])) {
        return Err(format!("missing: {list}. Install them with your system's package manager"));
    }
    let root = shell::output(&mut program("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    let mut prefix: Vec<&str> = Vec::new();
    if !root {
        if !succeeds(&mut program("sudo", &["-n", "true"])) {
            return Err(format!("missing: {list}. {advice}"));
        }
        prefix.extend(["sudo", "-n"]);
    }
    prefix.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    let update = [&prefix[1..], &["update", "-q"]].concat();
    let install =
        [&prefix[1..], &["install", "-y", "-q", "--no-remove", "--no-install-recommends"], packages].concat();
    // A list that cannot be renewed may still be good enough to install from.
    let _ = run(&mut program(prefix[0], &update));
    run(&mut program(prefix[0], &install)).map_err(|error| format!("{error}. {advice}"))
}

/// Files that Debian packages bring: (path, package).
pub(crate) fn debian(needs: &[(String, &str)]) -> Result {
    let missing = needs.iter().filter(|(path, _)| !std::path::Path::new(path).exists());
    let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() { Ok(()) } else { apt(&packages) }
}

/// A C compiler, which linking needs.
pub(crate) fn linker() -> Result {
    if succeeds(&mut program("cc", &["--version"])) {
        return Ok(());
    }
    apt(&["gcc", "libc6-dev"])
}

/// `cargo fmt` and `cargo clippy`.
pub(crate) fn components() -> Result {
    for (name, check) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !succeeds(&mut cargo(&[check, "--version"])) {
            run(&mut program("rustup", &["component", "add", name]))
                .map_err(|error| format!("{error}. Install Rust's `{name}` component"))?;
        }
    }
    Ok(())
}

/// A virtual environment under `.models/` with its own pip; gives its Python.
pub(crate) fn python(name: &str) -> Result<PathBuf> {
    let folder = shell::models()?.join(name);
    let python = folder.join("bin/python");
    if succeeds(&mut program(&python, &["-m", "pip", "--version"])) {
        return Ok(python);
    }
    if !succeeds(&mut program("python3", &["-c", "import ensurepip, venv"])) {
        apt(&["python3", "python3-venv"])?;
    }
    run(program("python3", &["-m", "venv", "--clear"]).arg(&folder))?;
    Ok(python)
}

/// The compiler that llama.cpp is built with.
pub(crate) fn clang() -> Result {
    if succeeds(&mut program("clang++-19", &["--version"])) {
        return Ok(());
    }
    apt(&["clang-19"])
}

/// The compilers that C programs are built with, each for C and C++ and with its sanitisers.
pub(crate) fn c_compilers() -> Result<[&'static str; 2]> {
    let is_there = |name: &&str| succeeds(&mut program(name, &["--version"]));
    let mut clangs = ["clang", "clang-19"].into_iter();
    let clang = clangs.find(is_there);
    if clang.is_none() || !is_there(&"g++") {
        apt(&["gcc", "g++", "clang", "libc6-dev", "libclang-rt-14-dev"])?;
    }
    Ok(["gcc", clang.unwrap_or("clang")])
}

/// valgrind, which brings what it needs to know about the C library.
pub(crate) fn valgrind() -> Result {
    let runs = || succeeds(&mut program("valgrind", &["-q", "--tool=none", "true"]));
    if runs() {
        return Ok(());
    }
    apt(&["valgrind", "libc6-dbg"])?;
    if runs() { Ok(()) } else { Err("valgrind is installed, but runs no program here".to_owned()) }
}

/// `cargo fuzz`.
pub(crate) fn cargo_fuzz() -> Result {
    if succeeds(&mut cargo(&["fuzz", "--version"])) {
        return Ok(());
    }
    run(&mut cargo(&["install", "cargo-fuzz", "--locked"]))
}

/// Whether `cargo deny` is there.
pub(crate) fn has_cargo_deny() -> bool {
    succeeds(&mut cargo(&["deny", "--version"]))
}
