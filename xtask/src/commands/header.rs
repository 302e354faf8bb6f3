//! `header`: the C header, and everything that is generated from it.

use crate::Subcommand;
use crate::shell::{self, Result, cargo, run};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "header",
    usage: "[--bless]",
    about: "print the generated C header; --bless: write it, with its list of functions, the layout of structs and the \
        options of Kotlin and Swift",
    run: header,
};

fn header(arguments: &[String]) -> Result {
    let mut command = shell::member("c_header");
    match arguments {
        [] => run(&mut command),
        [flag] if flag == "--bless" => {
            run(command.arg(flag))?;
            let mut layout = cargo(&["test", "--quiet", "--package", "siskin-ffi", "--lib", "layout"]);
            run(layout.env("SISKIN_BLESS", "1"))
        }
        _ => Err("usage: cargo xtask header [--bless]".to_owned()),
    }
}
