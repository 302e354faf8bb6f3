//! Software bills of materials in the CycloneDX format, and the licenses of dependencies.

use super::Part;
use super::targets::{ARCHITECTURES, FEATURES};
use crate::library;
use crate::shell::{Result, cargo, output, run};
use crate::tools;
use std::fs;
use std::path::Path;

/// A package that is released as a binary, and the part that it belongs to.
struct Released {
    part: &'static str,
    folder: &'static str,
    package: &'static str,
    features: &'static [&'static str],
}

/// Wheels contain one of their own, made by maturin.
const RELEASED: [Released; 2] = [
    Released { part: "command", folder: "cli", package: "siskin-cli", features: &FEATURES },
    Released { part: "debian", folder: "ffi", package: "siskin-ffi", features: &library::COMPLETE.features },
];
const ABOUT: &str = "xtask/licenses/about.toml";
const TEMPLATE: &str = "xtask/licenses/licenses.hbs";

/// Ensures that the tools are installed.
pub(super) fn need_tools() -> Result {
    tools::cargo_tool("cargo-cyclonedx", "0.5.9", &[])?;
    tools::cargo_tool("cargo-about", "0.9.3", &["cli"])
}

/// Writes the bills of what is in these parts. `source` is a clone, as the tool writes beside each manifest.
pub(super) fn write(parts: &[&Part], source: &Path, to: &Path) -> Result {
    let wanted = |released: &&Released| parts.iter().any(|part| part.name == released.part);
    for released in RELEASED.iter().filter(wanted) {
        for architecture in &ARCHITECTURES {
            let mut cyclonedx = cargo(&["cyclonedx", "--format=json", "--spec-version=1.5", "--quiet"]);
            cyclonedx.arg(format!("--manifest-path={}/Cargo.toml", released.folder));
            cyclonedx.args(["--target", architecture.target]).args(released.features);
            run(cyclonedx.env("SOURCE_DATE_EPOCH", super::passes::time()?).current_dir(source))?;
            let made = source.join(released.folder).join(format!("{}.cdx.json", released.package));
            let text = fs::read_to_string(&made).map_err(|error| format!("{}: {error}", made.display()))?;
            let text = text.replace(&*source.to_string_lossy(), "/siskin");
            let path = to.join(format!("{}-{}.cdx.json", released.package, architecture.name));
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes the license texts of the command's dependencies.
pub(super) fn licenses(to: &Path, target: &str) -> Result {
    let mut about = cargo(&["about", "generate", "--offline", "--fail", "--locked", "--config", ABOUT]);
    about.args(["--manifest-path", "cli/Cargo.toml", "--target", target]).args(FEATURES);
    let text = output(about.args(["--", TEMPLATE]))?;
    fs::write(to, text).map_err(|error| format!("{}: {error}", to.display()))
}
