//! The checks of `siskin serve` with real clients: OpenAI's package, and a browser for the chat page.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, cargo, program, root, run};
use crate::tools;
use std::path::{Path, PathBuf};

const CLIENT: &str = "serve/tests/clients/openai_client.py";
const CLIENT_PACKAGES: [&str; 1] = ["openai==3.57.0"];
const SERVICE_MANAGER: &str = "serve/tests/clients/service_manager.py";
const PAGE: &str = "serve/tests/clients/chat_page.py";
const PAGE_PACKAGES: [&str; 1] = ["selenium==4.51.0"];

/// What the check with OpenAI's package needs.
pub(super) struct Tools {
    python: PathBuf,
    decoder: PathBuf,
    encoder: PathBuf,
}

/// Returns a Python that has the clients, and the models.
pub(super) fn need_tools() -> Result<Tools> {
    let python = peers::python()?;
    peers::need(&python, "openai", &CLIENT_PACKAGES)?;
    Ok(Tools { python, decoder: model::bring("smollm2")?, encoder: model::bring("minilm")? })
}

/// Serves real models, and fails if a client does not get what it asks for.
pub(super) fn check(Tools { python, decoder, encoder }: &Tools) -> Result {
    run_script(python, CLIENT, &[decoder, encoder])?;
    run_script(python, SERVICE_MANAGER, &[decoder])
}

/// What the check of the chat page needs.
pub(super) struct BrowserTools {
    python: PathBuf,
    decoder: PathBuf,
}

/// Returns a Python that controls Chromium, and a model.
pub(super) fn need_browser() -> Result<BrowserTools> {
    tools::debian(&[
        ("/usr/bin/chromium".to_owned(), "chromium"),
        ("/usr/bin/chromedriver".to_owned(), "chromium-driver"),
    ])?;
    let python = peers::python()?;
    peers::need(&python, "selenium", &PAGE_PACKAGES)?;
    Ok(BrowserTools { python, decoder: model::bring("smollm2")? })
}

/// Uses the chat page in a browser, and fails if it does not do what it should.
pub(super) fn check_page(BrowserTools { python, decoder }: &BrowserTools) -> Result {
    run_script(python, PAGE, &[decoder])
}

/// Runs a script with our program and models.
fn run_script(python: &Path, script: &str, models: &[&Path]) -> Result {
    // All programs, as the tests build them.
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(script)).arg(built("debug").join("siskin"));
    run(command.args(models))
}
