//! `android`: the package for Android apps, and its tests on this machine's JVM.
//!
//! Everything is built in `target/android/`. With an NDK, the package has libraries for every Android ABI. Without one,
//! only static Rust libraries are built for them. The tests run a package with a library for this machine.

mod bridge;
mod jars;
mod kotlin;
mod ndk;
mod package;
mod rust;

use crate::Subcommand;
use crate::library::{self, Edition};
use crate::shell::{self, Result, program, run};
use crate::tools;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "android",
    usage: "[--host | --grammar]",
    about: "build the Android package for every ABI (needs an NDK), and test it on this machine's JVM; \
        --host: only for this machine's JVM; --grammar: the package siskin-grammar, with JSON Schema and grammars and \
        without other formats than .siskin",
    run: android,
};

fn android(arguments: &[String]) -> Result {
    let edition = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(&library::COMPLETE),
        ["--grammar"] => Some(&library::GRAMMAR),
        ["--host"] => None,
        _ => return Err(format!("usage: cargo xtask android {}", SUBCOMMAND.usage)),
    };
    need_tools()?;
    let place = check()?;
    edition.map_or(Ok(()), |edition| devices(&place, edition))
}

/// Ensures that Java, Maven (which downloads jars) and C compilers are installed.
pub(crate) fn need_tools() -> Result {
    let mut needs = Vec::new();
    if !shell::succeeds(&mut program("javac", &["-version"])) {
        needs.push(("/usr/bin/javac".to_owned(), "openjdk-17-jdk-headless"));
    }
    if !shell::succeeds(&mut program("mvn", &["-version"])) {
        needs.push(("/usr/bin/mvn".to_owned(), "maven"));
    }
    tools::debian(&needs)?;
    let version = shell::output(&mut program("javac", &["-version"]))?;
    let major =
        version.trim().strip_prefix("javac ").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if major.is_some_and(|major| major < 17) {
        return Err(format!("{} is too old; set PATH to a JDK 17 or later", version.trim()));
    }
    tools::c_compilers().map(drop)
}

/// The folders of the build.
pub(crate) struct BuildFolders {
    /// Cargo's target folder.
    target: PathBuf,
    /// `target/android`.
    folder: PathBuf,
}

impl BuildFolders {
    fn new() -> Result<Self> {
        let target = shell::built("");
        let folder = target.join("android");
        make_folder(&folder)?;
        Ok(Self { target, folder })
    }

    /// Returns a path below `target/android`.
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Builds this machine's static library and copies it to a file called `name`.
    fn static_library(&self, name: &str, testing: bool) -> Result<PathBuf> {
        shell::c_library(testing)?;
        let kept = self.at(name);
        copy(&self.target.join("debug/libsiskin_ffi.a"), &kept)?;
        Ok(kept)
    }

    /// Creates the small models that the C programs use too.
    fn models(&self) -> Result<PathBuf> {
        let models = self.at("models");
        make_folder(&models)?;
        run(shell::member("c_models").arg(&models))?;
        Ok(models)
    }
}

/// Builds the package for this machine, and runs all tests.
pub(crate) fn check() -> Result<BuildFolders> {
    let place = BuildFolders::new()?;
    let jars = jars::Jars::bring(&place)?;
    let models = place.models()?;
    let shipped = place.static_library("libsiskin.a", false)?;
    let testing = place.static_library("libsiskin-testing.a", true)?;
    let host = bridge::host(&place, &shipped, "host", false)?;
    let tested = bridge::host(&place, &testing, "testing", true)?;
    let classes = kotlin::compile(&place, &jars)?;
    let package = package::package(&place, &classes, "host", &[("host", &host)])?;
    kotlin::sample(&place, &jars, &classes)?;
    let tested = kotlin::Tested { package: &package, library: &tested, models };
    kotlin::example(&jars, &tested, &place.at("example"))?;
    kotlin::test(&place, &jars, &tested)?;
    Ok(place)
}

/// Builds libraries for Android's ABIs, and the package if there is an NDK to link them.
fn devices(place: &BuildFolders, edition: &Edition) -> Result {
    let found = ndk::Ndk::find()?;
    let mut libraries = Vec::new();
    for abi in &rust::ABIS {
        let archive = rust::static_library(place, abi, edition)?;
        println!("{}: {}, {}", abi.name, archive.display(), size(&archive));
        if let Some(ndk) = &found {
            libraries.push((abi.name, bridge::device(place, ndk, abi, edition, &archive)?));
        }
    }
    if found.is_none() {
        println!(
            "No NDK found: built static libraries only. Set ANDROID_NDK_HOME to an NDK, or ANDROID_HOME to an SDK \
            that contains one, and run this command again to build the package for all ABIs."
        );
        return Ok(());
    }
    let jni: Vec<_> = libraries.iter().map(|(name, path)| (*name, path.as_path())).collect();
    let name = format!("all{}", edition.suffix);
    let package = package::package(place, &place.at("classes"), &name, &jni)?;
    package::repository(place, edition, &package.archive)
}

fn make_folder(path: &Path) -> Result {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Creates the folder, or empties it.
fn empty_folder(path: &Path) -> Result {
    if path.exists() {
        std::fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    make_folder(path)
}

fn copy(from: &Path, to: &Path) -> Result {
    std::fs::copy(from, to).map_err(|error| format!("{}: {error}", to.display())).map(drop)
}

fn write(path: &Path, text: &str) -> Result {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns files with this extension below a folder of `android/`, sorted by name.
fn sources(folder: &str, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![shell::root().join("android").join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the formatted size of a file.
fn size(path: &Path) -> String {
    let bytes = std::fs::metadata(path).map_or(0, |data| data.len());
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
