//! The Android NDK, if installed.

use super::rust::Abi;
use crate::env;
use crate::shell::{Result, program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The minimum API level of the package: Android 5.0.
const OLDEST: u32 = 21;

/// An NDK for this system.
pub(super) struct Ndk {
    clang: PathBuf,
}

impl Ndk {
    /// Returns the NDK of `ANDROID_NDK_HOME`, or the newest below `ANDROID_HOME`, or `None` if neither is set.
    pub(super) fn find() -> Result<Option<Self>> {
        let home = match (env::android_ndk(), env::android_sdk()) {
            (Some(ndk), _) => PathBuf::from(ndk),
            (None, Some(sdk)) => match newest(&PathBuf::from(sdk).join("ndk")) {
                Some(ndk) => ndk,
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let clang = clang(&home, std::env::consts::OS);
        if clang.exists() {
            println!("NDK: {}", home.display());
            return Ok(Some(Self { clang }));
        }
        Err(format!(
            "{} does not exist; set ANDROID_NDK_HOME to the folder of an NDK for this system, version 23 or later",
            clang.display()
        ))
    }

    /// Returns its compiler and linker for an ABI.
    pub(super) fn clang(&self, abi: &Abi) -> Command {
        let mut command = program(&self.clang, &[]);
        command.arg(format!("--target={}{OLDEST}", abi.clang));
        command
    }
}

/// Returns the path of clang in an NDK for a host system. NDKs for macOS are universal despite the folder's name.
fn clang(home: &Path, system: &str) -> PathBuf {
    let (host, name) = match system {
        "macos" => ("darwin-x86_64", "clang"),
        "windows" => ("windows-x86_64", "clang.exe"),
        _ => ("linux-x86_64", "clang"),
    };
    home.join("toolchains/llvm/prebuilt").join(host).join("bin").join(name)
}

/// Returns the subfolder with the highest version as its name.
fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let version = |path: &PathBuf| -> Vec<u32> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.split('.').map_while(|part| part.parse().ok()).collect()
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clang_is_found_on_each_host() {
        let prebuilt = Path::new("ndk/toolchains/llvm/prebuilt");
        for (system, path) in [
            ("linux", "linux-x86_64/bin/clang"),
            ("macos", "darwin-x86_64/bin/clang"),
            ("windows", "windows-x86_64/bin/clang.exe"),
        ] {
            assert_eq!(clang(Path::new("ndk"), system), prebuilt.join(path));
        }
    }

    #[test]
    fn the_highest_version_is_the_newest() {
        let folder = std::env::temp_dir().join("siskin-ndk-versions");
        for name in ["9.2.1", "26.1.10909125", "26.3.1"] {
            std::fs::create_dir_all(folder.join(name)).expect("the folder is created");
        }
        assert_eq!(newest(&folder), Some(folder.join("26.3.1")));
        assert_eq!(newest(&folder.join("nothing")), None);
    }
}
