//! `test`: everything that a change must pass, and a table of the results.

use super::{
    android, arm, c, counts, cuda, examples, export, hub, ios, model, ops, python, schemas, serve, size,
};
use crate::Subcommand;
use crate::shell::{self, ALL_CASES, Result, cargo, run};
use crate::test_output::{self, Tests};
use crate::tools;
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const SUBCOMMAND: Subcommand =
    Subcommand { name: "test", usage: "[--all] [STEP]…", about: ABOUT, run: test };
const ABOUT: &str =
    "run every check, or the given steps; --all: also the cases that the default run skips as redundant";

/// Real models that tests use if present.
const MODELS: [&str; 3] = ["smollm2", "minilm", "whisper"];
/// Mutations per seed; the plain test run does a tenth.
const FUZZ_ROUNDS: &str = "2000";

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// How many tests are run.
#[derive(Clone, Copy, PartialEq)]
enum Extent {
    /// One of each set of redundant cases.
    Usual,
    All,
}

struct Step {
    name: &'static str,
    /// Limit of processor seconds in a new clone, including compilation, above which the step is reported.
    budget: u32,
    run: fn(Extent) -> Result<Outcome>,
}

/// Steps that run before all others, one after the other.
#[rustfmt::skip]
const FIRST_STEPS: [Step; 3] = [
    Step { name: "tools", budget: 10, run: |_| need_tools() },
    Step { name: "format", budget: 10, run: |_| pass(cargo(&["fmt", "--all", "--check"])) },
    Step { name: "models", budget: 30, run: |_| bring_models() },
];

/// Steps that two workers run, since many of them keep only one processor busy for much of their time. One worker takes
/// steps from the beginning, the other from the end, until they meet: the first steps share a build folder, which cargo
/// locks, and the last have folders of their own.
#[rustfmt::skip]
const STEPS: [Step; 24] = [
    Step { name: "clippy", budget: 270, run: |_| clippy() },
    Step { name: "core-only", budget: 20, run: |_| core_only() },
    Step { name: "docs", budget: 60, run: |_| docs() },
    Step { name: "tests", budget: 1300, run: tests },
    Step { name: "doc-tests", budget: 60, run: |_| pass(cargo(&["test", "--workspace", "--locked", "--doc"])) },
    Step { name: "short-fuzz", budget: 60, run: |_| short_fuzz() },
    Step { name: "c", budget: 200, run: |_| where_possible(c::need_tools, |()| c::check()) },
    Step { name: "examples", budget: 60, run: |_| where_possible(c::need_tools, |()| examples::check()) },
    Step { name: "ios", budget: 200, run: |_| where_possible(ios::need_tools, |swift| ios::tests(&swift)) },
    Step { name: "android", budget: 240, run: |_| where_possible(android::need_tools, |()| android::check().map(drop)) },
    Step { name: "export", budget: 40, run: |_| where_possible(export::need_tools, |python| export::check(&python, &[])) },
    Step { name: "hub", budget: 40, run: |_| where_possible(hub::need_tools, |python| hub::check(&python)) },
    Step { name: "python", budget: 90, run: |extent| where_possible(python::need_tools, |python| python::check(&python, extent == Extent::All)) },
    Step { name: "serve", budget: 130, run: |extent| where_possible(|| serve::need_tools(extent == Extent::All), |tools| serve::check(&tools)) },
    Step { name: "chat-page", budget: 80, run: chat_page },
    Step { name: "operation", budget: 90, run: operation },
    Step { name: "schemas", budget: 100, run: |extent| where_possible(schemas::need_tools, |tools| schemas::check(&tools, extent == Extent::All)) },
    Step { name: "deny", budget: 10, run: |_| deny() },
    Step { name: "cuda", budget: 280, run: |extent| where_possible(cuda::need_tools, |nvcc| cuda::check(&nvcc, extent == Extent::All)) },
    Step { name: "counts", budget: 150, run: |_| where_possible(counts::need_tools, |()| counts::check()) },
    Step { name: "size", budget: 380, run: size },
    Step { name: "checked", budget: 400, run: checked_kernels },
    Step { name: "apple", budget: 80, run: |extent| ios::check_library(extent == Extent::All).map(|()| Outcome::Passed) },
    Step { name: "arm", budget: 250, run: |extent| where_possible(arm::need_tools, |()| arm::identity(extent == Extent::All)) },
];

