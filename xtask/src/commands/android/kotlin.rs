//! Compiles the Kotlin and Java classes of the package and the sample, and runs the tests.

use super::jars::Jars;
use super::package::AndroidPackage;
use super::{BuildFolders, empty_folder, sources};
use crate::shell::{self, Result, output, program, shown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Compiler flags of the package's classes: Java 8, as older Android versions need, and explicit visibilities.
const STRICT: [&str; 3] = ["-Xjdk-release=1.8", "-Xexplicit-api=strict", "-Werror"];
/// The maximum median time of cancellations, in milliseconds. The target is below 20; the check must not fail on busy
/// cores, and a prompt that is not canceled takes seconds.
const CANCEL_MILLISECONDS: &str = "100";
/// Messages of `-Xcheck:jni` if the bridge violates a JNI rule.
const BROKEN_RULES: [&str; 3] = ["WARNING in native method", "FATAL ERROR in native method", "WARNING: JNI"];

/// What is tested.
pub(super) struct Tested<'a> {
    pub(super) package: &'a AndroidPackage,
    /// The bridge with test functions.
    pub(super) library: &'a Path,
    /// The folder of the small models.
    pub(super) models: PathBuf,
}

/// Compiles the package's classes.
pub(super) fn compile(place: &BuildFolders, jars: &Jars) -> Result<PathBuf> {
    let (stubs, classes) = (place.at("stubs"), place.at("classes"));
    java(&stubs, "", "src/stubs/java")?;
    let path = format!("{}:{}", stubs.display(), jars.path(&["library", "android"]));
    let mut compiler = kotlinc(jars, &path, &classes)?;
    compiler.args(STRICT).args(["-module-name", "siskin"]);
    quietly(
        compiler.args(["android/src/main/kotlin", "android/src/android/kotlin"]),
        "the package's Kotlin",
    )?;
    Ok(classes)
}

/// Compiles the sample's classes, as a check.
pub(super) fn sample(place: &BuildFolders, jars: &Jars, classes: &Path) -> Result {
    let libraries = jars.path(&["library", "android"]);
    let path = format!("{}:{}:{libraries}", place.at("stubs").display(), classes.display());
    let mut compiler = kotlinc(jars, &path, &place.at("sample"))?;
    compiler.args(["-Werror", "-module-name", "sample"]);
    quietly(compiler.arg("android/sample/app/src/main/kotlin"), "the sample's Kotlin")
}

/// Compiles the example program and runs it on a small model.
pub(super) fn example(jars: &Jars, tested: &Tested<'_>, classes: &Path) -> Result {
    let path = format!("{}:{}", tested.package.classes().display(), jars.path(&["library"]));
    let mut compiler = kotlinc(jars, &path, classes)?;
    quietly(compiler.args(["-Werror", "examples/kotlin/Chat.kt"]), "the example program")?;
    let mut java = program("java", &["-cp", &format!("{}:{path}", classes.display())]);
    java.arg(format!("-Dsiskin.library={}", tested.package.library("host").display())).arg("ChatKt");
    shell::answer(java.arg(tested.models.join("chat.siskin")), "Why?\n").map(drop)
}

