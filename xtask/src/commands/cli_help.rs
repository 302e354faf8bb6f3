//! `cli-help`: the help of every command of `siskin`.

use crate::Subcommand;
use crate::shell::{Result, cargo, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "cli-help",
    usage: "[--bless]",
    about: "compare the help of the command line with the committed one; --bless: write it",
    run: help,
};

fn help(arguments: &[String]) -> Result {
    let mut command = cargo(&["test", "--workspace", "--locked", "--test", "siskin", "--"]);
    match arguments {
        [] => command.arg("help::help_is_as_committed"),
        [flag] if flag == "--bless" => command.args(["help::bless_help", "--ignored"]),
        _ => return Err("usage: cargo xtask cli-help [--bless]".to_owned()),
    };
    run(&mut command)
}
