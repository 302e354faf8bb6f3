//! `size`: how large the library is that apps get, for each machine and with parts left out.

use crate::shell::{self, Result, cargo, run};
use crate::{Verb, foreign, library, tools};
use std::fmt::Write as _;
use std::path::PathBuf;

pub(crate) const VERB: Verb = Verb {
    name: "size",
    usage: "[--bless] [TARGET]…",
    about: "build the C library as it is shipped and compare its size with tests/data/sizes.txt",
    run: size,
};

/// A library to weigh.
struct Build {
    target: &'static str,
    /// What links it and the package that brings that; none for this machine's own.
    linker: Option<[&'static str; 3]>,
    parts: &'static str,
    features: &'static [&'static str],
    /// The most bytes that it may have.
    most: Option<u64>,
}

const ARM64: &str = "aarch64-unknown-linux-gnu";
const LINKER: Option<[&str; 3]> =
    Some(["aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]);

const BUILDS: [Build; 5] = [
    Build { target: ARM64, linker: LINKER, parts: "all", features: &library::PARTS, most: Some(3_000_000) },
    Build {
        target: ARM64,
        linker: LINKER,
        parts: "no import",
        features: &["--no-default-features", "--features=templates,audio"],
        most: None,
    },
    Build { target: ARM64, linker: LINKER, parts: "none", features: &["--no-default-features"], most: None },
    Build {
        target: "armv7-unknown-linux-gnueabihf",
        linker: Some(["arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross"]),
        parts: "all",
        features: &library::PARTS,
        most: None,
    },
    Build {
        target: "x86_64-unknown-linux-gnu",
        linker: None,
        parts: "all",
        features: &library::PARTS,
        most: None,
    },
];

/// The compiler for other machines, and a size for each library.
const LEDGER: &str = "tests/data/sizes.txt";
/// Where cargo puts it.
const FILE: &str = "ship/libsiskin_ffi.so";
/// By how much a library may grow before its new size must be blessed, in percent. Another compiler may do as it likes
/// below the bound.
const GROWTH: f64 = 1.0;

fn size(arguments: &[String]) -> Result {
    let (bless, chosen): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == "--bless");
    if let Some(unknown) = chosen.iter().find(|name| BUILDS.iter().all(|build| build.target != **name)) {
        return Err(format!("no target `{unknown}`"));
    }
    let wanted = |build: &&Build| chosen.is_empty() || chosen.iter().any(|name| *name == build.target);
    let builds: Vec<_> = BUILDS.iter().filter(wanted).collect();
    need_tools()?;
    weigh(&builds, !bless.is_empty())
}

/// What `cargo xtask test` weighs: the library that the bound is for.
pub(crate) fn check() -> Result {
    weigh(&[&BUILDS[0]], false)
}

/// Installs what is missing, or says how.
pub(crate) fn need_tools() -> Result {
    let mut needs = foreign::needs();
    for [compiler, package, headers] in BUILDS.iter().filter_map(|build| build.linker) {
        needs.push((format!("/usr/bin/{compiler}"), package));
        let machine = compiler.trim_end_matches("-gcc");
        needs.push((format!("/usr/{machine}/include/stdio.h"), headers));
    }
    tools::debian(&needs)
}

fn weigh(builds: &[&Build], bless: bool) -> Result {
    let ledger = shell::root().join(LEDGER);
    let text = std::fs::read_to_string(&ledger).unwrap_or_default();
    let (known, rest) = text.split_once('\n').unwrap_or_default();
    let mut lines: Vec<String> = rest.lines().map(str::to_owned).collect();
    let compiler = foreign::compiler()?;
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for build in builds {
        let path = build.library()?;
        library::check(&path)?;
        let bytes = std::fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        let name = format!("{} {}:", build.target, build.parts);
        let before = lines.iter().find_map(|line| line.strip_prefix(&name)?.trim().parse::<u64>().ok());
        let _ = writeln!(
            table,
            "{:<30} {:<12} {bytes:>9} {:>9}",
            build.target,
            build.parts,
            before.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string())
        );
        if let Some(most) = build.most.filter(|most| bytes > *most) {
            wrong.push(format!("{name} {bytes} bytes; at most {most} are allowed"));
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

impl Build {
    /// Builds the library as it is shipped, and gives its file.
    fn library(&self) -> Result<PathBuf> {
        // Built beside others, a shared library keeps what only those need.
        let what = ["--package", "siskin-ffi", "--profile", "ship", "--lib", "--crate-type", "cdylib"];
        let Some([linker, ..]) = self.linker else {
            run(cargo(&["rustc", "--locked"]).args(what).args(self.features))?;
            return Ok(shell::built(FILE));
        };
        let mut command = foreign::cargo("rustc", self.target, foreign::STANDARD);
        command.arg(foreign::SMALL).args(what).args(self.features);
        foreign::link_with(&mut command, self.target, linker);
        run(&mut command)?;
        Ok(foreign::folder().join(self.target).join(FILE))
    }
}
