//! Rust static libraries for Android's ABIs.

use super::{BuildFolders, copy, make_folder};
use crate::cross_compile;
use crate::library::Edition;
use crate::shell::{Result, output, program, run};
use crate::tools;
use std::path::{Path, PathBuf};

/// An Android ABI.
pub(super) struct Abi {
    /// Android's name.
    pub(super) name: &'static str,
    /// Rust's target triple.
    triple: &'static str,
    /// Clang's target triple; the API level follows.
    pub(super) clang: &'static str,
    /// Class and machine of its object files, as `readelf` prints them.
    elf: [&'static str; 2],
}

pub(super) const ABIS: [Abi; 3] = [
    Abi {
        name: "arm64-v8a",
        triple: "aarch64-linux-android",
        clang: "aarch64-linux-android",
        elf: ["ELF64", "AArch64"],
    },
    Abi {
        name: "armeabi-v7a",
        triple: "armv7-linux-androideabi",
        clang: "armv7a-linux-androideabi",
        elf: ["ELF32", "ARM"],
    },
    Abi {
        name: "x86_64",
        triple: "x86_64-linux-android",
        clang: "x86_64-linux-android",
        elf: ["ELF64", "Advanced Micro Devices X86-64"],
    },
];

/// Builds an edition of the library for one ABI. Panics unwind, and are caught at the C interface.
pub(super) fn static_library(place: &BuildFolders, abi: &Abi, edition: &Edition) -> Result<PathBuf> {
    tools::debian(&cross_compile::needs())?;
    let mut command = cross_compile::cargo("rustc", abi.triple, cross_compile::STANDARD);
    command.arg(cross_compile::SMALL).args(edition.features);
    command.args(["--profile", "ship", "--package", "siskin-ffi", "--lib", "--crate-type", "staticlib"]);
    run(&mut command)?;
    let built = cross_compile::folder().join(abi.triple).join("ship/libsiskin_ffi.a");
    check_objects(&built, abi)?;
    let kept = place.at(&format!("static{}", edition.suffix)).join(abi.name);
    make_folder(&kept)?;
    let kept = kept.join("libsiskin.a");
    copy(&built, &kept)?;
    Ok(kept)
}

/// Checks that the archive has objects, and that all of them are for the ABI.
fn check_objects(archive: &Path, abi: &Abi) -> Result {
    let headers = output(program("readelf", &["-h", "-W"]).arg(archive))?;
    for (field, expected) in [("Class:", abi.elf[0]), ("Machine:", abi.elf[1])] {
        let values: Vec<_> =
            headers.lines().filter_map(|line| line.trim().strip_prefix(field)).map(str::trim).collect();
        match values.iter().find(|value| **value != expected) {
            _ if values.is_empty() => return Err(format!("{}: contains no objects", archive.display())),
            Some(other) => return Err(format!("{}: expected {expected}, found {other}", archive.display())),
            None => {}
        }
    }
    Ok(())
}
