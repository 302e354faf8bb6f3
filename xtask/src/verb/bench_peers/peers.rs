//! The peers, as Python packages in one virtual environment.

use crate::knobs;
use crate::shell::{Result, program, run, succeeds};
use crate::tools;
use std::path::{Path, PathBuf};

pub(super) const LLAMA: &str = "llama-cpp-python==0.3.36";

/// A Python that has llama.cpp, built with the compiler that does its AMX code justice.
pub(super) fn llama_python() -> Result<PathBuf> {
    let check = ["-c", "import llama_cpp"];
    let python = python()?;
    if succeeds(&mut program(&python, &check)) {
        return Ok(python);
    }
    if knobs::peers_python().is_some() {
        return Err(format!("{} cannot import llama_cpp", python.display()));
    }
    tools::clang()?;
    let mut pip = pip(&python);
    pip.args(["--no-binary", "llama-cpp-python", LLAMA]);
    pip.env("CC", "clang-19").env("CXX", "clang++-19");
    pip.env("CMAKE_ARGS", "-DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF");
    run(&mut pip)?;
    Ok(python)
}

/// The Python of the peers, whatever it has.
pub(in crate::verb) fn python() -> Result<PathBuf> {
    knobs::peers_python().map_or_else(|| tools::python("peers"), |python| Ok(python.into()))
}

/// Installs `packages` from wheels where `python` cannot import `modules`.
pub(in crate::verb) fn need(python: &Path, modules: &str, packages: &[&str]) -> Result {
    let check = format!("import {modules}");
    if succeeds(&mut program(python, &["-c", &check])) {
        return Ok(());
    }
    run(pip(python).arg("--only-binary=:all:").args(packages))?;
    if succeeds(&mut program(python, &["-c", &check])) {
        return Ok(());
    }
    Err(format!("{} cannot import {modules} though it is installed", python.display()))
}

fn pip(python: &Path) -> std::process::Command {
    program(python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
}
