//! `counts`: instructions of fixed kernel calls, counted by valgrind and compared to the committed counts.
//!
//! Unlike times, counts are exact, so that a slower kernel is detected on any machine. Valgrind does not support
//! AVX-512: the AVX2 and the portable kernels are counted.

use crate::Subcommand;
use crate::shell::{self, Result, output, program};
use crate::tools;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(crate) const SUBCOMMAND: Subcommand = Subcommand {
    name: "counts",
    usage: "[--bless]",
    about: "count the instructions of kernel calls and compare them with the committed counts; --bless: write these",
    run: counts,
};

const COMMITTED: &str = "tests/data/counts.txt";
const PROGRAM: &str = "count_kernels";
/// Maximum ratio of a count to the committed one.
const MARGIN: f64 = 1.03;
/// Maximum ratio with another compiler, which may unroll and inline differently.
const OTHER_COMPILER_MARGIN: f64 = 1.25;
/// The cost of one call is the difference between these repeats, divided by their distance: the setup cancels out.
const REPEATS: [u64; 2] = [1, 3];

/// Instructions of one call, by `TABLE CASE`.
type Counts = BTreeMap<String, u64>;

fn counts(arguments: &[String]) -> Result {
    let bless = match arguments {
        [] => false,
        [flag] if flag == "--bless" => true,
        _ => return Err("usage: cargo xtask counts [--bless]".to_owned()),
    };
    need_tools()?;
    if !bless {
        return check();
    }
    let counted = count()?;
    if !counted.keys().any(|name| name.starts_with("avx2 ")) {
        return Err("valgrind gives no AVX2 here: bless the counts on another machine".to_owned());
    }
    let lines: String = counted.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
    let path = shell::root().join(COMMITTED);
    fs::write(path, format!("{}\n{lines}", compiler()?)).map_err(|error| format!("{COMMITTED}: {error}"))?;
    println!("{COMMITTED}: {} counts", counted.len());
    Ok(())
}

/// Ensures that valgrind is installed and supported here.
pub(crate) fn need_tools() -> Result {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("instructions are counted on 64-bit x86 with Linux only".to_owned());
    }
    tools::valgrind()
}

/// Counts and compares to the committed counts.
pub(crate) fn check() -> Result {
    let text = fs::read_to_string(shell::root().join(COMMITTED));
    let text =
        text.map_err(|error| format!("{COMMITTED}: {error}; `cargo xtask counts --bless` writes it"))?;
    let (known, committed) = parse(&text)?;
    let compiler = compiler()?;
    let same = known == compiler;
    if !same {
        println!("counted with {compiler}, committed with {known}: the margin is {OTHER_COMPILER_MARGIN}");
    }
    let failures = compare(&committed, &count()?, if same { MARGIN } else { OTHER_COMPILER_MARGIN });
    if failures.is_empty() {
        return Ok(());
    }
    let advice = "where it must be so, `cargo xtask counts --bless` commits the new counts";
    Err(format!("{} counts differ; {advice}\n  {}", failures.len(), failures.join("\n  ")))
}

/// Parses the compiler and the counts of the committed file.
fn parse(text: &str) -> Result<(&str, Counts)> {
    let (compiler, lines) = text.split_once('\n').unwrap_or((text, ""));
    let entry = |line: &str| {
        let (name, count) = line.rsplit_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    let counts: Option<Counts> = lines.lines().map(entry).collect();
    Ok((compiler, counts.ok_or_else(|| format!("{COMMITTED}: a line is no `TABLE CASE COUNT`"))?))
}

/// Prints a table, and returns a line for each count that grew too much, is new or is missing.
fn compare(committed: &Counts, counted: &Counts, margin: f64) -> Vec<String> {
    let mut failures = Vec::new();
    println!("\n{:<26} {:>12} {:>12} {:>7}", "call", "committed", "counted", "ratio");
    for (name, &count) in counted {
        let Some(&before) = committed.get(name) else {
            failures.push(format!("{name}: {count}, not committed"));
            continue;
        };
        let ratio = count as f64 / before.max(1) as f64;
        println!("{name:<26} {before:>12} {count:>12} {ratio:>7.3}");
        if ratio > margin {
            failures.push(format!("{name}: {count} instructions, {ratio:.3} of the committed {before}"));
        }
    }
    let table = |name: &str| name.split(' ').next().unwrap_or_default().to_owned();
    let ran = |name: &str| counted.keys().any(|other| table(other) == table(name));
    for name in committed.keys().filter(|name| !counted.contains_key(*name)) {
        if ran(name) {
            failures.push(format!("{name}: committed, but the call does not exist"));
        } else {
            println!("{name:<26} not counted: valgrind gives no such processor here");
        }
    }
    failures
}

/// Counts every call that valgrind's virtual processor supports.
fn count() -> Result<Counts> {
    let file = shell::built_member(PROGRAM)?;
    let listed = output(program("valgrind", &["-q", "--tool=none"]).arg(&file))?;
    let mut counts = Counts::new();
    for name in listed.lines() {
        let [few, more] = [instructions(&file, name, REPEATS[0])?, instructions(&file, name, REPEATS[1])?];
        let calls = REPEATS[1] - REPEATS[0];
        let count = more.checked_sub(few).ok_or_else(|| format!("{name}: more calls took less"))?;
        counts.insert(name.to_owned(), count / calls);
    }
    Ok(counts)
}

/// Returns the instructions of the whole program with `repeats` calls.
fn instructions(file: &Path, name: &str, repeats: u64) -> Result<u64> {
    let mut command = program("valgrind", &["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(file).args(name.split(' ')).arg(repeats.to_string());
    let answer = command.output().map_err(|error| format!("valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&answer.stderr);
    let number = collected(&said).filter(|_| answer.status.success());
    number.ok_or_else(|| format!("`{}` counted nothing: {said}", shell::shown(&command)))
}

/// Parses the number in the line `==1== Collected : 123`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?;
    line.1.trim().parse().ok()
}

fn compiler() -> Result<String> {
    Ok(output(&mut program("rustc", &["--version"]))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &str) -> Counts {
        parse(&format!("rustc 1\n{lines}")).expect("counts").1
    }

    #[test]
    fn counts_are_read() {
        assert_eq!(collected("==9== Events    : Ir\n==9== Collected : 5291\n==9==\n"), Some(5291));
        assert_eq!(collected("==9== Events    : Ir\n"), None);
        let (compiler, counts) = parse("rustc 1.2\navx2 a 10\nscalar b 20\n").expect("counts");
        assert_eq!((compiler, counts["avx2 a"], counts["scalar b"]), ("rustc 1.2", 10, 20));
        assert!(parse("rustc 1.2\navx2 a b\n").is_err());
    }

    #[test]
    fn growth_beyond_the_margin_fails_and_nothing_else() {
        let committed = counts("avx2 a 1000\navx2 b 1000\navx2 gone 1\nscalar c 1000\n");
        let counted = counts("avx2 a 1030\navx2 b 1031\navx2 new 5\n");
        let failures = compare(&committed, &counted, MARGIN);
        let named = |name: &str| failures.iter().any(|failure| failure.starts_with(name));
        assert!(named("avx2 b:") && named("avx2 gone:") && named("avx2 new:"), "{failures:?}");
        assert_eq!(failures.len(), 3, "{failures:?}");
        assert_eq!(
            compare(&counts("avx2 a 1000\n"), &counts("avx2 a 1249\n"), OTHER_COMPILER_MARGIN).len(),
            0
        );
    }
}
