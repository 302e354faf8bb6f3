//! The checks of `siskin serve` with real clients: OpenAI's package, and a browser for the chat page.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, cargo, program, root, run};
use crate::tools;
use std::path::{Path, PathBuf};

/// A script that uses the server with clients, and the Python packages that it needs.
struct ClientScript {
    path: &'static str,
    modules: &'static str,
    packages: &'static [&'static str],
}

const SCRIPTS: [ClientScript; 4] = [
    ClientScript {
        path: "serve/tests/clients/openai_client.py",
        modules: "openai",
        packages: &["openai==3.57.0"],
    },
    ClientScript {
        path: "serve/tests/clients/responses_client.py",
        modules: "openai",
        packages: &["openai==3.57.0"],
    },
    ClientScript {
        path: "serve/tests/clients/ollama_client.py",
        modules: "ollama",
        packages: &["ollama==0.6.3"],
    },
    ClientScript { path: "serve/tests/clients/service_manager.py", modules: "json", packages: &[] },
];
/// Those with packages of hundreds of MB.
const LARGE_SCRIPTS: [ClientScript; 1] = [ClientScript {
    path: "serve/tests/clients/inference_protocol_clients.py",
    modules: "kserve, tritonclient.http",
    packages: &["kserve==0.21.0", "tritonclient[http]==2.73.0"],
}];
const PAGE: &str = "serve/tests/clients/chat_page.py";
const PAGE_PACKAGES: [&str; 1] = ["selenium==4.51.0"];

/// What the check with OpenAI's package needs.
pub(super) struct Tools {
    python: PathBuf,
    decoder: PathBuf,
    encoder: PathBuf,
    scripts: Vec<&'static str>,
}

/// Returns a Python that has the clients, and the models. `all`: also clients with large packages.
pub(super) fn need_tools(all: bool) -> Result<Tools> {
    let python = peers::python()?;
    let scripts: Vec<&ClientScript> =
        if all { SCRIPTS.iter().chain(&LARGE_SCRIPTS).collect() } else { SCRIPTS.iter().collect() };
    for script in &scripts {
        peers::need(&python, script.modules, script.packages)?;
    }
    if !all {
        println!("left out: the clients of KServe and Triton; `cargo xtask test --all` runs them");
    }
    let scripts = scripts.iter().map(|script| script.path).collect();
    Ok(Tools { python, decoder: model::bring("smollm2")?, encoder: model::bring("minilm")?, scripts })
}

/// Serves real models, and fails if a client does not get what it asks for.
pub(super) fn check(Tools { python, decoder, encoder, scripts }: &Tools) -> Result {
    scripts.iter().try_for_each(|script| run_script(python, script, &[decoder, encoder]))
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
pub(super) fn run_script(python: &Path, script: &str, models: &[&Path]) -> Result {
    // All programs, as the tests build them.
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let mut command = program(python, &[]);
    command.arg(root().join(script)).arg(built("debug").join("siskin"));
    run(command.args(models))
}
