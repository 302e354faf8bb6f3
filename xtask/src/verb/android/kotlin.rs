//! Kotlin and Java: the package's classes, the sample's, and the tests.

use super::jars::Jars;
use super::{Place, empty_folder, sources};
use crate::shell::{self, Result, program, run, shown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the package's classes are compiled with: for Java 8, as older versions of Android need, with visibilities
/// spelt out.
const STRICT: [&str; 3] = ["-Xjdk-release=1.8", "-Xexplicit-api=strict", "-Werror"];
/// The most milliseconds in which calls stop, more often than not. Less than 20 are asked for; others that keep the
/// cores busy must not fail the check, and a prompt that does not stop takes seconds.
const PATIENCE: &str = "100";
/// What Java says where the bridge breaks a rule of its.
const BROKEN_RULES: [&str; 3] = ["WARNING in native method", "FATAL ERROR in native method", "WARNING: JNI"];

/// What is tested.
pub(super) struct Tested<'a> {
    pub(super) classes: &'a Path,
    /// The bridge with the functions for tests.
    pub(super) library: &'a Path,
    /// The folder of the small models.
    pub(super) models: PathBuf,
    /// The package that is looked into.
    pub(super) archive: PathBuf,
}

/// The package's classes.
pub(super) fn compile(place: &Place, jars: &Jars) -> Result<PathBuf> {
    let (stubs, classes) = (place.at("stubs"), place.at("classes"));
    java(&stubs, &[], "src/stubs/java")?;
    let path = format!("{}:{}", stubs.display(), jars.path(&["library", "android"]));
    let mut compiler = kotlinc(jars, &path, &classes)?;
    compiler.args(STRICT).args(["-module-name", "siskin"]);
    run(compiler.args(["android/src/main/kotlin", "android/src/android/kotlin"]))?;
    Ok(classes)
}

/// The sample's classes, and the programs of the page on Android, which are thrown away.
pub(super) fn sample(place: &Place, jars: &Jars, classes: &Path) -> Result {
    let libraries = jars.path(&["library", "android"]);
    let path = format!("{}:{}:{libraries}", place.at("stubs").display(), classes.display());
    let mut compiler = kotlinc(jars, &path, &place.at("sample"))?;
    compiler.args(["-Werror", "-module-name", "sample"]);
    run(compiler.arg("android/sample/app/src/main/kotlin"))
}

/// Compiles the tests and runs them with every check of the bridge that Java has.
pub(super) fn test(place: &Place, jars: &Jars, tested: &Tested<'_>) -> Result {
    let (stubs, fakes, tests) = (place.at("stubs"), place.at("fakes"), place.at("tests"));
    java(&fakes, &[&stubs], "src/test/java")?;
    let [stubs, fakes, tests, classes] =
        [&stubs, &fakes, &tests, tested.classes].map(|path| path.display().to_string());
    let path = format!("{stubs}:{fakes}:{classes}:{}", jars.path(&["library", "test", "android"]));
    let mut compiler = kotlinc(jars, &path, Path::new(&tests))?;
    compiler.arg(format!("-Xfriend-paths={classes}")).args(["-module-name", "siskin_test"]);
    run(compiler.arg("android/src/test/kotlin"))?;
    let mut machine = program("java", &["-ea", "-Xcheck:jni", "-Xmx512m"]);
    machine.args(["--add-opens", "java.base/java.io=ALL-UNNAMED", "-cp", &format!("{tests}:{path}")]);
    machine.args(properties(tested)?).arg("org.junit.runner.JUnitCore").args(test_classes()?);
    run_strictly(machine.env("RUST_BACKTRACE", "0"))
}

/// Files and folders that the tests are told of.
fn properties(tested: &Tested<'_>) -> Result<Vec<String>> {
    let (root, models) = (shell::root(), shell::models()?);
    let paths = [
        ("library", tested.library.to_owned()),
        ("models", tested.models.clone()),
        ("archive", tested.archive.clone()),
        ("data", root.join("tests/data")),
        ("header", root.join("ffi/include/siskin.h")),
        ("chat", models.join("smollm2.gguf")),
        ("vectors", models.join("minilm")),
        ("hears", models.join("whisper")),
    ];
    let told = paths.iter().map(|(name, path)| format!("-Dsiskin.{name}={}", path.display()));
    Ok(told.chain([format!("-Dsiskin.patience={PATIENCE}")]).collect())
}

/// Every file of tests is a class.
fn test_classes() -> Result<Vec<String>> {
    let root = shell::root().join("android/src/test/kotlin");
    let files = sources("src/test/kotlin", "Test.kt")?;
    let names = files.iter().filter_map(|path| path.strip_prefix(&root).ok());
    let names = names.map(|path| path.with_extension("").to_string_lossy().replace('/', "."));
    Ok(names.collect())
}

/// Runs Java, and fails where it says that the bridge broke a rule too.
fn run_strictly(command: &mut Command) -> Result {
    println!("$ {}", shown(command));
    let answer = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{}`: {error}", shown(command)))?;
    let said = String::from_utf8_lossy(&answer.stdout);
    println!("{said}");
    if let Some(rule) = BROKEN_RULES.iter().find(|rule| said.contains(**rule)) {
        return Err(format!("Java says `{rule}`: see above"));
    }
    if answer.status.success() { Ok(()) } else { Err("tests of the Android package failed".to_owned()) }
}

/// The Kotlin compiler, with no libraries but those it is given.
fn kotlinc(jars: &Jars, path: &str, out: &Path) -> Result<Command> {
    empty_folder(out)?;
    let compiler = jars.path(&["compile", "library"]);
    let mut command = program("java", &["-Xmx1g", "-cp", &compiler]);
    command.args(["org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect"]);
    command.args(["-jvm-target", "1.8", "-cp", path, "-d"]).arg(out);
    Ok(command)
}

/// Compiles the Java of a folder of `android/`.
fn java(out: &Path, path: &[&Path], folder: &str) -> Result {
    empty_folder(out)?;
    let mut command = program("javac", &["--release", "8", "-nowarn", "-Xlint:-options", "-d"]);
    command.arg(out);
    if let [path] = path {
        command.arg("-cp").arg(path);
    }
    run(command.args(sources(folder, ".java")?))
}
