//! Static libraries for Apple's systems. Building them needs nothing from Apple; linking them does.

use crate::cross_compile;
use crate::shell::{self, Result, run};
use crate::tools;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets: iPhone and iPad, their simulator on Apple silicon, and Macs of both architectures.
pub(super) const TARGETS: [&str; 4] =
    ["aarch64-apple-ios", "aarch64-apple-ios-sim", "aarch64-apple-darwin", "x86_64-apple-darwin"];
/// The minimum system versions in `ios/Package.swift`.
const OLDEST: [(&str, &str); 2] =
    [("IPHONEOS_DEPLOYMENT_TARGET", "17.0"), ("MACOSX_DEPLOYMENT_TARGET", "14.0")];

/// Functions for which Apple requires reasons, by the category that `PrivacyInfo.xcprivacy` must then declare.
const REASONS: [(&str, &[&str]); 3] = [
    (
        "NSPrivacyAccessedAPICategoryFileTimestamp",
        &[
            "stat",
            "lstat",
            "fstat",
            "fstatat",
            "getattrlist",
            "fgetattrlist",
            "getattrlistat",
            "getattrlistbulk",
        ],
    ),
    ("NSPrivacyAccessedAPICategorySystemBootTime", &["mach_absolute_time", "mach_continuous_time"]),
    ("NSPrivacyAccessedAPICategoryDiskSpace", &["statfs", "fstatfs", "statvfs", "fstatvfs"]),
];
/// Network functions, which our libraries must not use.
const NETWORK: [&str; 6] = ["socket", "connect", "bind", "listen", "getaddrinfo", "sendto"];

/// The level of optimization.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BuildPurpose {
    /// As shipped.
    Shipping,
    /// The same, with JSON Schema and grammars.
    ShippingWithGrammar,
    /// To check that it builds.
    Checking,
}

impl BuildPurpose {
    /// Returns the folder of the libraries.
    pub(super) fn folder(self) -> &'static str {
        if self == Self::ShippingWithGrammar { "libraries-grammar" } else { "libraries" }
    }

    /// Returns the suffix of the names of packages.
    pub(super) fn suffix(self) -> &'static str {
        if self == Self::ShippingWithGrammar { "-grammar" } else { "" }
    }
}

/// Ensures that the tools for [`BuildPurpose::Shipping`] are installed.
pub(crate) fn need_tools() -> Result {
    if cfg!(target_os = "macos") { Ok(()) } else { tools::debian(&cross_compile::needs()) }
}

/// Builds the library for a target, checks its imports, and returns its path.
pub(super) fn build(target: &str, folder: &Path, purpose: BuildPurpose) -> Result<PathBuf> {
    let mut command = cargo_for("rustc", target, purpose)?;
    command.args(["--crate-type", "staticlib"]);
    match purpose {
        BuildPurpose::Checking => {
            command.args(cross_compile::optimized_at(0)).arg("--config=profile.dev.debug=false");
        }
        BuildPurpose::Shipping | BuildPurpose::ShippingWithGrammar => {
            command.args(["--profile", "ship"]);
            command.args((!cfg!(target_os = "macos")).then_some(cross_compile::SMALL));
            let grammar = purpose == BuildPurpose::ShippingWithGrammar;
            command.args(grammar.then_some("--features=grammar"));
        }
    }
    run(&mut command)?;
    let profile = if purpose == BuildPurpose::Checking { "debug" } else { "ship" };
    let place = cross_compile::folder().join(target);
    let library = place.join(profile).join("libsiskin_ffi.a");
    let bytes = fs::read(&library).map_err(|error| format!("{}: {error}", library.display()))?;
    check(&bytes, purpose).map_err(|error| format!("{target}: {error}"))?;
    if purpose == BuildPurpose::Checking {
        println!("{target}: builds, with every function of the header");
        return Ok(library);
    }
    let place = folder.join(purpose.folder()).join(target);
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let place = place.join("libsiskin.a");
    fs::copy(&library, &place).map_err(|error| format!("{}: {error}", place.display()))?;
    println!("{target}: {} bytes, {}", bytes.len(), place.display());
    Ok(place)
}

/// Checks that the library compiles for a target.
pub(crate) fn compiles(target: &str) -> Result {
    run(&mut cargo_for("check", target, BuildPurpose::Checking)?)
}

/// Returns `cargo COMMAND` for the library on a target.
fn cargo_for(command: &str, target: &str, purpose: BuildPurpose) -> Result<Command> {
    let mut command = if purpose == BuildPurpose::Checking || cfg!(target_os = "macos") {
        cross_compile::cargo_with_std(command, target, cross_compile::STANDARD)?
    } else {
        cross_compile::cargo(command, target, cross_compile::STANDARD)
    };
    command.args(["--package", "siskin-ffi", "--lib"]).envs(OLDEST);
    Ok(command)
}

/// Checks that a library has every function of the header. If unused code is stripped, also checks that it has no
/// network function and no function that needs a reason which the privacy manifest lacks.
fn check(library: &[u8], purpose: BuildPurpose) -> Result {
    let names = names(library);
    let exports = text("ffi/exports.txt")?;
    let missing: Vec<_> = exports.lines().filter(|name| !names.contains(name)).collect();
    if !missing.is_empty() {
        return Err(format!("the library has no {}", missing.join(", ")));
    }
    if purpose == BuildPurpose::Checking {
        return Ok(());
    }
    if let Some(name) = NETWORK.iter().find(|name| names.contains(*name)) {
        return Err(format!("the library uses `{name}`, which is of the network"));
    }
    let manifest = text("ios/Sources/Siskin/PrivacyInfo.xcprivacy")?;
    unexplained(&names, &manifest).map_or(Ok(()), |(name, category)| {
        Err(format!("the library uses `{name}`; name {category} with its reasons in PrivacyInfo.xcprivacy"))
    })
}

/// Returns a function that is used and whose category the manifest does not declare.
fn unexplained<'a>(names: &BTreeSet<&str>, manifest: &str) -> Option<(&'a str, &'a str)> {
    let open = REASONS.iter().filter(|(category, _)| !manifest.contains(category));
    open.flat_map(|(category, all)| all.iter().map(move |name| (*name, *category)))
        .find(|(name, _)| names.contains(name))
}

/// Returns the names in the symbol tables: each begins with an underscore and ends with a zero byte. A suffix after a
/// dollar sign is a variant of the same function.
fn names(library: &[u8]) -> BTreeSet<&str> {
    let texts = library.split(|byte| *byte == 0).filter_map(|bytes| std::str::from_utf8(bytes).ok());
    texts.filter_map(|text| text.strip_prefix('_')?.split('$').next()).collect()
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(shell::root().join(path)).map_err(|error| format!("{path}: {error}"))
}

/// Returns the output folder of this command.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = shell::built("ios");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apple_wants_reasons_for_is_found() {
        let bytes = b"\x01\xff\0_fstat$INODE64\0_statfs\0_siskin_version\0__ZN4stat\0connect\0";
        let names = names(bytes);
        assert!(names.contains("fstat") && names.contains("siskin_version") && !names.contains("connect"));
        let file = "NSPrivacyAccessedAPICategoryFileTimestamp";
        assert_eq!(unexplained(&names, file).map(|found| found.0), Some("statfs"));
        assert_eq!(unexplained(&names, &format!("{file} NSPrivacyAccessedAPICategoryDiskSpace")), None);
        assert_eq!(unexplained(&names, "").map(|found| found.0), Some("fstat"));
    }
}
