//! `ios`: the Swift package: its tests, the libraries for Apple's systems, and on a Mac the XCFramework.

use super::ios_libraries::{self, BuildPurpose, TARGETS, folder};
use super::ios_root::Swift;
use crate::Subcommand;
use crate::shell::{self, Result, output, program, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "ios",
    usage: "[test | libraries [--grammar] [TARGET]… | xcframework [--grammar]]",
    about: "test the Swift package, build the static libraries for Apple's systems; on a Mac, the XCFramework; \
        --grammar: with JSON Schema and grammars",
    run: ios,
};

/// The packages that are built: the one that ships, and an app that uses it.
const PACKAGES: [&str; 2] = ["ios", "ios/Sample"];
/// The example program.
const EXAMPLE: &str = "examples/swift";
/// The target that `cargo xtask test` builds the library for.
const CHECKED: &str = "aarch64-apple-ios";
/// The name of the XCFramework, here and in `ios/Package.swift`.
const FRAMEWORK: &str = "SiskinLibrary.xcframework";

fn ios(arguments: &[String]) -> Result {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => {
            if cfg!(target_os = "macos") {
                return xcframework(BuildPurpose::Shipping).and_then(|()| tests(&need_tools()?));
            }
            tests(&need_tools()?)?;
            libraries(&TARGETS, BuildPurpose::Shipping)
        }
        ["test"] => tests(&need_tools()?),
        ["libraries", "--grammar", chosen @ ..] => libraries(chosen, BuildPurpose::ShippingWithGrammar),
        ["libraries", chosen @ ..] => libraries(chosen, BuildPurpose::Shipping),
        ["xcframework", "--grammar"] => xcframework(BuildPurpose::ShippingWithGrammar),
        ["xcframework"] => xcframework(BuildPurpose::Shipping),
        _ => Err(format!("usage: cargo xtask ios {}", SUBCOMMAND.usage)),
    }
}

/// Finds Swift, or installs it if possible.
pub(crate) fn need_tools() -> Result<Swift> {
    Swift::find(&folder()?)
}

/// Checks that the library compiles for phones; `all`: also that it has every function of the header.
pub(crate) fn check_library(all: bool) -> Result {
    if all {
        return ios_libraries::build(CHECKED, &folder()?, BuildPurpose::Checking).map(drop);
    }
    ios_libraries::compiles(CHECKED)?;
    println!("left out: the functions of the library for {CHECKED}; `cargo xtask test --all` looks for them");
    Ok(())
}

/// Builds the libraries of targets; of all if none is given.
fn libraries(targets: &[&str], purpose: BuildPurpose) -> Result {
    let targets = if targets.is_empty() { &TARGETS } else { targets };
    if let Some(unknown) = targets.iter().find(|target| !TARGETS.contains(target)) {
        return Err(format!("no target `{unknown}`; there are {}", TARGETS.join(", ")));
    }
    ios_libraries::need_tools()?;
    targets.iter().try_for_each(|target| ios_libraries::build(target, &folder()?, purpose).map(drop))
}

/// Builds the packages, with warnings as errors, and runs their tests.
pub(crate) fn tests(swift: &Swift) -> Result {
    let folder = folder()?;
    let models = folder.join("models");
    fs::create_dir_all(&models).map_err(|error| format!("{}: {error}", models.display()))?;
    run(shell::member("c_models").arg(&models))?;
    let library = (!cfg!(target_os = "macos")).then(|| library(&folder)).transpose()?;
    let sample = folder.join("swift").join(PACKAGES[1]);
    if sample.exists() {
        // Incremental builds would link its tests to a library whose structs have changed since.
        fs::remove_dir_all(&sample).map_err(|error| format!("{}: {error}", sample.display()))?;
    }
    for package in PACKAGES {
        let test = ["test", "-Xswiftc", "-warnings-as-errors"];
        run(&mut swift_command(swift, package, &test, &folder, library.as_deref()))?;
    }
    example(swift, &folder, library.as_deref())
}

/// Builds the example program and runs it on a small model.
fn example(swift: &Swift, folder: &Path, library: Option<&Path>) -> Result {
    run(&mut swift_command(swift, EXAMPLE, &["build", "-Xswiftc", "-warnings-as-errors"], folder, library))?;
    let mut command =
        swift_command(swift, EXAMPLE, &["run", "-Xswiftc", "-warnings-as-errors"], folder, library);
    command.arg("Chat").arg(folder.join("models/chat.siskin"));
    shell::answer(&mut command, "Why?\n").map(drop)
}

fn swift_command(
    swift: &Swift,
    package: &str,
    words: &[&str],
    folder: &Path,
    library: Option<&Path>,
) -> Command {
    let root = shell::root();
    let shown = |path: PathBuf| path.display().to_string();
    let mut variables = vec![
        ("SISKIN_TEST_MODELS", shown(folder.join("models"))),
        ("SISKIN_REAL_MODELS", shown(root.join(".models"))),
        ("SISKIN_TEST_DATA", shown(root.join("tests/data"))),
        ("RUST_BACKTRACE", "0".to_owned()),
    ];
    if let Some(library) = library {
        variables.push(("LD_LIBRARY_PATH", library.display().to_string()));
    }
    let mut command = swift.command(&[&root, folder], &variables);
    command.args(words).args(["--package-path", package]);
    command.arg("--scratch-path").arg(folder.join("swift").join(package));
    if let Some(library) = library {
        command.arg("-Xlinker").arg(format!("-L{}", library.display()));
    }
    command
}

