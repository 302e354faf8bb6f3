//! `examples`: the programs of `examples/` in Rust, C and C++, on small models. Those in Python, Kotlin and Swift run
//! with the tests of their packages.

use super::c;
use crate::Subcommand;
use crate::shell::{self, Result, answer, cargo, output, program, run};
use std::path::Path;

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

    answer(program(rust("chat"), &[]).arg(&chat), "Why?\n")?;
    let c_chat = place.example("gcc", "-std=c11", "examples/c/chat.c")?;
    answer(program(c_chat, &[]).arg(&chat).arg("Why?"), "")?;
    let two = place.example("gcc", "-std=c11", "examples/c/two_chats.c")?;
    answer(program(two, &[]).arg(&chat).args(["Why?", "What?"]), "")?;

    // With random weights, a response may be longer than the context: the beginning of such JSON.
    answer(program(rust("json"), &[]).arg(&chat).arg("Why?"), "")?;

    let embed = place.example("g++", "-std=c++17", "examples/cpp/embed.cpp")?;
    let similarities = |binary: &Path| output(program(binary, &[]).arg(&vectors).args(TEXTS));
    let (found, expected) = (similarities(&embed)?, similarities(&rust("embed"))?);
    match found == expected && found.lines().count() == TEXTS.len() - 1 {
        true => Ok(()),
        false => Err(format!("embed prints in C++\n{found}\nand in Rust\n{expected}")),
    }
}
