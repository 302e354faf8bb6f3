//! Lets the system run programs of another machine, for as long as it is needed.

use super::machine::Machine;
use crate::shell::{Result, program, run, succeeds};
use std::fs;
use std::path::Path;

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";
/// What the system tells the programs of 64-bit Arm by.
const ARM64: &str = r"\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
const NAME: &str = "siskin-arm64";

/// What was changed, and is undone at the end.
pub(super) struct Emulator {
    mounted: bool,
    registered: bool,
}

impl Emulator {
    /// Makes the system run the programs of `machine`.
    pub(super) fn begin(machine: &Machine) -> Result<Self> {
        let mut emulator = Self { mounted: false, registered: false };
        if runs(machine) {
            return Ok(emulator);
        }
        if machine.name != "arm64" {
            return Err(format!("this machine runs no programs of {}", machine.name));
        }
        if !Path::new(FOLDER).join("register").exists() {
            run(&mut program("mount", &["-t", "binfmt_misc", "binfmt_misc", FOLDER]))?;
            emulator.mounted = true;
        }
        // With F the emulator is opened here, so that no root needs to hold it.
        let line = format!(":{NAME}:M::{ARM64}:{MASK}:{}:F", machine.emulator);
        let place = format!("{FOLDER}/register");
        fs::write(&place, line).map_err(|error| format!("{place}: {error}"))?;
        emulator.registered = true;
        match runs(machine) {
            true => Ok(emulator),
            false => Err(format!("programs of {} do not run with {}", machine.name, machine.emulator)),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Where this fails, the emulator stays registered until the machine starts again.
        if self.registered {
            let _ = fs::write(format!("{FOLDER}/{NAME}"), "-1");
        }
        if self.mounted {
            let _ = run(&mut program("umount", &[FOLDER]));
        }
    }
}

fn runs(machine: &Machine) -> bool {
    succeeds(&mut program("arch-test", &[machine.name]))
}
