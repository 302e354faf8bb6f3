//! `--encoders`: all-MiniLM-L6-v2, and a BERT-base with random weights, at 8 bits, compared to ONNX Runtime, OpenVINO and
//! CTranslate2.
//!
//! The peers read our ONNX export, CTranslate2 the folder. All return the last hidden states of all tokens.

use super::peers::{self, Peer};
use super::programs::siskin;
use super::report::{cpu_name, median, middle, value};
use super::{Options, ROUNDS, THREADS, build, model};
use crate::shell::{self, Result, output, program, run};
use std::path::{Path, PathBuf};

const MODEL: &str = "minilm";
/// The model with random weights, in the folder of models.
const RANDOM: &str = "bert-base-random";
const ENGINES: [&Peer; 3] = [&peers::ONNX_RUNTIME, &peers::OPENVINO, &peers::CTRANSLATE2];

/// Batch sizes and sequence lengths, which the texts of a batch use in turn.
const WORKS: [(&str, &str); 4] =
    [("1", "16"), ("1", "128"), ("8", "128"), ("32", "16,128,40,7,64,100,24,12")];

/// A measurement of an engine: arithmetic, workload as named by the script, milliseconds.
type Time = (String, String, f64);

/// Measures all engines in turns and prints a table.
pub(super) fn compare(options: &Options) -> Result {
    let (threads, rounds) = (options.threads.unwrap_or(THREADS), options.rounds.unwrap_or(ROUNDS));
    let python = peers::python()?;
    let engines: Vec<&Peer> = ENGINES.into_iter().filter(|engine| engine.is_had(&python)).collect();
    if engines.is_empty() {
        println!("skipped: no peer for the encoders could be installed");
        return Ok(());
    }
    build()?;
    let minilm = model::bring(MODEL)?;
    let random = shell::models()?.join(RANDOM);
    if !random.exists() {
        run(program(&python, &["xtask/python/random_bert.py"]).arg(&minilm).arg(&random))?;
    }
    for folder in [&minilm, &random] {
        measure(&python, &engines, folder, (threads, rounds))?;
    }
    Ok(())
}

/// Measures a model and prints a table.
fn measure(python: &Path, engines: &[&Peer], folder: &Path, (threads, rounds): (usize, usize)) -> Result {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let (file, onnx) = forms(folder)?;
    let works = WORKS.map(|(texts, lengths)| format!("{texts}:{lengths}"));
    let mut ours = WORKS.map(|_| Vec::new());
    let mut theirs: Vec<Vec<Time>> = engines.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        eprintln!("{name}, round {} of {rounds}", round + 1);
        for ((texts, lengths), reports) in WORKS.iter().zip(&mut ours) {
            reports.push(siskin(&file, &["--texts", texts, "--lengths", lengths], threads)?);
        }
        for (engine, times) in engines.iter().zip(&mut theirs) {
            let mut script = program(python, &["xtask/python/bench_encoders.py", engine.name]);
            let said = output(script.arg(folder).arg(&onnx).arg(threads.to_string()).args(&works))?;
            times.extend(said.lines().filter_map(time));
        }
    }
    let kernels = ours[0].first().and_then(|json| value(json, "kernels")).unwrap_or_default();
    println!(
        "\n{name}. CPU: {}. Threads: {threads}. Medians of {rounds} rounds. Kernels: {kernels}.",
        cpu_name()
    );
    let packages: Vec<_> = engines.iter().filter_map(|engine| engine.packages.last()).copied().collect();
    println!("{}. Milliseconds.\n", packages.join(", "));
    let names: Vec<_> = engines.iter().map(|engine| engine.name).collect();
    println!("| texts × tokens | siskin w8r | {} | best peer / siskin |", names.join(" | "));
    println!("|---|---|{}---|", "---|".repeat(names.len()));
    for ((work, reports), (texts, lengths)) in works.iter().zip(&ours).zip(WORKS) {
        println!("{}", row(&format!("{texts} × {lengths}"), median(reports, "read_ms")?, work, &theirs));
    }
    Ok(())
}

/// Returns the model with 8-bit weights, and the ONNX export, both written by this build.
fn forms(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (file, onnx) = (folder.with_extension("w8r.siskin"), folder.with_extension("onnx"));
    let mut convert = program(shell::release("siskin"), &["convert", "--quiet", "--quant", "w8r"]);
    run(convert.arg(folder).arg("--output").arg(&file))?;
    let mut export = program(shell::release("siskin"), &["export", "--quiet", "--force", "--dtype", "f32"]);
    run(export.arg(folder).arg("--output").arg(&onnx))?;
    Ok((file, onnx))
}

/// Parses a line of the script's output.
fn time(line: &str) -> Option<Time> {
    let mut words = line.split(' ');
    let (kind, work, number) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
    Some((kind.to_owned(), work.to_owned(), number))
}

/// Returns a row of the table, with each engine's fastest arithmetic.
fn row(title: &str, ours: f64, work: &str, theirs: &[Vec<Time>]) -> String {
    let fastest = theirs.iter().map(|times| fastest(times, work));
    let (mut best, mut columns) = (f64::INFINITY, Vec::new());
    for peer in fastest {
        columns.push(peer.map_or_else(|| "–".to_owned(), |(kind, number)| format!("{number:.2} ({kind})")));
        best = best.min(peer.map_or(f64::INFINITY, |(_, number)| number));
    }
    let ratio = if best.is_finite() { format!("{:.2}", best / ours) } else { "–".to_owned() };
    format!("| {title} | {ours:.2} | {} | {ratio} |", columns.join(" | "))
}

/// Returns the arithmetic with the lowest median, and that median.
fn fastest<'a>(times: &'a [Time], work: &str) -> Option<(&'a str, f64)> {
    let of = |kind: &str| {
        let same = times.iter().filter(|(other, done, _)| other == kind && done == work);
        middle(same.map(|(.., number)| *number).collect())
    };
    let kinds = times.iter().filter_map(|(kind, ..)| Some((kind.as_str(), of(kind)?)));
    kinds.min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_arithmetic_of_the_fastest_peer_counts() {
        let said =
            "bf16 1:16 4\nint8 1:16 3\nint8 8:128 1\nbf16 1:16 2\nbf16 1:16 2.5\nint8 1:16 5\nnot a time\n";
        let times =
            [said.lines().filter_map(time).collect(), Vec::new(), vec![("int8".into(), "1:16".into(), 2.0)]];
        assert_eq!(
            row("1 × 16", 1.0, "1:16", &times),
            "| 1 × 16 | 1.00 | 2.50 (bf16) | – | 2.00 (int8) | 2.00 |"
        );
        assert_eq!(row("2 × 9", 1.0, "2:9", &times), "| 2 × 9 | 1.00 | – | – | – | – |");
    }
}
