//! `demo`: from a clone to generated text in one command.

use super::model;
use crate::Subcommand;
use crate::shell::{self, Result, cargo, program, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "demo",
    usage: "[PROMPT]",
    about: "build, download a small model, and respond to a prompt",
    run: demo,
};

fn demo(arguments: &[String]) -> Result {
    let prompt = match arguments {
        [] => "Why is the sky blue?",
        [prompt] => prompt,
        _ => return Err("usage: cargo xtask demo [PROMPT]".to_owned()),
    };
    let model = model::bring("smollm2")?;
    run(&mut cargo(&["build", "--release", "--locked", "--package", "siskin-cli"]))?;
    let mut siskin = program(shell::release("siskin"), &["run"]);
    run(siskin.arg(model).args([prompt, "--max-tokens", "64"]))
}
