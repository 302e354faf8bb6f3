//! The project's development tasks: `cargo xtask <command>`.

mod commands;
mod cross_compile;
mod env;
mod library;
mod shell;
mod systems;
mod test_output;
mod tools;
mod zig;

use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Subcommand {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> shell::Result,
}

/// All commands, as `cargo xtask` lists them.
const SUBCOMMANDS: &[Subcommand] = &[
    commands::test::SUBCOMMAND,
    commands::arm::SUBCOMMAND,
    commands::model::SUBCOMMAND,
    commands::demo::SUBCOMMAND,
    commands::soak::SUBCOMMAND,
    commands::bench_kernels::SUBCOMMAND,
    commands::bench_peers::SUBCOMMAND,
    commands::counts::SUBCOMMAND,
    commands::quality::SUBCOMMAND,
    commands::ops::SUBCOMMAND,
    commands::export::SUBCOMMAND,
    commands::fuzz::SUBCOMMAND,
    commands::api::SUBCOMMAND,
    commands::diagram::SUBCOMMAND,
    commands::cli_help::SUBCOMMAND,
    commands::header::SUBCOMMAND,
    commands::hub::SUBCOMMAND,
    commands::python::SUBCOMMAND,
    commands::c::SUBCOMMAND,
    commands::examples::SUBCOMMAND,
    commands::size::SUBCOMMAND,
    commands::cuda::SUBCOMMAND,
    commands::deb::SUBCOMMAND,
    commands::release::SUBCOMMAND,
    commands::ios::SUBCOMMAND,
    commands::android::SUBCOMMAND,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        print_help();
        return ExitCode::SUCCESS;
    };
    if ["help", "-h", "--help"].contains(&name.as_str()) {
        print_help();
        return ExitCode::SUCCESS;
    }
    let Some(subcommand) = SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name) else {
        eprintln!("xtask: no command `{name}`\n");
        print_help();
        return ExitCode::from(2);
    };
    match (subcommand.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn print_help() {
    println!("cargo xtask <command>\n");
    for subcommand in SUBCOMMANDS {
        println!("  {} {}\n      {}", subcommand.name, subcommand.usage, subcommand.about);
    }
}
