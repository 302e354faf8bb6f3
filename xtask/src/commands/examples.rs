//! `examples`: the programs of `examples/` in Rust, C and C++, on small models. Those in Python, Kotlin and Swift run
//! with the tests of their packages.

use super::c;
use crate::Subcommand;
use crate::shell::{self, Result, cargo, program, run};
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "examples",
    usage: "",
    about: "build the example programs in Rust, C and C++ and run them on small models",
    run: examples,
};

const TEXTS: [&str; 3] = ["a siskin sings", "a bird", "the sky"];

fn examples(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask examples".to_owned());
    }
    c::need_tools()?;
    check()
}

/// Runs the programs. The similarities that the programs of two languages print must be the same.
pub(crate) fn check() -> Result {
    let place = c::Place::new()?;
    shell::c_library(false)?;
    run(&mut cargo(&["build", "--workspace", "--locked", "--bins"]))?;
    let rust = |name: &str| shell::built("debug").join(name);
    let (chat, vectors) = (place.models.join("chat.siskin"), place.models.join("vectors.siskin"));

    answers(&rust("chat"), &[&chat], "Why?\n")?;
    answers(&place.example("gcc", "-std=c11", "examples/c/chat.c")?, &[&chat, Path::new("Why?")], "")?;
    let two = place.example("gcc", "-std=c11", "examples/c/two_chats.c")?;
    answers(&two, &[&chat, Path::new("Why?"), Path::new("What?")], "")?;

    // With random weights, a response may be longer than the context: the beginning of such JSON.
    answers(&rust("json"), &[&chat, Path::new("Why?")], "")?;

    let embed = place.example("g++", "-std=c++17", "examples/cpp/embed.cpp")?;
    let similarities =
        |program: &PathBuf| shell::output(shell::program(program, &[]).arg(&vectors).args(TEXTS));
    let (found, expected) = (similarities(&embed)?, similarities(&rust("embed"))?);
    match found == expected && found.lines().count() == TEXTS.len() - 1 {
        true => Ok(()),
        false => Err(format!("embed prints in C++\n{found}\nand in Rust\n{expected}")),
    }
}

/// Runs a program with a text on its standard input. It must print something and succeed.
fn answers(binary: &Path, arguments: &[&Path], input: &str) -> Result {
    let file = shell::built("debug/c/input.txt");
    let opened = std::fs::write(&file, input).and_then(|()| std::fs::File::open(&file));
    let opened = opened.map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = program(binary, &[]);
    let printed = shell::output(command.args(arguments).stdin(opened))?;
    println!("{}: {} bytes", binary.display(), printed.len());
    if printed.trim().is_empty() { Err(format!("{} prints nothing", binary.display())) } else { Ok(()) }
}
