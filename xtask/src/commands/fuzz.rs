//! `fuzz`: coverage-guided fuzzing with libFuzzer, for the given number of minutes.

use crate::Subcommand;
use crate::shell::{self, Result, cargo, run};
use crate::tools;
use std::fs;
use std::path::Path;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "fuzz",
    usage: "[--minutes N] [TARGET]…",
    about: "fuzz everything that reads untrusted bytes, or the given targets, for N minutes each",
    run: fuzz,
};

fn fuzz(arguments: &[String]) -> Result {
    let known = targets(&shell::root())?;
    let (mut minutes, mut chosen) = (1_u64, Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--minutes" {
            let number = rest.next().and_then(|text| text.parse().ok()).filter(|minutes| *minutes > 0);
            minutes = number.ok_or("--minutes needs a number of 1 or more")?;
        } else if known.contains(argument) {
            chosen.push(argument.clone());
        } else {
            return Err(format!("no target `{argument}`; there are {}", known.join(", ")));
        }
    }
    tools::cargo_fuzz()?;
    for target in if chosen.is_empty() { &known } else { &chosen } {
        fuzz_one(target, minutes)?;
    }
    Ok(())
}

fn fuzz_one(target: &str, minutes: u64) -> Result {
    // libFuzzer writes new inputs into the first folder, which must not be the committed one.
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(shell::root().join(&corpus)).map_err(|error| format!("{corpus}: {error}"))?;
    let seeds = format!("tests/data/fuzz/{target}");
    let seconds = format!("-max_total_time={}", minutes * 60);
    let mut command = cargo(&["fuzz", "run", target, &corpus, &seeds, "--"]);
    // The sanitizer's flags are unstable; this variable makes a stable compiler accept them.
    command.env("RUSTC_BOOTSTRAP", "1").args([
        &seconds,
        "-timeout=20",
        "-rss_limit_mb=2048",
        // The largest seed, a packed model with every tensor on its own page, has 188 KiB.
        "-max_len=262144",
    ]);
    run(&mut command)
}

fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}
