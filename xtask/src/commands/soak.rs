//! `soak`: many clients of an engine for a long time.

use super::model;
use crate::Subcommand;
use crate::shell::{self, Result, program, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "soak",
    usage: "[MINUTES [MODEL...]]",
    about: "run many clients of an engine, most of which cancel, and check answers and memory; by default for 30 minutes \
        with SmolLM2",
    run: soak,
};

fn soak(arguments: &[String]) -> Result {
    let mut test = program(shell::built_member("soak")?, &[]);
    match arguments {
        [] => test.arg("30").arg(model::bring("smollm2")?),
        given => test.args(given),
    };
    run(&mut test)
}
