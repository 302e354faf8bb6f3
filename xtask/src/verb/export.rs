//! `export`: what `siskin export` writes, run by ONNX Runtime.

use super::bench_peers::peers;
use crate::Verb;
use crate::shell::{Result, built, cargo, program, root, run};
use std::path::PathBuf;

pub(crate) const VERB: Verb = Verb {
    name: "export",
    usage: "[FOLDER]…",
    about: "export the golden models, or those in the folders, as ONNX, and print how far ONNX Runtime's outputs are \
            from PyTorch's, and padded texts from texts alone",
    run: export,
};

const SCRIPT: &str = "tests/golden-scripts/check_onnx_export.py";
const GOLDENS: [&str; 2] = ["tests/data/golden", "tests/data/golden-texts"];
const PACKAGES: [&str; 4] = ["numpy==2.4.6", "safetensors==0.8.0", "onnx==1.23.2", "onnxruntime==1.31.1"];

fn export(folders: &[String]) -> Result {
    let python = need_tools()?;
    check(&python, folders)
}

/// A Python that has the runtime.
pub(super) fn need_tools() -> Result<PathBuf> {
    let python = peers::python()?;
    peers::need(&python, "numpy, safetensors, onnx, onnxruntime", &PACKAGES)?;
    Ok(python)
}

/// Fails where an output is too far away. Without folders, all golden models are checked.
pub(super) fn check(python: &std::path::Path, folders: &[String]) -> Result {
    // The golden models are small enough for the build that the tests have made.
    let (profile, folder) = if folders.is_empty() { ("dev", "debug") } else { ("release", "release") };
    run(&mut cargo(&["build", "--workspace", "--locked", "--bin", "siskin", "--profile", profile]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(SCRIPT)).arg(built(folder).join("siskin"));
    match folders {
        [] => command.args(GOLDENS),
        folders => command.args(folders),
    };
    run(&mut command)
}
