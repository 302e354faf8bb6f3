//! `arm`: tests on 64-bit and 32-bit Arm, cross-compiled and run by an emulator.

use crate::Subcommand;
use crate::cross_compile;
use crate::shell::{self, ALL_CASES, Result, WITHOUT_TRACT, shown};
use crate::test_output::Tests;
use crate::tools;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "arm",
    usage: "[--all] [TARGET]…",
    about: "build for 64-bit and 32-bit Arm, and run the tests of kernels, goldens and bit identity in an emulator",
    run: arm,
};

/// A target to build for.
struct Target {
    triple: &'static str,
    /// The prefix of its compiler and libraries.
    prefix: &'static str,
    emulator: &'static str,
    /// The packages of its compiler and C library.
    packages: [&'static str; 2],
    suites: &'static [Suite],
    /// Suites that `cargo xtask test` runs: those of kernels, which are what differs between instruction sets.
    identity: &'static [Suite],
}

/// How many tests are run.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// One hash for every kernel and for some models.
    Identity,
    Usual,
    All,
}

/// Tests of one cargo command.
struct Suite {
    name: &'static str,
    arguments: &'static [&'static str],
}

const KERNELS: Suite =
    Suite { name: "kernels", arguments: &["--package", "siskin-kernels", "--test", "kernels"] };
const GOLDENS: Suite = Suite {
    name: "goldens",
    arguments: &["--package", "siskin-tests", WITHOUT_TRACT, "--test", "bit_identity", "--test", "goldens"],
};
const KERNEL_HASHES: Suite = Suite {
    name: "kernel hashes",
    arguments: &["--package", "siskin-kernels", "--test", "kernels", "identity"],
};
const MODEL_HASHES: Suite = Suite {
    name: "bit identity",
    arguments: &["--package", "siskin-tests", WITHOUT_TRACT, "--test", "bit_identity"],
};
/// Suites that `--all` adds.
const REST: Suite = Suite {
    name: "the rest",
    arguments: &[
        "--package=siskin-format",
        "--package=siskin-tokenizer",
        "--package=siskin-chat-template",
        "--package=siskin-audio",
        "--package=siskin-graph",
        "--package=siskin-backend",
        "--package=siskin",
        "--package=siskin-convert",
        "--package=siskin-tests",
        WITHOUT_TRACT,
        "--lib",
        "--test=convert",
        "--test=goldens",
        "--test=fuzz_short",
        "--test=tokenizers",
        "--test=no_alloc",
    ],
};

const TARGETS: [Target; 2] = [
    Target {
        triple: "aarch64-unknown-linux-gnu",
        prefix: "aarch64-linux-gnu",
        emulator: "qemu-aarch64-static",
        packages: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        suites: &[KERNELS, GOLDENS],
        identity: &[KERNEL_HASHES],
    },
    Target {
        triple: "armv7-unknown-linux-gnueabihf",
        prefix: "arm-linux-gnueabihf",
        emulator: "qemu-arm-static",
        packages: ["gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"],
        suites: &[KERNELS, GOLDENS],
        identity: &[],
    },
];

fn arm(arguments: &[String]) -> Result {
    let triples: Vec<_> = TARGETS.iter().map(|target| target.triple).collect();
    let (all, chosen): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "--all");
    if let Some(unknown) = chosen.iter().find(|name| !triples.contains(&name.as_str())) {
        return Err(format!("no target `{unknown}`; there are {}", triples.join(", ")));
    }
    need_tools()?;
    let wanted = |target: &&Target| chosen.is_empty() || chosen.iter().any(|name| *name == target.triple);
    let targets: Vec<_> = TARGETS.iter().filter(wanted).collect();
    run_on(&targets, if all.is_empty() { Extent::Usual } else { Extent::All }, true)
}

/// Runs the hashes of kernels, and with `all_cases` also those of models, on every target.
pub(crate) fn identity(all_cases: bool) -> Result {
    run_on(&TARGETS.iter().collect::<Vec<_>>(), Extent::Identity, all_cases)
}

