//! The check of `siskin serve` with real clients.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, cargo, program, root, run};
use std::path::{Path, PathBuf};

const SCRIPT: &str = "serve/tests/clients/openai_client.py";
const PACKAGES: [&str; 1] = ["openai==3.57.0"];

/// What the check needs.
pub(super) struct Tools {
    python: PathBuf,
    decoder: PathBuf,
    encoder: PathBuf,
}

/// Returns a Python that has the clients, and the models.
pub(super) fn need_tools() -> Result<Tools> {
    let python = peers::python()?;
    peers::need(&python, "openai", &PACKAGES)?;
    Ok(Tools { python, decoder: model::bring("smollm2")?, encoder: model::bring("minilm")? })
}

/// Serves real models, and fails if a client does not get what it asks for.
pub(super) fn check(Tools { python, decoder, encoder }: &Tools) -> Result {
    // All programs, as the tests build them.
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(SCRIPT)).arg(built("debug").join("siskin"));
    run(command.args([decoder, encoder].map(AsRef::<Path>::as_ref)))
}
