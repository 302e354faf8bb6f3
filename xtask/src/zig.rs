//! zig as the C compiler and linker of builds for other systems and for old C libraries.

use crate::shell::{self, Result, run};
use crate::{env, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["cargo-zigbuild==0.24.1", "ziglang==0.17.1"];

/// Returns the Python that has zig.
pub(crate) fn python() -> Result<PathBuf> {
    tools::python("python-wheel-tools")
}

/// Ensures that zig is installed.
pub(crate) fn need_tools() -> Result {
    let python = python()?;
    if shell::succeeds(&mut shell::program(&python, &["-c", "import ziglang"])) && program(&python).exists() {
        return Ok(());
    }
    run(shell::program(&python, &["-m", "pip", "install", "--quiet"]).args(PACKAGES))
}

fn program(python: &Path) -> PathBuf {
    python.with_file_name("cargo-zigbuild")
}

/// Returns a cargo command that finds `cargo zigbuild` and zig.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = shell::cargo(arguments);
    prepare(&mut command)?;
    Ok(command)
}

/// Makes a program find `cargo zigbuild` and zig.
pub(crate) fn prepare(command: &mut Command) -> Result {
    let python = python()?;
    let folder = python.parent().unwrap_or(Path::new("")).to_owned();
    let path = env::path_with(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    command.env("PATH", path).env("CARGO_ZIGBUILD_PYTHON_PATH", python);
    Ok(())
}
