//! `soak`: many clients of an engine for a long time.

use super::bench_peers::peers;
use super::model;
use super::serve::run_script;
use crate::Subcommand;
use crate::shell::{self, Result, program, run};
use std::path::Path;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "soak",
    usage: "[--http] [MINUTES [MODEL...]]",
    about: "run many clients of an engine, or of the HTTP server, most of which cancel, and check answers and memory; by \
        default for 30 minutes with SmolLM2",
    run: soak,
};

const HTTP: &str = "serve/tests/operations/http_soak.py";

fn soak(arguments: &[String]) -> Result {
    if let Some((flag, minutes)) = arguments.split_first()
        && flag == "--http"
    {
        let minutes = minutes.first().map_or("30", String::as_str);
        let models = [model::bring("smollm2")?, model::bring("minilm")?];
        let arguments = [Path::new(minutes), &models[0], &models[1]];
        return run_script(&peers::python()?, HTTP, &arguments);
    }
    let mut test = program(shell::built_member("soak")?, &[]);
    match arguments {
        [] => test.arg("30").arg(model::bring("smollm2")?),
        given => test.args(given),
    };
    run(&mut test)
}