/// Builds the library for tests under the names that programs link, and returns its folder.
fn library(folder: &Path) -> Result<PathBuf> {
    shell::c_library(true)?;
    let place = folder.join("lib");
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    for name in ["libsiskin.so", "libsiskin.so.0"] {
        let copy = place.join(name);
        // Processes that have the old file open must not see it change.
        let _ = fs::remove_file(&copy);
        let built = folder.with_file_name("debug").join("libsiskin_ffi.so");
        fs::copy(&built, &copy).map_err(|error| format!("{}: {error}", built.display()))?;
    }
    Ok(place)
}

/// Joins the libraries of all targets into an XCFramework, and prints what a release needs.
fn xcframework(purpose: BuildPurpose) -> Result {
    if !cfg!(target_os = "macos") {
        let advice = "`cargo xtask ios libraries` builds all that goes into it";
        return Err(format!("an XCFramework is made by Xcode, on a Mac; {advice}"));
    }
    ios_libraries::need_tools()?;
    let folder = folder()?;
    let built = |target: &str| ios_libraries::build(target, &folder, purpose);
    let (phone, simulator) = (built(TARGETS[0])?, built(TARGETS[1])?);
    let macs = folder.join(purpose.folder()).join("macos/libsiskin.a");
    fs::create_dir_all(folder.join(purpose.folder()).join("macos"))
        .map_err(|error| format!("{}: {error}", macs.display()))?;
    let mut join = program("lipo", &["-create"]);
    run(join.args([built(TARGETS[2])?, built(TARGETS[3])?]).arg("-output").arg(&macs))?;

    let framework = shell::root().join("ios").join(FRAMEWORK);
    if framework.exists() {
        fs::remove_dir_all(&framework).map_err(|error| format!("{}: {error}", framework.display()))?;
    }
    let mut assemble = program("xcodebuild", &["-create-xcframework"]);
    for library in [&phone, &simulator, &macs] {
        assemble.arg("-library").arg(library).args(["-headers", "ffi/include"]);
    }
    run(assemble.arg("-output").arg(&framework))?;
    release(&framework, &folder, purpose)
}

/// Packs the XCFramework, and writes the manifest for the root of a release.
fn release(framework: &Path, folder: &Path, purpose: BuildPurpose) -> Result {
    let name = format!("{FRAMEWORK}{}.zip", purpose.suffix());
    let archive = folder.join(&name);
    let _ = fs::remove_file(&archive);
    let mut pack = program("ditto", &["-c", "-k", "--keepParent"]);
    run(pack.arg(framework).arg(&archive))?;
    let mut sum = program("swift", &["package", "--package-path", "ios", "compute-checksum"]);
    let sum = output(sum.arg(&archive))?;
    let place = shell::root().join("ios/Package.swift");
    let manifest = fs::read_to_string(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let released = folder.join(format!("Package{}.swift", purpose.suffix()));
    let url = format!("https://github.com/siskin-ai/siskin/releases/download/v{}", env!("CARGO_PKG_VERSION"));
    let text = released_manifest(&manifest, &format!("{url}/{name}"), sum.trim())?;
    fs::write(&released, text).map_err(|error| format!("{}: {error}", released.display()))?;
    println!("{}\n  checksum {}", archive.display(), sum.trim());
    println!("{}\n  goes to the root of the release's tag, and the archive to its files", released.display());
    Ok(())
}

/// Returns the package's manifest for the root of the repository, with the XCFramework of a release.
fn released_manifest(manifest: &str, url: &str, checksum: &str) -> Result<String> {
    let changes = [
        (r#"let sources = "Sources""#, r#"let sources = "ios/Sources""#.to_owned()),
        (r#"let tests = "Tests""#, r#"let tests = "ios/Tests""#.to_owned()),
        (
            r#"path: "SiskinLibrary.xcframework""#,
            format!("\n    url: \"{url}\",\n    checksum: \"{checksum}\"\n"),
        ),
    ];
    let mut text = manifest.to_owned();
    for (old, new) in changes {
        if text.matches(old).count() != 1 {
            return Err(format!(
                "ios/Package.swift has not `{old}` once; change xtask/src/commands/ios.rs with it"
            ));
        }
        text = text.replace(old, &new);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_names_its_archive() {
        let path = shell::root().join("ios/Package.swift");
        let manifest = fs::read_to_string(path).expect("the package has a manifest");
        let text = released_manifest(&manifest, "https://a/b.zip", "0123").expect("it has what is changed");
        for part in ["url: \"https://a/b.zip\"", "checksum: \"0123\"", "\"ios/Sources\"", "\"ios/Tests\""] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("path: \"Siskin"));
        assert!(released_manifest(&text, "", "").is_err());
    }
}
