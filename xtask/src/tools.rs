//! Tools that the commands need: found, installed, or reported with the command that installs them.

use crate::shell::{self, Result, cargo, program, run, succeeds};
use std::path::{Path, PathBuf};

/// Installs Debian packages, or returns an error with the command to run. Other steps of this checkout wait meanwhile:
/// apt refuses to run twice.
fn apt(packages: &[&str]) -> Result {
    let path = shell::models()?.join("apt.lock");
    let lock = std::fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    let _lock = lock.map_err(|error| format!("{}: {error}", path.display()))?;
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
    // Outdated package lists may still be good enough to install from.
    let _ = run(&mut program(prefix[0], &update));
    run(&mut program(prefix[0], &install)).map_err(|error| format!("{error}. {advice}"))
}

/// Ensures that files of Debian packages exist: (path, package).
pub(crate) fn debian(needs: &[(String, &str)]) -> Result {
    let missing = needs.iter().filter(|(path, _)| !std::path::Path::new(path).exists());
    let mut packages: Vec<_> = missing.map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() { Ok(()) } else { apt(&packages) }
}

/// Ensures that there is a C compiler, which linking needs.
pub(crate) fn linker() -> Result {
    if succeeds(&mut program("cc", &["--version"])) {
        return Ok(());
    }
    apt(&["gcc", "libc6-dev"])
}

/// Ensures that `cargo fmt` and `cargo clippy` are installed.
pub(crate) fn components() -> Result {
    for (name, check) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !succeeds(&mut cargo(&[check, "--version"])) {
            run(&mut program("rustup", &["component", "add", name]))
                .map_err(|error| format!("{error}. Install Rust's `{name}` component"))?;
        }
    }
    Ok(())
}

/// Creates a virtual environment under `.models/` with its own pip, and returns its Python.
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

/// Ensures that the compiler for llama.cpp is installed.
pub(crate) fn clang() -> Result {
    if succeeds(&mut program("clang++-19", &["--version"])) {
        return Ok(());
    }
    apt(&["clang-19"])
}

/// Ensures that the compilers for C programs are installed, each for C and C++ and with its sanitizers.
pub(crate) fn c_compilers() -> Result<[&'static str; 2]> {
    let is_there = |name: &&str| succeeds(&mut program(name, &["--version"]));
    let mut clangs = ["clang", "clang-19"].into_iter();
    let clang = clangs.find(|clang| is_there(clang) && has_sanitizers(clang));
    if clang.is_none() || !is_there(&"g++") {
        apt(&["gcc", "g++", "clang", "libc6-dev", "libclang-rt-14-dev"])?;
    }
    Ok(["gcc", clang.unwrap_or("clang")])
}

/// Whether the sanitizer runtimes of `clang`, a package of their own, are installed.
fn has_sanitizers(clang: &str) -> bool {
    let library = format!("--print-file-name=libclang_rt.asan-{}.a", std::env::consts::ARCH);
    let printed = program(clang, &[&library]).output();
    printed.is_ok_and(|printed| Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_file())
}

/// Ensures that valgrind and the debug information that it needs of the C library are installed.
pub(crate) fn valgrind() -> Result {
    let runs = || succeeds(&mut program("valgrind", &["-q", "--tool=none", "true"]));
    if runs() {
        return Ok(());
    }
    apt(&["valgrind", "libc6-dbg"])?;
    if runs() { Ok(()) } else { Err("valgrind is installed, but runs no program here".to_owned()) }
}

/// Ensures that `cargo fuzz` is installed.
pub(crate) fn cargo_fuzz() -> Result {
    if succeeds(&mut cargo(&["fuzz", "--version"])) {
        return Ok(());
    }
    run(&mut cargo(&["install", "cargo-fuzz", "--locked"]))
}

/// Ensures that a program that extends cargo is installed.
pub(crate) fn cargo_tool(name: &str, version: &str, features: &[&str]) -> Result {
    let subcommand = name.trim_start_matches("cargo-");
    if succeeds(&mut cargo(&[subcommand, "--version"])) || succeeds(&mut cargo(&[subcommand, "--help"])) {
        return Ok(());
    }
    let mut install = cargo(&["install", name, "--version", version, "--locked"]);
    run(install.args(features.iter().map(|feature| format!("--features={feature}"))))
}

/// Returns true if `cargo deny` is installed.
pub(crate) fn has_cargo_deny() -> bool {
    succeeds(&mut cargo(&["deny", "--version"]))
}
