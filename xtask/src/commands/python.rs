//! `python`: the Python package, tested as users have it.

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, c_library, program, root, run};
use crate::{Subcommand, tools};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "python",
    usage: "[wheel]",
    about: "test the Python package: the test build, or a wheel that is built and installed in a clean environment",
    run: python,
};

const TEST_MODULES: &str = "mypy, numpy, pytest";
const TEST_PACKAGES: [&str; 3] = ["mypy==2.4.1", "numpy==2.4.6", "pytest==9.2.0"];
const WHEEL_MODULES: &str = "abi3audit, auditwheel, maturin, ziglang";
const WHEEL_PACKAGES: [&str; 4] =
    ["abi3audit==0.0.26", "auditwheel==6.8.2", "maturin==1.16.0", "ziglang==0.17.1"];
/// The limit of the wheel's size in bytes.
const WHEEL_BYTES: u64 = 6 << 20;

fn python(arguments: &[String]) -> Result {
    let as_wheel = match arguments {
        [] => false,
        [name] if name == "wheel" => true,
        _ => return Err("usage: cargo xtask python [wheel]".to_owned()),
    };
    check(&need_tools()?, as_wheel)
}

/// Returns a Python with what the tests need.
pub(super) fn need_tools() -> Result<PathBuf> {
    for name in ["smollm2", "minilm", "whisper"] {
        model::bring(name)?;
    }
    let python = tools::python("python-tests")?;
    peers::need(&python, TEST_MODULES, &TEST_PACKAGES)?;
    Ok(python)
}

/// Tests the package from the test build, or as a wheel.
pub(super) fn check(python: &Path, as_wheel: bool) -> Result {
    types(python)?;
    if !as_wheel {
        return tests(python, Some(&staged()?));
    }
    let wheel = wheel()?;
    let clean = tools::python("python-wheel")?;
    peers::need(&clean, TEST_MODULES, &TEST_PACKAGES)?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    run(program(&clean, &install).arg(&wheel))?;
    tests(&clean, None)?;
    run(&mut program(&clean, &["-m", "mypy.stubtest", "siskin._siskin"]))
}

fn types(python: &Path) -> Result {
    let mut mypy = program(python, &["-m", "mypy", "--config-file", "py/pyproject.toml", "py/python/siskin"]);
    run(mypy.arg("--exclude=lm_eval.py"))
}

fn tests(python: &Path, package: Option<&Path>) -> Result {
    let mut command = program(python, &["-m", "pytest", "-q", "-p", "no:cacheprovider", "py/tests"]);
    if let Some(package) = package {
        command.env("PYTHONPATH", package);
    }
    run(&mut command)
}

/// Returns a folder with the package from the test build.
fn staged() -> Result<PathBuf> {
    let folder = root().join("target/tmp/python");
    let package = folder.join("siskin");
    let _ = fs::remove_dir_all(&package);
    c_library(false)?;
    let library = built("debug").join("lib_siskin.so");
    let copy = || {
        fs::create_dir_all(&package)?;
        for entry in fs::read_dir(root().join("py/python/siskin"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), package.join(entry.file_name()))?;
            }
        }
        fs::copy(&library, package.join("_siskin.abi3.so"))
    };
    copy().map_err(|error| format!("{}: {error}", package.display()))?;
    Ok(folder)
}

/// Builds and checks a wheel that runs on Linux with glibc 2.17 and later.
fn wheel() -> Result<PathBuf> {
    let python = tools::python("python-wheel-tools")?;
    peers::need(&python, WHEEL_MODULES, &WHEEL_PACKAGES)?;
    let folder = root().join("target/wheels");
    let _ = fs::remove_dir_all(&folder);
    let build = ["-m", "maturin", "build", "--manifest-path=py/Cargo.toml", "--locked", "--zig"];
    let mut command = program(&python, &build);
    command.args(["--compatibility=manylinux2014", "--out"]).arg(&folder);
    // The Python that has zig.
    run(command.env("CARGO_ZIGBUILD_PYTHON_PATH", &python))?;
    let wheels = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let wheel = wheels.flatten().map(|entry| entry.path()).next().ok_or("maturin built no wheel")?;
    let bytes = fs::metadata(&wheel).map_err(|error| format!("{}: {error}", wheel.display()))?.len();
    println!("{}: {bytes} bytes", wheel.display());
    if bytes > WHEEL_BYTES {
        return Err(format!("the wheel has {bytes} bytes; at most {WHEEL_BYTES} are allowed"));
    }
    run(program(&python, &["-m", "abi3audit", "--strict"]).arg(&wheel))?;
    run(program(&python, &["-m", "auditwheel", "show"]).arg(&wheel))?;
    Ok(wheel)
}
