//! Registers an emulator with binfmt_misc, for as long as it is needed.

use crate::shell::{Result, program, run, succeeds};
use crate::tools;
use std::fs;
use std::path::Path;

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";
/// The number of files in its folder that are not entries: `register` and `status`.
const OWN: usize = 2;
/// The binfmt_misc pattern of 64-bit Arm programs.
const ARM64: &str = r"\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
/// Runs programs for 64-bit Arm.
pub(crate) const EMULATOR: &str = "/usr/bin/qemu-aarch64-static";
/// The prefix of entry names. The process id follows, so that entries of ended processes can be told from those in use.
const NAME: &str = "siskin-arm64-";
/// The prefix if the folder was mounted for the entry.
const MOUNTED: &str = "siskin-mounted-arm64-";

/// Changes that are undone on drop.
pub(crate) struct Emulator {
    mounted: bool,
    /// The name of the registered entry.
    registered: Option<String>,
}

impl Emulator {
    /// Makes programs of an architecture, by Debian's name, run here: installs and registers an emulator if needed.
    pub(crate) fn begin(architecture: &str) -> Result<Self> {
        tools::debian(&[("/usr/bin/arch-test".to_owned(), "arch-test")])?;
        let mut emulator = Self { mounted: false, registered: None };
        if runs(architecture) {
            return Ok(emulator);
        }
        if architecture != "arm64" {
            return Err(format!("programs of {architecture} do not run here"));
        }
        tools::debian(&[(EMULATOR.to_owned(), "qemu-user-static")])?;
        if !Path::new(FOLDER).join("register").exists() {
            run(&mut program("mount", &["-t", "binfmt_misc", "binfmt_misc", FOLDER]))?;
            emulator.mounted = true;
        }
        // With the flag F, the kernel opens the emulator now, so that it need not exist inside the root.
        let kind = if emulator.mounted { MOUNTED } else { NAME };
        let name = format!("{kind}{}", std::process::id());
        let line = format!(":{name}:M::{ARM64}:{MASK}:{EMULATOR}:F");
        let place = format!("{FOLDER}/register");
        fs::write(&place, line).map_err(|error| format!("{place}: {error}"))?;
        emulator.registered = Some(name);
        match runs(architecture) {
            true => Ok(emulator),
            false => Err(format!("programs of {architecture} do not run with {EMULATOR}")),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // If this fails, the next run tries again.
        if let Some(name) = &self.registered {
            let _ = fs::write(format!("{FOLDER}/{name}"), "-1");
        }
        if self.mounted {
            let _ = run(&mut program("umount", &[FOLDER]));
        }
    }
}

/// Removes the leftovers of killed runs. Has no effect without root permissions.
pub(crate) fn clear() {
    let left = clear_in(Path::new(FOLDER), |process| Path::new("/proc").join(process).exists());
    let needed = || fs::read_dir(FOLDER).is_ok_and(|entries| entries.count() > OWN);
    if left.iter().any(|name| name.starts_with(MOUNTED)) && !needed() {
        let _ = run(&mut program("umount", &[FOLDER]));
    }
}

/// Removes the entries of ended processes and returns their names.
fn clear_in(folder: &Path, lives: impl Fn(&str) -> bool) -> Vec<String> {
    // If the folder is not mounted, there are no leftovers.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left = names.filter(|name| {
        let process = name.strip_prefix(NAME).or_else(|| name.strip_prefix(MOUNTED));
        process.is_some_and(|process| !lives(process)) && fs::write(folder.join(name), "-1").is_ok()
    });
    left.collect()
}

fn runs(architecture: &str) -> bool {
    succeeds(&mut program("arch-test", &[architecture]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("siskin-entries-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder is made");
        let names =
            ["register", "qemu-aarch64", "siskin-arm64-7", "siskin-arm64-8", "siskin-mounted-arm64-9"];
        for name in names {
            fs::write(folder.join(name), "enabled").expect("a file is written");
        }
        let mut left = clear_in(&folder, |process| process == "8");
        left.sort();
        assert_eq!(left, ["siskin-arm64-7", "siskin-mounted-arm64-9"]);
        for name in names {
            let said = fs::read_to_string(folder.join(name)).expect("a file is read");
            assert_eq!(said == "-1", left.iter().any(|other| other == name), "{name}");
        }
        fs::remove_dir_all(&folder).expect("a folder is removed");
    }
}
