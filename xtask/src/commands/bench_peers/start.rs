//! `--start`: time from process start to the first token, and peak resident memory.
//!
//! llama.cpp runs inside Python here, so Python's share is excluded: its clock starts when the library is loaded, and
//! the memory that was resident at that time is subtracted.

use super::report::{cpu_name, median, middle};
use super::{Options, THREADS, build, model, peers};
use crate::shell::{self, Result, output, program, shown};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The default number of rounds, which are short.
const ROUNDS: usize = 7;
const PROMPT: &str = "The lighthouse keeper wrote in his diary every evening. On the last day of the year";
/// Number of generated tokens: enough that the process still runs when the first token has been read.
const TOKENS: &str = "32";
/// Context size of both.
const CONTEXT: &str = "2048";

/// Measurements of one run of Siskin.
struct Started {
    first_ms: f64,
    peak_mib: f64,
    anonymous_mib: f64,
}

/// Measures both in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let threads = options.threads.unwrap_or(THREADS).to_string();
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let python = peers::llama_python(peers::Build::Native)?;
    build()?;
    let mut rows = Vec::new();
    for name in &options.models {
        let file = model::bring(name)?;
        // The first run of each is a warmup: it loads the files into the page cache, and packs the model if necessary.
        siskin(&file, &threads)?;
        llama(&python, &file, &threads)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            eprintln!("{name}: start, round {} of {rounds}", round + 1);
            ours.push(siskin(&file, &threads)?);
            theirs.push(llama(&python, &file, &threads)?);
        }
        let ours_of = |number: fn(&Started) -> f64| middle(ours.iter().map(number).collect()).unwrap_or(0.0);
        for (title, a, key) in [
            ("first token, ms", ours_of(|run| run.first_ms), "first_token_ms"),
            ("peak resident, MiB", ours_of(|run| run.peak_mib), "peak_mib"),
            ("of it anonymous, MiB", ours_of(|run| run.anonymous_mib), "anonymous_mib"),
        ] {
            let b = median(&theirs, key)?;
            rows.push(format!("| {name} | {title} | {a:.1} | {b:.1} | {:.2} |", a / b));
        }
    }
    println!("\nCPU: {}. Threads: {threads}. Medians of {rounds} rounds, files in memory.", cpu_name());
    println!(
        "siskin: from the start of the process. {}: from inside Python, after the library is",
        peers::LLAMA
    );
    println!("loaded, without what the interpreter held then; its own start is not counted.\n");
    println!("| model | measure | siskin | llama.cpp | siskin / llama.cpp |\n|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}

fn siskin(file: &Path, threads: &str) -> Result<Started> {
    let mut command = program(shell::release("siskin"), &["run", "--quiet", "--raw", "--greedy"]);
    command.args(["--max-tokens", TOKENS, "--context", CONTEXT, "--threads", threads]);
    command.arg(file).arg(PROMPT).stdout(Stdio::piped());
    let words = shown(&command);
    let failed = |error: std::io::Error| format!("`{words}`: {error}");
    let begun = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    let mut out = child.stdout.take().ok_or("no standard output")?;
    let read = out.read(&mut [0; 1]);
    let first_ms = begun.elapsed().as_secs_f64() * 1e3;
    let memory = watch(&mut child);
    // The rest of the output is small enough to fit the pipe buffer.
    drop(out);
    let status = child.wait().map_err(failed)?;
    match (read, memory) {
        (Ok(1), Some([peak_mib, anonymous_mib])) if status.success() => {
            Ok(Started { first_ms, peak_mib, anonymous_mib })
        }
        _ => Err(format!("`{words}` said nothing and ended with {status}")),
    }
}

/// Returns the peak of resident and of anonymous memory until the child ends.
fn watch(child: &mut Child) -> Option<[f64; 2]> {
    let path = format!("/proc/{}/status", child.id());
    let mut peaks: Option<[f64; 2]> = None;
    loop {
        let seen = fs::read_to_string(&path).ok().and_then(|status| resident(&status));
        if let Some([peak, anonymous]) = seen {
            let [before, anonymous_before] = peaks.unwrap_or_default();
            peaks = Some([peak.max(before), anonymous.max(anonymous_before)]);
        }
        if seen.is_none() || child.try_wait().is_ok_and(|status| status.is_some()) {
            return peaks;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Parses peak resident and current anonymous memory in MiB from `/proc/…/status`.
fn resident(status: &str) -> Option<[f64; 2]> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes / 1024.0)
    };
    Some([field("VmHWM:")?, field("RssAnon:")?])
}

fn llama(python: &Path, file: &Path, threads: &str) -> Result<String> {
    let mut command = program(python, &["xtask/python/start_llama.py"]);
    command.arg(file).arg(PROMPT);
    output(command.args(["--tokens", TOKENS, "--context", CONTEXT, "--threads", threads]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_an_ended_process_has_none() {
        let status = "VmHWM:\t    9216 kB\nVmRSS:\t 10 kB\nRssAnon:\t    2048 kB\nRssFile:\t     512 kB\n";
        assert_eq!(resident(status), Some([9.0, 2.0]));
        assert_eq!(resident("Name:\tsiskin\nState:\tZ (zombie)\n"), None);
    }
}
