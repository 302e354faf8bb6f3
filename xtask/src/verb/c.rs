//! `c`: the C interface from C: what it exports, how large it is, and programs against it, under every checker.

use crate::Verb;
use crate::shell::{self, Result, program, run};
use crate::{library, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const VERB: Verb = Verb {
    name: "c",
    usage: "",
    about: "build the C library and run the C programs of tests/c against it",
    run: c,
};

/// The programs that need nothing but the models of `c_models`; `every` is one of what that makes.
const PROGRAMS: [&str; 6] = ["session", "order", "readers", "threads", "inside", "every"];
/// What every compiler is told.
const FLAGS: [&str; 6] = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-Iffi/include"];
/// What tells of memory that is used wrongly or lost.
const SANITISERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
/// The most milliseconds in which a prompt of 4096 tokens stops, more often than not. Less than 20 are asked for; others
/// that keep the cores busy must not fail the check, and a prompt that does not stop takes seconds.
const PATIENCE: &str = "100";

fn c(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask c".to_owned());
    }
    need_tools()?;
    check()
}

/// Compilers, and a checker of memory.
pub(crate) fn need_tools() -> Result {
    tools::c_compilers()?;
    tools::valgrind()
}

/// Everything that there is to check.
pub(crate) fn check() -> Result {
    let place = Place::new()?;
    shell::c_library(false)?;
    library::check(&place.target.join("libsiskin_ffi.so"))?;
    shell::c_library(true)?;
    let compilers = tools::c_compilers()?;
    headers(compilers)?;
    for compiler in compilers {
        for name in PROGRAMS {
            let sanitised = place.compile(compiler, name, true)?;
            run(program(sanitised, &[]).arg(&place.models).env("RUST_BACKTRACE", "0"))?;
        }
    }
    for name in PROGRAMS {
        let plain = place.compile("gcc", name, false)?;
        let mut command = program("valgrind", &["-q", "--error-exitcode=9", "--leak-check=full"]);
        command.arg("--errors-for-leak-kinds=definite,indirect").arg("--show-leak-kinds=definite,indirect");
        // Without this, threads that spin keep the others out.
        command.arg("--fair-sched=yes");
        run(command.arg(plain).arg(&place.models).env("RUST_BACKTRACE", "0"))?;
    }
    let first = place.compile("gcc", "first", false)?;
    run(program(first, &[]).arg(place.models.join("chat.siskin")).arg("Why?"))?;
    place.real_models()
}

/// The header alone, as C and as C++.
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

/// Where things are built.
struct Place {
    target: PathBuf,
    folder: PathBuf,
    models: PathBuf,
}

impl Place {
    fn new() -> Result<Self> {
        let target = shell::built("debug");
        let folder = target.join("c");
        let models = folder.join("models");
        std::fs::create_dir_all(&models).map_err(|error| format!("{}: {error}", models.display()))?;
        run(shell::member("c_models").arg(&models))?;
        Ok(Self { target, folder, models })
    }

    /// A program, against the shared library or, with sanitisers, against the static one.
    fn compile(&self, compiler: &str, name: &str, sanitised: bool) -> Result<PathBuf> {
        let source = match name {
            "every" => self.models.join("every.c"),
            _ => shell::root().join("tests/c").join(format!("{name}.c")),
        };
        let binary = self.folder.join(format!("{name}-{compiler}{}", if sanitised { "-san" } else { "" }));
        let mut command = program(compiler, &FLAGS);
        command.args(["-std=c11", "-Itests/c"]).arg("-o").arg(&binary).arg(source);
        match sanitised {
            true => drop(command.args(SANITISERS).arg(self.target.join("libsiskin_ffi.a"))),
            false => self.link_shared(&mut command)?,
        }
        run(command.args(["-lpthread", "-lm", "-ldl"]))?;
        Ok(binary)
    }

    /// Links the shared library by the names that it is installed under.
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

    /// Programs for models that `cargo xtask model` brings, where it has.
    fn real_models(&self) -> Result {
        let chat = shell::models()?.join("smollm2.gguf");
        let hears = shell::models()?.join("whisper");
        for model in [&chat, &hears].into_iter().filter(|model| !model.exists()) {
            println!("skipped: {} is not there; `cargo xtask model` brings it", model.display());
        }
        if chat.exists() {
            let cancel = self.compile("gcc", "cancel", false)?;
            run(program(cancel, &[]).arg(chat).arg(PATIENCE))?;
        }
        if hears.exists() {
            let hear = self.compile("gcc", "hear", false)?;
            run(program(hear, &[]).arg(hears).arg("tests/data/speech/english.wav"))?;
        }
        Ok(())
    }
}

fn rpath(folder: &Path) -> String {
    format!("-Wl,-rpath,{}", folder.display())
}
