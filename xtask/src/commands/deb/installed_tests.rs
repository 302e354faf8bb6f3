//! Tests installed packages, comparing their output to this machine's.

use super::boot;
use super::installable::RELEASE;
use super::machine::DebArchitecture;
use super::packages::{DebPackage, NAMES, VERSION};
use crate::shell::{self, Result, output, program, run, said};
use crate::systems::System;
use crate::systems::emulator::EMULATOR;
use std::fs;
use std::path::{Path, PathBuf};

/// The compared commands, with `MODEL` for the name of a model.
const QUESTIONS: [(&str, &[&str]); 4] = [
    ("chat", &["run", "MODEL", "Why?", "--greedy", "--max-tokens", "24", "--quiet"]),
    ("vectors", &["embed", "MODEL", "a siskin", "sings", "--quiet"]),
    ("translates", &["generate", "MODEL", "a siskin", "--beams", "3", "--max-tokens", "12", "--quiet"]),
    ("chat", SPOKEN),
];
/// The command equivalent to `chat.c`.
const SPOKEN: &[&str] = &["run", "MODEL", "Why?", "--seed", "0", "--quiet"];
/// Processors of the boards in `docs/linux.md`, by their names in the emulator: the detected features, and the page
/// size of their systems.
const BOARDS: [(&str, &str, &str); 2] =
    [("cortex-a72", "4096", "neon"), ("cortex-a76", "16384", "neon+dotprod")];
/// The golden's own inputs; logits must be bit-identical.
const INPUTS: &str = "tests/data/golden/llama/io.safetensors";

/// Installs the packages of an architecture in a fresh system, tests them and removes them.
pub(super) fn check(machine: &DebArchitecture, folder: &Path, made: &[DebPackage]) -> Result {
    let (models, reference) = (folder.join("models"), reference()?);
    let packages: &[&str] = if machine.is_own() { &["systemd-sysv"] } else { &[] };
    let place = folder.join(format!("root-{}", machine.name));
    let root = System::debian(machine.name, RELEASE, packages, place)?;
    let before = root.files()?;
    let made: Vec<&DebPackage> = made.iter().filter(|package| package.machine == machine.name).collect();
    let files = made.iter().map(|package| root.bring(&package.file)).collect::<Result<Vec<_>>>()?;
    let install = ["apt-get", "install", "-q", "-y", "--no-install-recommends"];
    run(root.program(&install).args(&files))?;
    let version = output(&mut root.program(&["siskin", "--version"]))?;
    if version.trim() != format!("siskin {VERSION}") {
        return Err(format!("siskin --version says `{}`", version.trim()));
    }
    for (name, words) in QUESTIONS {
        let model = models.join(format!("{name}.siskin"));
        let there = root.bring(&model)?;
        let found = output(root.program(&["siskin"]).args(with(words, &there)))?;
        let expected = output(program(&reference, &[]).args(with(words, &model.to_string_lossy())))?;
        same(words[0], &found, &expected)?;
    }
    logits(&root, &models, &reference)?;
    let first = root.bring(&first(machine, folder, &made)?)?;
    let found = output(&mut root.program(&[&first, "/tmp/chat.siskin", "Why?"]))?;
    let model = models.join("chat.siskin");
    let expected = output(program(&reference, &[]).args(with(SPOKEN, &model.to_string_lossy())))?;
    same("chat.c", found.trim_end(), expected.trim_end())?;
    if machine.name == "arm64" && !machine.is_own() {
        boards(&root)?;
    }
    run(root.program(&["apt-get", "purge", "-q", "-y"]).args(NAMES))?;
    let left: Vec<String> = root.files()?.into_iter().filter(|file| !before.contains(file)).collect();
    if !left.is_empty() {
        return Err(format!("what is left of the packages: {}", left.join(", ")));
    }
    // Systems do not boot in the emulator.
    match made.iter().find(|package| package.name == "siskin" && machine.is_own()) {
        Some(command) => boot::check(&root, folder, command),
        None => Ok(()),
    }
}

