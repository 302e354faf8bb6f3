//! `python`: the Python package, tested as users have it.

mod chores;
pub(super) mod wheel;

use super::bench_peers::peers;
use super::model;
use crate::shell::{Result, built, c_library, output, program, root, run};
use crate::systems::{self, System};
use crate::{Subcommand, tools};
use chores::CHORES;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "python",
    usage: "[wheel | compare | notebooks | ray]",
    about: "test the Python package: the test build, or a wheel that is built and installed in a clean environment; \
        compare: beside sentence-transformers, Transformers and lm-evaluation-harness; notebooks and ray: run those",
    run: python,
};

const TEST_MODULES: &str = "mypy, numpy, pytest";
const TEST_PACKAGES: [&str; 3] = ["mypy==2.4.1", "numpy==2.4.6", "pytest==9.2.0"];
/// The Debian release with a newer Python than the oldest that the package supports.
const NEWER: &str = "trixie";

fn python(arguments: &[String]) -> Result {
    let chosen = arguments.first().map(String::as_str);
    match (chosen, arguments.len()) {
        (None, _) => check(&need_tools()?, false),
        (Some("wheel"), 1) => check(&need_tools()?, true),
        (Some(name), 1) if CHORES.iter().any(|chore| chore.name == name) => {
            need_tools()?;
            let package = staged()?;
            CHORES.iter().filter(|chore| chore.name == name).try_for_each(|chore| chore.run(&package))
        }
        _ => Err(format!("usage: cargo xtask python {}", SUBCOMMAND.usage)),
    }
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
    let own = wheel::own()?;
    wheel::need_tools(std::slice::from_ref(own))?;
    let folder = root().join("target/wheels");
    let _ = fs::remove_dir_all(&folder);
    check_wheel(&wheel::build(own, &folder)?, own, false)
}

/// Inspects a wheel. Those for this machine are also tested in clean environments, of this machine's Python and of a
/// newer one; for a release, neither may be missing.
pub(super) fn check_wheel(file: &Path, platform: &wheel::Platform, is_release: bool) -> Result {
    wheel::inspect(file)?;
    if !platform.is_own() {
        return Ok(());
    }
    let clean = tools::python("python-wheel")?;
    peers::need(&clean, TEST_MODULES, &TEST_PACKAGES)?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    run(program(&clean, &install).arg(file))?;
    tests(&clean, None)?;
    run(&mut program(&clean, &["-m", "mypy.stubtest", "siskin._siskin"]))?;
    match systems::debian_is_available(NEWER, &built("python-newer")) {
        Ok(()) => newer(&clean, file),
        Err(why) if !is_release => {
            println!("not tested with a newer Python: {why}");
            Ok(())
        }
        Err(why) => Err(format!("a release is tested with a newer Python: {why}")),
    }
}

/// Runs the tests with the Python of a newer Debian.
fn newer(pip: &Path, wheel: &Path) -> Result {
    let packages = built("python-newer/packages");
    let system = System::debian(systems::OWN, NEWER, &["python3-venv"], built("python-newer/system"))?;
    // Downloaded by this machine's pip, which knows where its packages come from.
    let version = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"];
    let version = output(system.program(&["python3"]).args(version))?;
    let mut download = program(pip, &["-m", "pip", "download", "--quiet", "--only-binary=:all:"]);
    download.args(["--python-version", version.trim(), "--dest"]).arg(&packages);
    run(download.args(TEST_PACKAGES).arg(wheel))?;
    // The repository appears in the system at its own path.
    let script = "mkdir -p \"$1$2\" && mount --bind \"$2\" \"$1$2\" && mount -t proc proc \"$1/proc\" && exec chroot \"$1\" sh -c \"$3\" sh \"$2\" \"$4\"";
    let tests = "cd \"$1\" && python3 -m venv /venv && /venv/bin/pip install --quiet --no-index --find-links \"$2\" \
                 siskin-ai mypy numpy pytest && /venv/bin/python --version && \
                 /venv/bin/python -m pytest -q -p no:cacheprovider py/tests";
    let mut command = program("unshare", &["--mount", "sh", "-c", script, "sh"]);
    run(command.arg(system.folder()).arg(root()).arg(tests).arg(&packages))
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
