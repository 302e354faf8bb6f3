//! The checks of `siskin serve` with real clients: packages of Python, and a browser for the chat page.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, cargo, program, root, run};
use crate::tools;
use std::path::{Path, PathBuf};

/// A script that uses the server with clients, and the Python packages that it needs.
pub(super) struct ClientScript {
    pub(super) path: &'static str,
    /// The virtual environment under `.models/`, if not that of the peers: the versions of some packages exclude
    /// each other.
    pub(super) environment: Option<&'static str>,
    pub(super) installs: &'static [Install],
}

/// Modules, and the arguments of pip that install them from wheels.
pub(super) type Install = (&'static str, &'static [&'static str]);

impl ClientScript {
    /// Returns a Python that has the packages.
    pub(super) fn need(&self) -> Result<PathBuf> {
        let python = self.environment.map_or_else(peers::python, tools::python)?;
        self.installs.iter().try_for_each(|(modules, packages)| peers::need(&python, modules, packages))?;
        Ok(python)
    }
}

const SCRIPTS: [ClientScript; 7] = [
    ClientScript {
        path: "serve/tests/clients/openai_client.py",
        environment: None,
        installs: &[("openai", &["openai==3.57.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/responses_client.py",
        environment: None,
        installs: &[("openai", &["openai==3.57.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/audio_client.py",
        environment: None,
        installs: &[("openai", &["openai==3.57.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/tls_client.py",
        environment: None,
        installs: &[("openai", &["openai==3.57.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/ollama_client.py",
        environment: None,
        installs: &[("ollama", &["ollama==0.6.3"])],
    },
    ClientScript {
        path: "serve/tests/clients/langchain_client.py",
        environment: Some("clients"),
        installs: &[("langchain_openai", &["langchain-openai==1.7.4", "openai==3.57.0"])],
    },
    ClientScript { path: "serve/tests/clients/service_manager.py", environment: None, installs: &[] },
];
/// Those with packages of hundreds of MB, and those that take long.
const LARGE_SCRIPTS: [ClientScript; 6] = [
    ClientScript {
        path: "serve/tests/clients/inference_protocol_clients.py",
        environment: None,
        installs: &[("kserve, tritonclient.http", &["kserve==0.21.0", "tritonclient[http]==2.73.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/litellm_client.py",
        environment: Some("clients"),
        installs: &[("litellm", &["litellm==1.110.2", "openai==3.57.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/schemathesis_client.py",
        environment: Some("clients"),
        installs: &[("schemathesis, jsonschema", &["schemathesis==4.32.5", "jsonschema==4.26.0"])],
    },
    ClientScript {
        path: "serve/tests/clients/lm_eval_client.py",
        environment: Some("clients"),
        installs: &[("lm_eval.models.api_models, tenacity, transformers", &LM_EVAL)],
    },
    ClientScript {
        path: "serve/tests/clients/guidellm_client.py",
        environment: Some("clients"),
        // It depends on PyTorch, of which it uses an iteration: the script has one.
        installs: &[
            ("culsans, datasets, faker, ftfy, h2, sanic, transformers", &GUIDELLM),
            ("guidellm", &["--no-deps", "guidellm==0.8.1"]),
        ],
    },
    ClientScript {
        path: "serve/tests/clients/open_webui_client.py",
        environment: Some("open-webui"),
        installs: &[("open_webui", &["--no-deps", "--requirement=serve/tests/clients/open_webui.txt"])],
    },
];
const LM_EVAL: [&str; 3] =
    ["lm-eval[api]==0.4.13", "transformers==5.24.0", "--no-binary=sqlitedict,rouge-score,word2number"];
const GUIDELLM: [&str; 20] = [
    "click~=8.4.0",
    "culsans==0.10.0",
    "datasets==5.2.0",
    "eval_type_backport==0.4.0",
    "faker==40.63.0",
    "ftfy==6.3.1",
    "httpx[http2]==0.28.1",
    "loguru==0.7.3",
    "more-itertools==11.2.1",
    "msgpack==1.2.4",
    "numpy==2.4.6",
    "protobuf",
    "pydantic-settings==2.16.3",
    "pyyaml==6.0.4",
    "rich",
    "sanic==25.12.1",
    "tabulate==0.10.0",
    "transformers==5.24.0",
    "uvloop==0.23.0",
    "websockets>=13.0",
];
const PAGE: &str = "serve/tests/clients/chat_page.py";
const PAGE_PACKAGES: [&str; 1] = ["selenium==4.51.0"];

/// What the checks with clients need.
pub(super) struct Tools {
    /// A decoder, an encoder and a transcriber.
    models: Vec<PathBuf>,
    /// The scripts, each with the Python that has its packages.
    scripts: Vec<(PathBuf, &'static str)>,
}

/// Returns Pythons that have the clients, and the models. `all`: also clients with large packages, without those that
/// cannot be installed.
pub(super) fn need_tools(all: bool) -> Result<Tools> {
    let mut scripts = Vec::new();
    for script in &SCRIPTS {
        scripts.push((script.need()?, script.path));
    }
    for script in &LARGE_SCRIPTS {
        let name = script.path.trim_start_matches("serve/tests/clients/");
        if !all {
            println!("left out: {name}; `cargo xtask test --all` runs it");
            continue;
        }
        match script.need() {
            Ok(python) => scripts.push((python, script.path)),
            Err(why) => eprintln!("skipped: {name}: {why}"),
        }
    }
    let models = ["smollm2", "minilm", "whisper"].map(model::bring);
    Ok(Tools { models: models.into_iter().collect::<Result<_>>()?, scripts })
}

/// Serves real models, and fails if a client does not get what it asks for.
pub(super) fn check(Tools { models, scripts }: &Tools) -> Result {
    let models: Vec<&Path> = models.iter().map(PathBuf::as_path).collect();
    scripts.iter().try_for_each(|(python, script)| run_script(python, script, &models))
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