fn with<'a>(words: &[&'a str], model: &'a str) -> Vec<&'a str> {
    words.iter().map(|&word| if word == "MODEL" { model } else { word }).collect()
}

fn same(what: &str, found: &str, expected: &str) -> Result {
    if found == expected && !found.trim().is_empty() {
        println!("{what}: the same {} bytes as on this machine", found.len());
        return Ok(());
    }
    Err(format!("{what} says in the fresh system\n{found}\nand on this machine\n{expected}"))
}

/// Compares the logits of a golden's tokens, bit by bit.
fn logits(root: &System, models: &Path, reference: &Path) -> Result {
    let (model, written) = (models.join("chat.siskin"), models.join("logits.safetensors"));
    let input = root.bring(&shell::root().join(INPUTS))?;
    let words = ["logits", "/tmp/chat.siskin", "--input", &input, "--output", "/tmp/found", "--quiet"];
    run(root.program(&["siskin"]).args(words))?;
    let mut command = program(reference, &["logits"]);
    command.arg(&model).args(["--input", INPUTS, "--quiet", "--output"]);
    run(command.arg(&written))?;
    let [found, expected] =
        [&root.folder().join("tmp/found"), &written].map(|path| fs::read(path).map_err(said(path)));
    let (found, expected) = (found?, expected?);
    match found == expected {
        true => {
            println!("logits: the same {} bytes as on this machine", found.len());
            Ok(())
        }
        false => Err("logits differ from those of this machine".to_owned()),
    }
}

/// Checks that the kernels selected for boards give the bits of the reference.
fn boards(root: &System) -> Result {
    for (processor, pages, features) in BOARDS {
        let mut doctor = program(EMULATOR, &["-cpu", processor, "-p", pages, "-L"]);
        doctor.arg(root.folder()).arg(root.folder().join("usr/bin/siskin")).args(["doctor", "--quiet"]);
        let said = output(doctor.arg(root.folder().join("tmp/chat.siskin")))?;
        let says = |name: &str, value: &str| {
            said.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim() == value))
        };
        if !says("CPU features", features) || !says("self-test", "same bits") {
            return Err(format!("siskin doctor says on {processor}\n{said}"));
        }
        println!("{processor}: {features}, the reference's bits");
    }
    Ok(())
}

/// Builds the command as tests build it and returns its path.
fn reference() -> Result<PathBuf> {
    let package = ["--package", "siskin-cli", shell::WITHOUT_TRACT];
    run(shell::cargo(&["build", "--quiet", "--locked"]).args(package))?;
    Ok(shell::built("debug/siskin"))
}

/// Packs the tiny test models.
pub(super) fn models(folder: &Path) -> Result {
    let models = folder.join("models");
    fs::create_dir_all(&models).map_err(said(&models))?;
    let package = ["--package", "siskin-tests", shell::WITHOUT_TRACT, "--bin", "c_models", "--"];
    run(shell::cargo(&["run", "--quiet", "--locked"]).args(package).arg(&models))
}

/// Compiles the first program of `docs/abi.md` with nothing but the files of the packages.
fn first(machine: &DebArchitecture, folder: &Path, made: &[&DebPackage]) -> Result<PathBuf> {
    let files = folder.join(format!("files-{}", machine.name));
    run(program("rm", &["-rf"]).arg(&files))?;
    for package in made {
        run(program("dpkg-deb", &["--extract"]).arg(&package.file).arg(&files))?;
    }
    let mut asked = program("pkg-config", &["--cflags", "--libs", "siskin"]);
    asked.env("PKG_CONFIG_LIBDIR", files.join(format!("usr/lib/{}/pkgconfig", machine.multiarch)));
    asked.env("PKG_CONFIG_SYSROOT_DIR", &files);
    asked.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
    let flags = output(&mut asked)?;
    let binary = folder.join(format!("first-{}", machine.name));
    let mut compile = program(machine.compiler(), &["-std=c11", "-Wall", "-Werror"]);
    compile.arg(files.join("usr/share/doc/libsiskin-dev/examples/chat.c")).arg("-o").arg(&binary);
    run(compile.args(flags.split_whitespace()))?;
    Ok(binary)
}
