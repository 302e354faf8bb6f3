//! The project's development tasks: `cargo xtask <verb>`.

mod foreign;
mod knobs;
mod library;
mod record;
mod shell;
mod tools;
mod verb;

use std::process::ExitCode;

/// A command of `cargo xtask`.
struct Verb {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&[String]) -> shell::Result,
}

/// All commands, as `cargo xtask` lists them.
const VERBS: &[Verb] = &[
    verb::test::VERB,
    verb::arm::VERB,
    verb::model::VERB,
    verb::demo::VERB,
    verb::bench_kernels::VERB,
    verb::bench_peers::VERB,
    verb::counts::VERB,
    verb::quality::VERB,
    verb::export::VERB,
    verb::fuzz::VERB,
    verb::api::VERB,
    verb::cli_help::VERB,
    verb::header::VERB,
    verb::c::VERB,
    verb::size::VERB,
    verb::cuda::VERB,
    verb::deb::VERB,
    verb::ios::VERB,
    verb::android::VERB,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        print_verbs();
        return ExitCode::SUCCESS;
    };
    if ["help", "-h", "--help"].contains(&name.as_str()) {
        print_verbs();
        return ExitCode::SUCCESS;
    }
    let Some(verb) = VERBS.iter().find(|verb| verb.name == name) else {
        eprintln!("xtask: no verb `{name}`\n");
        print_verbs();
        return ExitCode::from(2);
    };
    match (verb.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {name}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn print_verbs() {
    println!("cargo xtask <verb>\n");
    for verb in VERBS {
        println!("  {} {}\n      {}", verb.name, verb.usage, verb.about);
    }
}
