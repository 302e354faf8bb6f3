//! The Android NDK, if installed.

use super::rust::Abi;
use crate::knobs;
use crate::shell::{Result, program};
use std::path::PathBuf;
use std::process::Command;

/// The minimum API level of the package: Android 5.0.
const OLDEST: u32 = 21;

/// An NDK for Linux.
pub(super) struct Ndk {
    clang: PathBuf,
}

impl Ndk {
    /// Returns the NDK of `ANDROID_NDK_HOME`, or the newest below `ANDROID_HOME`, or `None` if neither is set.
    pub(super) fn find() -> Result<Option<Self>> {
        let home = match (knobs::android_ndk(), knobs::android_sdk()) {
            (Some(ndk), _) => PathBuf::from(ndk),
            (None, Some(sdk)) => match newest(&PathBuf::from(sdk).join("ndk")) {
                Some(ndk) => ndk,
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let clang = home.join("toolchains/llvm/prebuilt/linux-x86_64/bin/clang");
        if clang.exists() {
            println!("NDK: {}", home.display());
            return Ok(Some(Self { clang }));
        }
        Err(format!(
            "{} is not there: ANDROID_NDK_HOME must be the folder of an NDK, 23 or later",
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

/// Returns the folder named with the highest version.
fn newest(folder: &std::path::Path) -> Option<PathBuf> {
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
    fn the_highest_version_is_the_newest() {
        let folder = std::env::temp_dir().join("siskin-ndk-versions");
        for name in ["9.2.1", "26.1.10909125", "26.3.1"] {
            std::fs::create_dir_all(folder.join(name)).expect("a folder is made");
        }
        assert_eq!(newest(&folder), Some(folder.join("26.3.1")));
        assert_eq!(newest(&folder.join("nothing")), None);
    }
}