/// The flag for running a step in this process.
const HERE: &str = "--here";
/// The flag that adds the redundant cases.
const ALL: &str = "--all";

fn test(arguments: &[String]) -> Result {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let extent = if has(ALL) { Extent::All } else { Extent::Usual };
    let chosen: Vec<&String> = arguments.iter().filter(|name| *name != ALL && *name != HERE).collect();
    let every = || FIRST_STEPS.iter().chain(&STEPS);
    if let Some(unknown) = chosen.iter().find(|name| every().all(|step| step.name != name.as_str())) {
        let names: Vec<_> = every().map(|step| step.name).collect();
        return Err(format!("no step `{unknown}`; there are {}", names.join(", ")));
    }
    let wanted = |step: &&Step| chosen.is_empty() || chosen.iter().any(|name| *name == step.name);
    let mut steps = every().filter(wanted);
    if has(HERE) {
        return steps.try_for_each(|step| here(step, extent));
    }
    let begun = Instant::now();
    let ran = if chosen.is_empty() {
        all_steps(extent)
    } else {
        steps.map(|step| recorded(step, extent, true)).collect()
    };
    summary(&ran, begun.elapsed())
}

/// Runs all steps. Returns their results in the order of the lists.
fn all_steps(extent: Extent) -> Vec<Ran> {
    let mut ran: Vec<Ran> = FIRST_STEPS.iter().map(|step| recorded(step, extent, false)).collect();
    let left = Mutex::new(STEPS.iter().collect::<VecDeque<_>>());
    // No worker panics while it holds the lock.
    let left = || left.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |next: &dyn Fn() -> Option<&'static Step>| -> Vec<Ran> {
        std::iter::from_fn(next).map(|step| recorded(step, extent, false)).collect()
    };
    let (from_first, from_last) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&|| left().pop_back()));
        (run(&|| left().pop_front()), other.join())
    });
    ran.extend(from_first);
    match from_last {
        Ok(from_last) => ran.extend(from_last.into_iter().rev()),
        Err(panic) => std::panic::resume_unwind(panic),
    }
    ran
}

/// Runs a step. At the end prints its processor time, and whether it was skipped.
fn here(step: &Step, extent: Extent) -> Result {
    let outcome = (step.run)(extent);
    if let Some(seconds) = shell::seconds_of_programs() {
        println!("{}{PROCESSORS}{seconds:.1}", step.name);
    }
    match outcome? {
        Outcome::Failed(why) => Err(why),
        Outcome::Passed => Ok(()),
        Outcome::Skipped(why) => {
            println!("{}{}{}", step.name, SKIPPED_STEP, why.lines().next().unwrap_or_default());
            Ok(())
        }
    }
}

/// The text between the name of a step and the reason why it was skipped.
const SKIPPED_STEP: &str = " is skipped: ";

/// The text between the name of a step and its processor seconds.
const PROCESSORS: &str = " took processor seconds: ";

/// The result of a step.
struct Ran {
    step: &'static Step,
    outcome: Outcome,
    seconds: f64,
    /// Processor seconds, if the system counts them.
    worked: Option<f64>,
    tests: Tests,
}

