//! `c`: checks the C interface from C: its exports and size, and test programs under all sanitizers and valgrind.

use crate::Subcommand;
use crate::shell::{self, Result, program, run};
use crate::{library, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "c",
    usage: "",
    about: "build the C library and run the C programs of tests/c against it",
    run: c,
};

/// Programs that need only the models of `c_models`; `every` is one of its models.
const PROGRAMS: [&str; 7] = ["session", "engine", "order", "encoders", "threads", "inside", "every"];
/// Flags for every compiler.
const FLAGS: [&str; 6] = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-Iffi/include"];
/// Sanitizers that detect memory errors, leaks and undefined behavior.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
/// Maximum median time in milliseconds for a prompt of 4096 tokens to stop. The target is below 20; busy cores must not
/// fail the check, and a prompt that does not stop takes seconds.
const PATIENCE: &str = "100";

fn c(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask c".to_owned());
    }
    need_tools()?;
    check()
}

/// Ensures that compilers and valgrind are installed.
pub(crate) fn need_tools() -> Result {
    tools::c_compilers()?;
    tools::valgrind()
}

/// Runs all checks.
pub(crate) fn check() -> Result {
    let place = Place::new()?;
    shell::c_library(false)?;
    library::check(&place.target.join("libsiskin_ffi.so"))?;
    shell::c_library(true)?;
    let compilers = tools::c_compilers()?;
    headers(compilers)?;
    for compiler in compilers {
        for name in PROGRAMS {
            let sanitized = place.compile(compiler, name, true)?;
            run(program(&sanitized, &[]).arg(&place.models).env("RUST_BACKTRACE", "0"))?;
            // The static library makes each of them more than 100 MB.
            std::fs::remove_file(&sanitized).map_err(|error| format!("{}: {error}", sanitized.display()))?;
        }
    }
    for name in PROGRAMS {
        let plain = place.compile("gcc", name, false)?;
        let mut command = program("valgrind", &["-q", "--error-exitcode=9", "--leak-check=full"]);
        command.arg("--errors-for-leak-kinds=definite,indirect").arg("--show-leak-kinds=definite,indirect");
        // Without this flag, spinning threads starve the others.
        command.arg("--fair-sched=yes");
        run(command.arg(plain).arg(&place.models).env("RUST_BACKTRACE", "0"))?;
    }
    place.real_models()
}

/// Compiles the header alone, as C and as C++.
fn headers(compilers: [&str; 2]) -> Result {
    let languages = [("c", "-std=c11"), ("c++", "-std=c++17")];
    for compiler in compilers {
        for (language, standard) in languages {
            let mut command = program(compiler, &FLAGS);
            command.args(["-x", language, standard, "-Wpedantic", "-fsyntax-only", "tests/c/header.c"]);
            run(&mut command)?;
        }
    }
    Ok(())
}

/// The build folder.
pub(super) struct Place {
    target: PathBuf,
    folder: PathBuf,
    /// The small models.
    pub(super) models: PathBuf,
}

impl Place {
    pub(super) fn new() -> Result<Self> {
        let target = shell::built("debug");
        let folder = target.join("c");
        let models = folder.join("models");
        std::fs::create_dir_all(&models).map_err(|error| format!("{}: {error}", models.display()))?;
        run(shell::member("c_models").arg(&models))?;
        Ok(Self { target, folder, models })
    }

    /// Compiles a program against the shared library, or with sanitizers against the static one.
    fn compile(&self, compiler: &str, name: &str, sanitized: bool) -> Result<PathBuf> {
        let source = match name {
            "every" => self.models.join("every.c"),
            _ => shell::root().join("tests/c").join(format!("{name}.c")),
        };
        let binary = self.folder.join(format!("{name}-{compiler}{}", if sanitized { "-san" } else { "" }));
        let mut command = program(compiler, &FLAGS);
        command.args(["-std=c11", "-Itests/c"]).arg("-o").arg(&binary).arg(source);
        match sanitized {
            true => drop(command.args(SANITIZERS).arg(self.target.join("libsiskin_ffi.a"))),
            false => self.link_shared(&mut command)?,
        }
        run(command.args(["-lpthread", "-lm", "-ldl"]))?;
        Ok(binary)
    }

    /// Compiles an example of a language as a user does: with the header and the shared library.
    pub(super) fn example(&self, compiler: &str, standard: &str, source: &str) -> Result<PathBuf> {
        let source = Path::new(source);
        let binary = self.folder.join(source.file_stem().unwrap_or_default());
        let mut command =
            program(compiler, &["-Wall", "-Wextra", "-Werror", "-Iffi/include", standard, "-o"]);
        command.arg(&binary).arg(source);
        self.link_shared(&mut command)?;
        run(&mut command)?;
        Ok(binary)
    }

    /// Links the shared library under its installed names.
    fn link_shared(&self, command: &mut Command) -> Result {
        let folder = self.folder.join("lib");
        let library = self.target.join("libsiskin_ffi.so");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for name in ["libsiskin.so", "libsiskin.so.0"] {
            let copy = folder.join(name);
            std::fs::copy(&library, &copy).map_err(|error| format!("{}: {error}", copy.display()))?;
        }
        command.arg("-L").arg(&folder).arg("-lsiskin").arg(rpath(&folder));
        Ok(())
    }

    /// Runs the programs for real models, if `cargo xtask model` downloaded them.
    fn real_models(&self) -> Result {
        let chat = shell::models()?.join("smollm2.gguf");
        let speech = shell::models()?.join("whisper");
        for model in [&chat, &speech].into_iter().filter(|model| !model.exists()) {
            println!("skipped: {} is not there; `cargo xtask model` brings it", model.display());
        }
        if chat.exists() {
            let cancel = self.compile("gcc", "cancel", false)?;
            run(program(cancel, &[]).arg(chat).arg(PATIENCE))?;
        }
        if speech.exists() {
            let transcriber = self.compile("gcc", "transcriber", false)?;
            run(program(transcriber, &[]).arg(speech).arg("tests/data/speech/english.wav"))?;
        }
        Ok(())
    }
}

fn rpath(folder: &Path) -> String {
    format!("-Wl,-rpath,{}", folder.display())
}
