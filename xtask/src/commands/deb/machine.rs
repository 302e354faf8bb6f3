//! The architectures that packages are built for, and their builds.

use crate::shell::{self, Result, WITHOUT_TRACT, cargo, output, program, run};
use crate::systems::emulator::EMULATOR;
use crate::{cross_compile, library};
use std::path::PathBuf;
use std::process::Command;

/// An architecture, as named by Debian and by the compiler.
pub(super) struct DebArchitecture {
    pub(super) name: &'static str,
    /// The multiarch folder of its libraries, and prefix of its tools.
    pub(super) multiarch: &'static str,
    triple: &'static str,
    /// The packages of its compiler and C library for cross-compilation.
    cross: [&'static str; 2],
}

pub(super) const MACHINES: [DebArchitecture; 2] = [
    DebArchitecture {
        name: "amd64",
        multiarch: "x86_64-linux-gnu",
        triple: "x86_64-unknown-linux-gnu",
        cross: ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
    },
    DebArchitecture {
        name: "arm64",
        multiarch: "aarch64-linux-gnu",
        triple: "aarch64-unknown-linux-gnu",
        cross: ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    },
];

/// The profile of shipped builds.
const PROFILE: [&str; 2] = ["--profile", "ship"];
/// The command has the same import formats on every architecture: tract is too large for boards.
const COMMAND: [&str; 3] = ["--package", "siskin-cli", WITHOUT_TRACT];
/// Built one after the other: if built together with the static library, the shared one keeps code that only the static
/// one needs.
const LIBRARIES: [&str; 2] = ["staticlib", "cdylib"];

/// Returns Debian's name of this machine's architecture.
pub(super) fn own() -> Result<String> {
    let name = output(&mut program("dpkg", &["--print-architecture"]))
        .map_err(|error| format!("{error}. Debian packages are built on Debian and what is made of it"))?;
    Ok(name.trim().to_owned())
}

impl DebArchitecture {
    pub(super) fn is_own(&self) -> bool {
        own().is_ok_and(|own| own == self.name)
    }

    /// Returns the files that building on the machine `own` needs, and the packages that provide them.
    pub(super) fn needs(&self, own: &str) -> Result<Vec<(String, &'static str)>> {
        if self.name == own {
            return Ok(Vec::new());
        }
        let mut needs = cross_compile::needs();
        needs.push((format!("/usr/bin/{}-gcc", self.multiarch), self.cross[0]));
        needs.push((format!("/usr/{}/include/stdio.h", self.multiarch), self.cross[1]));
        if self.name == "arm64" {
            needs.push((EMULATOR.to_owned(), "qemu-user-static"));
        }
        Ok(needs)
    }

    /// Returns its C compiler.
    pub(super) fn compiler(&self) -> String {
        if self.is_own() { "cc".to_owned() } else { format!("{}-gcc", self.multiarch) }
    }

    /// Builds the library and the command, and returns their folder.
    pub(super) fn build(&self) -> Result<PathBuf> {
        let own = self.is_own();
        let cargo = |command| if own { cargo(&[command, "--locked"]) } else { self.cargo(command) };
        for kind in LIBRARIES {
            let what = ["--package", "siskin-ffi", "--lib", "--crate-type", kind];
            run(cargo("rustc").args(PROFILE).args(what).args(library::COMPLETE.features))?;
        }
        run(cargo("build").args(PROFILE).args(COMMAND))?;
        let elsewhere = || cross_compile::folder().join(self.triple).join("ship");
        Ok(if own { shell::built("ship") } else { elsewhere() })
    }

    fn cargo(&self, command: &str) -> Command {
        let mut command = cross_compile::cargo(command, self.triple, cross_compile::STANDARD);
        cross_compile::link_with(&mut command, self.triple, &self.compiler()).arg(cross_compile::SMALL);
        command
    }
}
