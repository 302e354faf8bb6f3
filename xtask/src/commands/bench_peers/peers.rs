//! The peers, as Python packages in one virtual environment.

use crate::env;
use crate::shell::{Result, program, run, succeeds};
use crate::tools;
use std::path::{Path, PathBuf};

pub(super) const LLAMA: &str = "llama-cpp-python==0.3.36";

/// A Python peer: its name in the scripts, its modules, and the packages that provide them, its own last.
pub(super) struct Peer {
    pub(super) name: &'static str,
    modules: &'static str,
    pub(super) packages: &'static [&'static str],
}

pub(super) const ONNX_RUNTIME: Peer = Peer {
    name: "onnxruntime",
    modules: "numpy, onnx, onnxruntime",
    packages: &["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1"],
};

pub(super) const OPENVINO: Peer =
    Peer { name: "openvino", modules: "numpy, openvino", packages: &["numpy==2.4.6", "openvino==2026.4.1"] };

pub(super) const CTRANSLATE2: Peer = Peer {
    name: "ctranslate2",
    modules: "numpy, yaml, safetensors, ctranslate2",
    packages: &["numpy==2.4.6", "pyyaml==6.0.3", "safetensors==0.8.0", "ctranslate2==4.8.5"],
};

impl Peer {
    /// Returns true if `python` has it or could install it; prints the reason otherwise.
    pub(super) fn is_had(&self, python: &Path) -> bool {
        let had = need(python, self.modules, self.packages);
        had.inspect_err(|why| eprintln!("skipped: {} cannot be had: {why}", self.name)).is_ok()
    }
}

/// The instruction sets that llama.cpp is built for.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// All that this processor supports.
    Native,
    /// Up to AVX2.
    Avx2,
}

impl Build {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Native => "for this processor",
            Self::Avx2 => "for AVX2 alone",
        }
    }

    fn flags(self) -> &'static str {
        match self {
            Self::Native => "-DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=OFF",
            Self::Avx2 => {
                "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAMA_BUILD_TOOLS=OFF"
            }
        }
    }

    /// Returns an existing Python that has llama.cpp, or that of the virtual environment for it.
    fn python(self) -> Result<PathBuf> {
        match self {
            Self::Native => python(),
            Self::Avx2 => {
                env::peers_avx2_python().map_or_else(|| tools::python("peers-avx2"), |own| Ok(own.into()))
            }
        }
    }
}

/// Returns a Python with llama.cpp, built by the compiler that gives the fastest AMX code.
pub(super) fn llama_python(build: Build) -> Result<PathBuf> {
    let python = build.python()?;
    if succeeds(&mut program(&python, &["-c", "import llama_cpp"])) {
        return Ok(python);
    }
    tools::clang()?;
    let mut pip = pip(&python);
    pip.args(["--no-binary", "llama-cpp-python", "--no-cache-dir", LLAMA]);
    pip.env("CC", "clang-19").env("CXX", "clang++-19").env("CMAKE_ARGS", build.flags());
    run(&mut pip)?;
    Ok(python)
}

/// Returns the Python of the peers' virtual environment.
pub(in crate::commands) fn python() -> Result<PathBuf> {
    env::peers_python().map_or_else(|| tools::python("peers"), |python| Ok(python.into()))
}

/// Installs `packages` from wheels if `python` cannot import `modules`.
pub(in crate::commands) fn need(python: &Path, modules: &str, packages: &[&str]) -> Result {
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
