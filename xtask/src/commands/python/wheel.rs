//! Wheels of the Python package.

use crate::commands::bench_peers::peers;
use crate::shell::{Result, program, run};
use crate::{cross_compile, zig};
use std::fs;
use std::path::{Path, PathBuf};

const MODULES: &str = "abi3audit, auditwheel, maturin";
const PACKAGES: [&str; 3] = ["abi3audit==0.0.26", "auditwheel==6.8.2", "maturin==1.16.0"];
/// The limit of a wheel's size in bytes.
const BYTES: u64 = 6 << 20;

/// What a wheel runs on.
pub(crate) struct Platform {
    target: &'static str,
    /// The oldest C library, by Python's name.
    c_library: &'static str,
}

pub(crate) const PLATFORMS: [Platform; 4] = [
    Platform { target: "x86_64-unknown-linux-gnu", c_library: "manylinux2014" },
    Platform { target: "aarch64-unknown-linux-gnu", c_library: "manylinux2014" },
    Platform { target: "x86_64-unknown-linux-musl", c_library: "musllinux_1_2" },
    Platform { target: "aarch64-unknown-linux-musl", c_library: "musllinux_1_2" },
];

/// Returns the platform of this machine.
pub(crate) fn own() -> Result<&'static Platform> {
    let own = |platform: &&Platform| platform.is_own();
    PLATFORMS.iter().find(own).ok_or_else(|| "wheels are built on amd64 and arm64 machines".to_owned())
}

impl Platform {
    /// Whether its wheels run here.
    pub(crate) fn is_own(&self) -> bool {
        self.target.starts_with(std::env::consts::ARCH) && self.c_library.starts_with("manylinux")
    }

    /// Whether a wheel has the name of this platform.
    pub(crate) fn is_for(&self, wheel: &Path) -> bool {
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        let processor = self.target.split('-').next().unwrap_or_default();
        name.contains(&format!("{}_", self.c_library)) && name.ends_with(&format!("_{processor}.whl"))
    }
}

/// Ensures that the tools for wheels are installed.
pub(crate) fn need_tools(platforms: &[Platform]) -> Result {
    zig::need_tools()?;
    peers::need(&zig::python()?, MODULES, &PACKAGES)?;
    platforms.iter().try_for_each(|platform| cross_compile::add_std(platform.target))
}

/// Builds a wheel into a folder.
pub(crate) fn build(platform: &Platform, to: &Path) -> Result<PathBuf> {
    let before = wheels(to);
    let build = ["-m", "maturin", "build", "--manifest-path=py/Cargo.toml", "--locked", "--zig", "--target"];
    let mut maturin = program(zig::python()?, &build);
    maturin.args([platform.target, "--compatibility", platform.c_library, "--out"]).arg(to);
    zig::prepare(&mut maturin)?;
    run(&mut maturin)?;
    let new = wheels(to).into_iter().find(|wheel| !before.contains(wheel));
    new.ok_or_else(|| format!("maturin built no wheel for {}", platform.target))
}

fn wheels(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "whl")).collect()
}

/// Checks the size of a wheel, and that it needs only what its name says.
pub(crate) fn inspect(wheel: &Path) -> Result {
    let bytes = fs::metadata(wheel).map_err(|error| format!("{}: {error}", wheel.display()))?.len();
    println!("{}: {bytes} bytes", wheel.display());
    if bytes > BYTES {
        return Err(format!("the wheel has {bytes} bytes; at most {BYTES} are allowed"));
    }
    let python = zig::python()?;
    run(program(&python, &["-m", "abi3audit", "--strict"]).arg(wheel))?;
    run(program(&python, &["-m", "auditwheel", "show"]).arg(wheel))
}
