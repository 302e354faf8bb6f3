//! `api`: the public items of every library crate.

use crate::Subcommand;
use crate::shell::{self, Result, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "api",
    usage: "[--bless]",
    about: "print the public items of the libraries; --bless: write them to their snapshots",
    run: api,
};

fn api(arguments: &[String]) -> Result {
    let mut command = shell::member("public_api");
    match arguments {
        [] => {}
        [flag] if flag == "--bless" => drop(command.arg(flag)),
        _ => return Err("usage: cargo xtask api [--bless]".to_owned()),
    }
    run(&mut command)
}