/// Ensures that the tools are installed.
pub(crate) fn need_tools() -> Result {
    let mut needs = Vec::new();
    for target in &TARGETS {
        needs.push((format!("/usr/bin/{}-gcc", target.prefix), target.packages[0]));
        needs.push((format!("/usr/{}/include/stdio.h", target.prefix), target.packages[1]));
        needs.push((format!("/usr/bin/{}", target.emulator), "qemu-user-static"));
    }
    tools::debian(&needs)
}

/// The result of a suite.
struct Line {
    target: &'static str,
    suite: &'static str,
    counts: Tests,
    seconds: f64,
}

fn run_on(targets: &[&Target], extent: Extent, all_cases: bool) -> Result {
    let mut lines = Vec::new();
    for target in targets {
        let suites = match extent {
            Extent::Identity if all_cases => &[KERNEL_HASHES, MODEL_HASHES],
            Extent::Identity => target.identity,
            Extent::Usual | Extent::All => target.suites,
        };
        let rest = (extent == Extent::All).then_some(&REST);
        if extent == Extent::Identity && !all_cases {
            // `size` builds the library for 64-bit Arm.
            if suites.is_empty() {
                compiles(target)?;
            }
            println!("left out: models on {}; `cargo xtask test --all` runs them", target.triple);
        }
        for suite in suites.iter().chain(rest) {
            let begun = Instant::now();
            let counts = run_suite(target, suite, all_cases)?;
            let seconds = begun.elapsed().as_secs_f64();
            lines.push(Line { target: target.triple, suite: suite.name, counts, seconds });
        }
    }
    println!("\n{:<30} {:<14} {:>6} {:>7} {:>8}", "target", "tests", "passed", "failed", "seconds");
    for Line { target, suite, counts, seconds } in &lines {
        println!("{target:<30} {suite:<14} {:>6} {:>7} {seconds:>8.1}", counts.passed, counts.failed);
    }
    let failed: usize = lines.iter().map(|line| line.counts.failed).sum();
    if failed == 0 { Ok(()) } else { Err(format!("{failed} tests failed on Arm")) }
}

/// Checks that the library compiles for a target.
fn compiles(target: &Target) -> Result {
    let mut command = cross_compile::cargo_with_std("check", target.triple, cross_compile::STANDARD)?;
    shell::run(command.args(["--package", "siskin-ffi", "--lib"]).args(cross_compile::optimized_at(1)))
}

fn run_suite(target: &Target, suite: &Suite, all_cases: bool) -> Result<Tests> {
    let mut command = cargo_for(target)?;
    command.args(suite.arguments).args(["--", "--show-output"]).stderr(Stdio::inherit());
    if all_cases {
        command.env(ALL_CASES.0, ALL_CASES.1);
    }
    println!("$ {}", shown(&command));
    let answer = command.output().map_err(|error| format!("`{}`: {error}", shown(&command)))?;
    let said = String::from_utf8_lossy(&answer.stdout);
    println!("{said}");
    let counts = Tests::read(&said);
    // A failed build ran no tests; a test that was aborted is not counted.
    if !answer.status.success() && counts.failed == 0 || counts.passed + counts.failed == 0 {
        return Err(format!("`{}` ended with {}", shown(&command), answer.status));
    }
    Ok(counts)
}

/// Returns the cargo command that builds tests for `target` and runs them in its emulator.
fn cargo_for(target: &Target) -> Result<Command> {
    let Target { triple, prefix, emulator, .. } = target;
    let mut command = cross_compile::cargo_with_std("test", triple, cross_compile::STANDARD_WITH_TESTS)?;
    // More optimization takes many minutes for Arm, and gains nothing in an emulator.
    command.arg("--no-fail-fast").args(cross_compile::optimized_at(1));
    cross_compile::link_with(&mut command, triple, &format!("{prefix}-gcc"));
    cross_compile::run_with(&mut command, triple, &format!("{emulator} -cpu max -L /usr/{prefix}"));
    Ok(command)
}