/// Compiles the tests and runs them with all JNI checks of Java: most with the package as it ships, those that need
/// test functions with the library that has them.
pub(super) fn test(place: &BuildFolders, jars: &Jars, tested: &Tested<'_>) -> Result {
    let (stubs, fakes, tests) = (place.at("stubs"), place.at("fakes"), place.at("tests"));
    let classes = tested.package.classes();
    let libraries = jars.path(&["library"]);
    java(&fakes, &format!("{}:{}:{libraries}", stubs.display(), classes.display()), "src/test/java")?;
    let [stubs, fakes, tests, classes] =
        [&stubs, &fakes, &tests, &classes].map(|path| path.display().to_string());
    let path = format!("{stubs}:{fakes}:{classes}:{}", jars.path(&["library", "test", "android"]));
    let mut compiler = kotlinc(jars, &path, Path::new(&tests))?;
    compiler.arg(format!("-Xfriend-paths={classes}")).args(["-module-name", "siskin_test"]);
    compiler.arg(format!("-Xplugin={}", jars.path(&["plugin"])));
    quietly(compiler.arg("android/src/test/kotlin"), "the tests' Kotlin")?;
    let (with_testing, plain) = test_classes()?;
    let shipped = tested.package.library("host");
    for (library, names) in [(shipped.as_path(), plain), (tested.library, with_testing)] {
        let mut machine = program("java", &["-ea", "-Xcheck:jni", "-Xmx512m"]);
        machine.args(["--add-opens", "java.base/java.io=ALL-UNNAMED", "-cp", &format!("{tests}:{path}")]);
        machine.args(properties(tested, library)?).arg("org.junit.runner.JUnitCore").args(names);
        run_strictly(machine.env("RUST_BACKTRACE", "0"))?;
    }
    Ok(())
}

/// Returns the system properties with the files and folders for the tests.
fn properties(tested: &Tested<'_>, library: &Path) -> Result<Vec<String>> {
    let (root, models) = (shell::root(), shell::models()?);
    let paths = [
        ("library", library.to_owned()),
        ("models", tested.models.clone()),
        ("package", tested.package.archive.clone()),
        ("data", root.join("tests/data")),
        ("header", root.join("ffi/include/siskin.h")),
        ("smollm2", models.join("smollm2.gguf")),
        ("minilm", models.join("minilm")),
        ("whisper", models.join("whisper")),
    ];
    let paths = paths.iter().map(|(name, path)| format!("-Dsiskin.{name}={}", path.display()));
    Ok(paths.chain([format!("-Dsiskin.cancel.milliseconds={CANCEL_MILLISECONDS}")]).collect())
}

/// Returns the test classes, one per file: those that need test functions, and the others.
fn test_classes() -> Result<(Vec<String>, Vec<String>)> {
    let root = shell::root().join("android/src/test/kotlin");
    let (mut with_testing, mut plain) = (Vec::new(), Vec::new());
    for file in sources("src/test/kotlin", "Test.kt")? {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let path = file.strip_prefix(&root).unwrap_or(&file).with_extension("");
        let list = if text.contains("NativeTesting") { &mut with_testing } else { &mut plain };
        list.push(path.to_string_lossy().replace('/', "."));
    }
    Ok((with_testing, plain))
}

/// Runs Java. JNI rule violations are errors too.
fn run_strictly(command: &mut Command) -> Result {
    println!("$ {}", shown(command));
    let answer = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{}`: {error}", shown(command)))?;
    let printed = String::from_utf8_lossy(&answer.stdout);
    println!("{printed}");
    if let Some(rule) = BROKEN_RULES.iter().find(|rule| printed.contains(**rule)) {
        return Err(format!("`-Xcheck:jni` reports `{rule}`; see above"));
    }
    if answer.status.success() { Ok(()) } else { Err("tests of the Android package failed".to_owned()) }
}

/// Runs the compiler, and prints only `what` if it succeeds.
fn quietly(compiler: &mut Command, what: &str) -> Result {
    let begun = Instant::now();
    output(compiler)?;
    println!("compiled {what} in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the Kotlin compiler with the given class path only.
fn kotlinc(jars: &Jars, path: &str, out: &Path) -> Result<Command> {
    empty_folder(out)?;
    let compiler = jars.path(&["compile", "library"]);
    let mut command = program("java", &["-Xmx1g", "-cp", &compiler]);
    command.args(["org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect"]);
    command.args(["-jvm-target", "1.8", "-cp", path, "-d"]).arg(out);
    Ok(command)
}

/// Compiles the Java sources of a folder of `android/` with the given class path.
fn java(out: &Path, path: &str, folder: &str) -> Result {
    empty_folder(out)?;
    let mut command = program("javac", &["--release", "8", "-nowarn", "-Xlint:-options", "-d"]);
    command.arg(out).args(["-cp", path]);
    quietly(command.args(sources(folder, ".java")?), folder)
}
