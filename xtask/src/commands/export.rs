//! `export`: runs exports of `siskin export` with ONNX Runtime.

use super::bench_peers::peers;
use crate::Subcommand;
use crate::shell::{Result, built, cargo, program, root, run};
use std::path::PathBuf;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "export",
    usage: "[FOLDER]…",
    about: "export the golden models, or those in the folders, as ONNX, and print the differences between the outputs \
            of ONNX Runtime and PyTorch, and between padded and unpadded texts",
    run: export,
};

const SCRIPT: &str = "tests/golden-scripts/check_onnx_export.py";
const GOLDENS: [&str; 2] = ["tests/data/golden", "tests/data/golden-texts"];
const PACKAGES: [&str; 4] = ["numpy==2.4.6", "safetensors==0.8.0", "onnx==1.23.2", "onnxruntime==1.31.1"];

fn export(folders: &[String]) -> Result {
    let python = need_tools()?;
    check(&python, folders)
}

/// Returns a Python that has ONNX Runtime.
pub(super) fn need_tools() -> Result<PathBuf> {
    let python = peers::python()?;
    peers::need(&python, "numpy, safetensors, onnx, onnxruntime", &PACKAGES)?;
    Ok(python)
}

/// Fails if an output differs too much. Without folders, checks all golden models.
pub(super) fn check(python: &std::path::Path, folders: &[String]) -> Result {
    // The golden models are small enough for the test build.
    let (profile, folder) = if folders.is_empty() { ("dev", "debug") } else { ("release", "release") };
    // All programs, as the tests build them: for one alone, cargo compiles its dependencies again, since the profile of
    // build dependencies depends on which other packages share them.
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins", "--profile", profile]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(SCRIPT)).arg(built(folder).join("siskin"));
    match folders {
        [] => command.args(GOLDENS),
        folders => command.args(folders),
    };
    run(&mut command)
}
