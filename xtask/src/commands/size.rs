//! `size`: the size of the library that apps ship, for each target and with features left out.

use crate::shell::{self, Result, program, run};
use crate::{Subcommand, cross_compile, library, tools};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "size",
    usage: "[--bless] [TARGET]…",
    about: "build the C library as it is shipped and compare its size with tests/data/sizes.txt",
    run: size,
};

/// A target that the library is measured for.
struct Machine {
    target: &'static str,
    /// The linker and the packages that provide it; `None` if the compiler finds its linker by itself.
    linker: Option<[&'static str; 3]>,
}

/// The features of the library.
struct Parts {
    name: &'static str,
    features: &'static [&'static str],
    /// Maximum size in bytes of the library for 64-bit Arm.
    bound: u64,
}

/// A library to measure.
type Build = (&'static Machine, &'static Parts);

const MACHINES: [Machine; 3] = [
    Machine {
        target: "aarch64-unknown-linux-gnu",
        linker: Some(["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]),
    },
    Machine {
        target: "armv7-unknown-linux-gnueabihf",
        linker: Some(["arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"]),
    },
    Machine { target: "x86_64-unknown-linux-gnu", linker: None },
];

/// The edition that is only measured for [`BOUNDED`].
const GRAMMAR: &str = "grammar";

const PARTS: [Parts; 4] = [
    Parts { name: "all", features: &library::COMPLETE.features, bound: 3_400_000 },
    Parts {
        name: "no import",
        features: &["--no-default-features", "--features=templates,audio,constraints,tools,engine"],
        bound: 2_600_000,
    },
    Parts { name: GRAMMAR, features: &library::GRAMMAR.features, bound: 4_000_000 },
    Parts { name: "none", features: &["--no-default-features"], bound: 2_100_000 },
];

/// The target that the bounds apply to.
const BOUNDED: &Machine = &MACHINES[0];
/// The library that `cargo xtask test` measures: each takes minutes to build.
const CHECKED: Build = (BOUNDED, &PARTS[0]);

/// The cross compiler, and a size for each library.
const LEDGER: &str = "tests/data/sizes.txt";
/// Maximum growth of a library in percent before its new size must be blessed. With another compiler, only the bounds
/// apply.
const GROWTH: f64 = 1.0;

fn size(arguments: &[String]) -> Result {
    let (bless, chosen): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "--bless");
    if let Some(unknown) = chosen.iter().find(|name| MACHINES.iter().all(|machine| machine.target != **name))
    {
        let known: Vec<_> = MACHINES.iter().map(|machine| machine.target).collect();
        return Err(format!("no target `{unknown}`; there are {}", known.join(", ")));
    }
    let wanted = |build: &Build| chosen.is_empty() || chosen.iter().any(|name| *name == build.0.target);
    let builds: Vec<_> = builds().filter(wanted).collect();
    need_tools()?;
    weigh(&builds, !bless.is_empty())
}

/// Iterates over all libraries.
fn builds() -> impl Iterator<Item = Build> {
    let all = MACHINES.iter().flat_map(|machine| PARTS.iter().map(move |parts| (machine, parts)));
    all.filter(|(machine, parts)| machine.target == BOUNDED.target || parts.name != GRAMMAR)
}

/// Returns the prefix of a line of the ledger.
fn name((machine, parts): Build) -> String {
    format!("{} {}:", machine.target, parts.name)
}

/// Measures [`CHECKED`].
pub(crate) fn check() -> Result {
    weigh(&[CHECKED], false)
}

/// Ensures that the tools are installed.
pub(crate) fn need_tools() -> Result {
    let mut needs = cross_compile::needs();
    needs.extend([("/usr/bin/clang".to_owned(), "clang"), ("/usr/bin/ld.lld".to_owned(), "lld")]);
    for [compiler, package, headers] in MACHINES.iter().filter_map(|machine| machine.linker) {
        needs.push((format!("/usr/bin/{compiler}"), package));
        let machine = compiler.trim_end_matches("-gcc");
        needs.push((format!("/usr/{machine}/include/stdio.h"), headers));
    }
    tools::debian(&needs)
}

fn weigh(builds: &[Build], bless: bool) -> Result {
    let ledger = shell::root().join(LEDGER);
    let text = std::fs::read_to_string(&ledger).unwrap_or_default();
    let (known, rest) = text.split_once('\n').unwrap_or_default();
    let mut lines: Vec<String> = rest.lines().map(str::to_owned).collect();
    let compiler = cross_compile::compiler()?;
    let all = builds.len() == self::builds().count();
    if bless && !all && compiler != known {
        return Err(format!("{LEDGER} is of {known}, and here is {compiler}: bless all targets together"));
    }
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for &build in builds {
        let path = library(build)?;
        library::check(&path)?;
        let bytes = std::fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        let name = name(build);
        let before = lines.iter().find_map(|line| line.strip_prefix(&name)?.trim().parse::<u64>().ok());
        let _ = writeln!(
            table,
            "{:<30} {:<12} {bytes:>9} {:>9}",
            build.0.target,
            build.1.name,
            before.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())
        );
        if build.0.target == BOUNDED.target && bytes > build.1.bound {
            wrong.push(format!("{name} {bytes} bytes; at most {} are allowed", build.1.bound));
        }
        if bless {
            lines.retain(|line| !line.starts_with(&name));
            lines.push(format!("{name} {bytes}"));
        } else if let Some(before) = before {
            let grew = bytes as f64 > before as f64 * (1.0 + GROWTH / 100.0);
            match (grew, compiler == known) {
                (true, true) => {
                    wrong.push(format!("{name} grew; `cargo xtask size --bless` where that is meant"))
                }
                (true, false) => println!("{name} grew, under another compiler than the committed {known}"),
                (false, _) => {}
            }
        } else {
            wrong.push(format!("{name} is not in {LEDGER}; `cargo xtask size --bless` adds it"));
        }
    }
    println!("\n{:<30} {:<12} {:>9} {:>9}\n{table}", "target", "parts", "bytes", "ledger");
    if bless {
        lines.sort();
        std::fs::write(&ledger, format!("{compiler}\n{}\n", lines.join("\n")))
            .map_err(|error| format!("{}: {error}", ledger.display()))?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Builds the library as it ships, and returns its file. One compiler builds all of them, so that their sizes are
/// comparable. For [`BOUNDED`], it is linked as in the Android package; for others by cargo.
fn library((machine, parts): Build) -> Result<PathBuf> {
    // If built together with other crate types, a library keeps code that only those need.
    let is_linked = machine.target == BOUNDED.target;
    let (kind, file) = match is_linked {
        true => ("staticlib", "libsiskin_ffi.a"),
        false => ("cdylib", "libsiskin_ffi.so"),
    };
    let what = ["--package", "siskin-ffi", "--profile", "ship", "--lib", "--crate-type", kind];
    let mut command = cross_compile::cargo("rustc", machine.target, cross_compile::STANDARD);
    command.arg(cross_compile::SMALL).args(what).args(parts.features);
    if let Some([linker, ..]) = machine.linker {
        cross_compile::link_with(&mut command, machine.target, linker);
    }
    run(&mut command)?;
    let built = cross_compile::folder().join(machine.target).join("ship").join(file);
    if is_linked { link(&built) } else { Ok(built) }
}

/// Links the static library for 64-bit Arm as the Android package does, but for the JNI bridge: without the C functions of
/// dependencies, and functions with the same code are one.
fn link(archive: &Path) -> Result<PathBuf> {
    let folder = archive.with_file_name("linked");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let exports = library::exports()?;
    let (script, linked) = (folder.join("exports.map"), folder.join("libsiskin_ffi.so"));
    let names: String = exports.iter().map(|name| format!("{name};")).collect();
    std::fs::write(&script, format!("{{ global: {names} local: *; }};"))
        .map_err(|error| format!("{}: {error}", script.display()))?;
    let mut command = program("clang", &["-shared", "-fuse-ld=lld", "-Wl,-z,max-page-size=16384", "-Wl,-s"]);
    command.args(["--target=aarch64-linux-gnu", "-Wl,--gc-sections", "-Wl,-z,defs", library::FOLD]);
    command.arg(format!("-Wl,--version-script={}", script.display()));
    command.args(exports.iter().map(|name| format!("-Wl,-u,{name}")));
    command.arg("-o").arg(&linked).arg(archive).args(["-lpthread", "-lm", "-ldl", "-lgcc_s"]);
    run(&mut command)?;
    Ok(linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_has_its_size() {
        let text = std::fs::read_to_string(shell::root().join(LEDGER)).expect("the ledger is there");
        let lines: Vec<_> = text.lines().skip(1).map(|line| line.rsplit_once(' ').expect("a size")).collect();
        let mut names: Vec<_> = builds().map(name).collect();
        names.sort();
        assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), names);
        assert!(lines.iter().all(|line| line.1.parse::<u64>().is_ok_and(|bytes| bytes > 0)));
    }
}