/// Runs one step in its own process and records its output in a file. Prints all of it if `shown` is set, otherwise
/// only failures.
fn recorded(step: &'static Step, extent: Extent, shown: bool) -> Ran {
    println!("\n== {}", step.name);
    let begun = Instant::now();
    let place = shell::built("test").join(format!("{}.log", step.name));
    let (mut said, mut outcome) = (String::new(), Outcome::Passed);
    match record(step, extent, shown, &place) {
        Ok((all, status)) => {
            said = all;
            if !status.success() {
                if !shown {
                    println!("{}", test_output::failures(&said));
                }
                let why = format!("{status}; all that it printed is in {}", place.display());
                outcome = Outcome::Failed(why);
            } else if let Some(why) = test_output::last_after(&said, step.name, SKIPPED_STEP) {
                outcome = Outcome::Skipped(why.to_owned());
            }
        }
        Err(error) => outcome = Outcome::Failed(format!("{}: {error}", place.display())),
    }
    if let Outcome::Failed(why) = &outcome {
        eprintln!("{}: {why}", step.name);
    }
    let worked =
        test_output::last_after(&said, step.name, PROCESSORS).and_then(|seconds| seconds.parse().ok());
    Ran { step, outcome, seconds: begun.elapsed().as_secs_f64(), worked, tests: Tests::read(&said) }
}

fn record(step: &Step, extent: Extent, shown: bool, place: &Path) -> io::Result<(String, ExitStatus)> {
    fs::create_dir_all(shell::built("test"))?;
    let (mut from, to) = io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["test", HERE, step.name]).args((extent == Extent::All).then_some(ALL));
    command.current_dir(shell::root()).stdout(to.try_clone()?).stderr(to);
    let mut child = command.spawn()?;
    // Closes this process's ends of the pipe, so that reading ends.
    drop(command);
    let (mut file, mut said, mut part) = (fs::File::create(place)?, Vec::new(), [0; 1 << 14]);
    loop {
        let count = from.read(&mut part)?;
        if count == 0 {
            break;
        }
        file.write_all(&part[..count])?;
        said.extend_from_slice(&part[..count]);
        if shown {
            io::stdout().write_all(&part[..count])?;
        }
    }
    Ok((String::from_utf8_lossy(&said).into_owned(), child.wait()?))
}

