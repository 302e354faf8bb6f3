//! `diagram`: the diagram and the table of the crates in `ARCHITECTURE.md`.

use crate::Subcommand;
use crate::shell::{self, Result, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "diagram",
    usage: "[--bless]",
    about: "print ARCHITECTURE.md with the crate diagram of the manifests; --bless: write it",
    run: diagram,
};

fn diagram(arguments: &[String]) -> Result {
    let mut command = shell::member("crate_diagram");
    match arguments {
        [] => {}
        [flag] if flag == "--bless" => drop(command.arg(flag)),
        _ => return Err("usage: cargo xtask diagram [--bless]".to_owned()),
    }
    run(&mut command)
}