fn summary(ran: &[Ran], total: Duration) -> Result {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    let number = |seconds: Option<f64>| seconds.map_or("?".to_owned(), |seconds| format!("{seconds:.1}"));
    println!("\n{:<12} {:>8} {:>8} {:>7}  result", "step", "seconds", "cpu", "budget");
    for Ran { step, outcome, seconds, worked, tests } in ran {
        let word = match outcome {
            Outcome::Passed => {
                passed += 1;
                "passed".to_owned()
            }
            Outcome::Skipped(why) => {
                skipped += 1;
                format!("skipped: {why}")
            }
            Outcome::Failed(why) => {
                failed.push(step.name);
                format!("FAILED: {}", why.lines().next().unwrap_or_default())
            }
        };
        let worked = number(*worked);
        println!(
            "{:<12} {seconds:>8.1} {worked:>8} {:>7}  {word}{}",
            step.name,
            step.budget,
            of_tests(tests)
        );
    }
    let worked = number(ran.iter().map(|ran| ran.worked).sum());
    println!("{:<12} {:>8.1} {worked:>8}\n", "total", total.as_secs_f64());
    for Ran { step, worked, tests, .. } in ran {
        tests.reasons.iter().for_each(|why| println!("{}: not run: {why}", step.name));
        if let Some(worked) = worked.filter(|&worked| worked > f64::from(step.budget)) {
            println!(
                "warning: {} took {worked:.0} seconds of processors; its budget is {}",
                step.name, step.budget
            );
        }
    }
    let sum = |count: fn(&Tests) -> usize| ran.iter().map(|ran| count(&ran.tests)).sum::<usize>();
    println!("steps: {passed} passed, {} failed, {skipped} skipped", failed.len());
    let [all, partly] = [sum(|tests| tests.passed), sum(|tests| tests.partly)];
    println!(
        "tests: {all} passed, {partly} of them with some of their cases, {} failed, {} skipped",
        sum(|tests| tests.failed),
        sum(|tests| tests.skipped)
    );
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Returns the summary of a step's tests that follows its result.
fn of_tests(tests: &Tests) -> String {
    match (tests.passed, tests.skipped) {
        (0, 0) => String::new(),
        (passed, 0) => format!("; {passed} tests"),
        (passed, skipped) => format!("; {passed} tests, {skipped} skipped"),
    }
}

fn pass(mut command: std::process::Command) -> Result<Outcome> {
    run(&mut command).map(|()| Outcome::Passed)
}

fn need_tools() -> Result<Outcome> {
    tools::linker()?;
    tools::components()?;
    Ok(Outcome::Passed)
}

fn clippy() -> Result<Outcome> {
    pass(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

/// Checks that the kernels build without the standard library.
fn core_only() -> Result<Outcome> {
    pass(cargo(&["check", "--package", "siskin-kernels", "--no-default-features", "--locked"]))
}

/// Measures the library for 64-bit Arm, whose link-time optimization takes longer than any other step but the tests.
fn size(extent: Extent) -> Result<Outcome> {
    match extent {
        Extent::Usual => Ok(Outcome::Skipped("`cargo xtask test --all` measures the library".to_owned())),
        Extent::All => where_possible(size::need_tools, |()| size::check()),
    }
}

/// Uses the chat page in a browser, which is slower than any other client.
fn chat_page(extent: Extent) -> Result<Outcome> {
    match extent {
        Extent::Usual => {
            Ok(Outcome::Skipped("`cargo xtask test --all` uses the chat page in Chromium".to_owned()))
        }
        Extent::All => where_possible(serve::need_browser, |tools| serve::check_page(&tools)),
    }
}

/// Runs replicas behind a load balancer.
fn operation(extent: Extent) -> Result<Outcome> {
    match extent {
        Extent::Usual => {
            Ok(Outcome::Skipped("`cargo xtask test --all` runs replicas behind a load balancer".to_owned()))
        }
        Extent::All => where_possible(ops::need_tools, |tools| ops::check(&tools)),
    }
}

/// Runs the tests of the kernels with checks of overflows and of preconditions of `unsafe` functions, with which they take
/// three times as long to compile.
fn checked_kernels(extent: Extent) -> Result<Outcome> {
    if extent == Extent::Usual {
        let why = "`cargo xtask test --all` runs the kernels with checks of overflows and preconditions";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let mut command = cargo(&["test", "--package", "siskin-kernels", "--locked", "--lib", "--tests"]);
    for check in ["debug-assertions", "overflow-checks"] {
        command.arg("--config").arg(format!("profile.dev.package.siskin-kernels.{check}=true"));
    }
    command.arg("--target-dir").arg(shell::built("checked"));
    pass(command)
}

fn bring_models() -> Result<Outcome> {
    for name in MODELS {
        match model::bring(name) {
            Ok(path) => println!("{name}: {}", path.display()),
            Err(why) => {
                eprintln!("{why}");
                return Ok(Outcome::Skipped(why));
            }
        }
    }
    Ok(Outcome::Passed)
}

fn tests(extent: Extent) -> Result<Outcome> {
    let kinds = ["--lib", "--bins", "--tests", "--examples"];
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    // The output of tests tells which of them were skipped.
    command.args(kinds).args(["--", "--show-output"]);
    if extent == Extent::All {
        command.env(ALL_CASES.0, ALL_CASES.1);
    }
    pass(command)
}

fn short_fuzz() -> Result<Outcome> {
    let mut command = cargo(&["test", "--workspace", "--locked", "--test", "fuzz_short"]);
    command.env("SISKIN_FUZZ_ROUNDS", FUZZ_ROUNDS);
    pass(command)
}

/// Runs a check, or skips it if this machine cannot provide its requirements.
fn where_possible<T>(needs: impl FnOnce() -> Result<T>, check: impl FnOnce(T) -> Result) -> Result<Outcome> {
    match needs() {
        Ok(tools) => check(tools).map(|()| Outcome::Passed),
        Err(why) => Ok(Outcome::Skipped(why)),
    }
}

fn docs() -> Result<Outcome> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--lib"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    pass(command)
}

fn deny() -> Result<Outcome> {
    if !tools::has_cargo_deny() {
        let why = "cargo-deny is not installed; the architecture tests check licenses, bans and sources";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    pass(cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"]))
}
