//! `--kernels`: 8-bit and 4-bit matmuls, compared to ONNX Runtime and OpenVINO.
//!
//! Our matrices have one scale per 32 columns on both sides. The peers' 8-bit matrices have one scale per matrix, row
//! or column, which is less work; their 4-bit matrices have one scale per 32 columns too.

use super::peers::{self, Peer};
use super::report::cpu_name;
use super::{Options, ROUNDS};
use crate::shell::{self, Result, output, program};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sizes of the square matrices.
const WIDTHS: [usize; 4] = [768, 1536, 2048, 3072];
/// Rows of the left operand, M.
const ROWS: [&str; 4] = ["1", "32", "128", "512"];
/// Default numbers of threads.
const THREADS: [usize; 2] = [2, 1];

const ENGINES: [&Peer; 2] = [&peers::ONNX_RUNTIME, &peers::OPENVINO];

/// One kind of matmul, in all engines.
struct Work {
    title: &'static str,
    /// The name of ours, and of its weights.
    ours: &'static str,
    weights: &'static str,
    /// The names in each other engine; the fastest counts.
    theirs: [&'static [&'static str]; 2],
}

const WORKS: [Work; 3] = [
    Work {
        title: "int8 weights, int8 activations",
        ours: "bare-int8",
        weights: "int8",
        theirs: [&["MatMulInteger", "QLinearMatMul"], &[]],
    },
    Work {
        title: "int8 weights, f32 activations",
        ours: "int8",
        weights: "int8",
        theirs: [&["DynamicQuantizeLinear+MatMulInteger"], &["int8"]],
    },
    Work {
        title: "int4 weights, f32 activations",
        ours: "int4",
        weights: "int4",
        theirs: [&["MatMulNBits"], &["u4"]],
    },
];

/// Values that a program printed, by name.
type Numbers = BTreeMap<String, f64>;

/// Measures all in turns and prints a table for each number of threads.
pub(super) fn compare(options: &Options) -> Result {
    let python = match peers::python() {
        Ok(python) => python,
        Err(why) => return skipped(&why),
    };
    let engines: Vec<_> =
        ENGINES.into_iter().filter(|engine| engine.is_had(&python)).map(|engine| engine.name).collect();
    if engines.is_empty() {
        return skipped("neither ONNX Runtime nor OpenVINO could be installed");
    }
    shell::measuring("bench_matmul")?;
    for threads in options.threads.map_or(THREADS.to_vec(), |threads| vec![threads]) {
        compare_with(&python, &engines, threads, options.rounds.unwrap_or(ROUNDS))?;
    }
    Ok(())
}

fn skipped(why: &str) -> Result {
    println!("skipped: no peer for the kernels: {}", why.lines().next().unwrap_or_default());
    Ok(())
}

fn compare_with(python: &Path, engines: &[&str], threads: usize, rounds: usize) -> Result {
    let (mut measured, mut ceiling, mut kernel) = (Vec::new(), 0.0_f64, String::new());
    for width in WIDTHS {
        let mut ours = Numbers::new();
        let mut theirs = ENGINES.each_ref().map(|_| Numbers::new());
        for round in 0..rounds {
            eprintln!("width {width}, threads {threads}, round {} of {rounds}", round + 1);
            let said = say(&mut program(shell::release("bench_matmul"), &[]), width, threads)?;
            let named = said.lines().find_map(|line| line.strip_prefix("kernel "));
            kernel = named.unwrap_or_default().to_owned();
            keep_best(&mut ours, &said);
            for (engine, numbers) in ENGINES.iter().zip(&mut theirs) {
                if engines.contains(&engine.name) {
                    let mut script = program(python, &["xtask/python/bench_matmul.py", engine.name]);
                    keep_best(numbers, &say(&mut script, width, threads)?);
                }
            }
        }
        ceiling = ceiling.max(number(&ours, "ceiling")?);
        measured.push((width, ours, theirs));
    }
    let mut rows = Vec::new();
    for (width, ours, theirs) in &measured {
        for (work, count) in WORKS.iter().flat_map(|work| ROWS.map(|count| (work, count))) {
            rows.push(row(work, (*width, count), ceiling, ours, theirs)?);
        }
    }
    let packages: Vec<_> = ENGINES.iter().filter_map(|engine| engine.packages.last()).copied().collect();
    println!("\nCPU: {}. Threads: {threads}. The best of {rounds} rounds. Kernel: {kernel}.", cpu_name());
    println!("{}. Numbers are GOPS: 2 · M · width² / time.", packages.join(", "));
    println!(
        "The machine's int8 ceiling with this kernel's instructions: {ceiling:.0} GOPS. `reached`: of that ceiling;"
    );
    println!("for M = 1 of the bandwidth of only reading as many bytes, in the next column.\n");
    println!("| product | width | M | siskin | reached | ONNX Runtime | OpenVINO | siskin / best peer |");
    println!("|---|---|---|---|---|---|---|---|");
    println!("{}", rows.join("\n"));
    Ok(())
}

fn say(command: &mut Command, width: usize, threads: usize) -> Result<String> {
    output(command.args([width.to_string(), threads.to_string()]).args(ROWS))
}

/// Keeps the shortest times and the highest rates of the lines `name value` in `said`.
fn keep_best(numbers: &mut Numbers, said: &str) {
    for (name, value) in said.lines().filter_map(|line| line.rsplit_once(' ')) {
        let Ok(value) = value.parse::<f64>() else { continue };
        let is_rate = name == "ceiling" || name.starts_with("reads-");
        let better = |before: f64| if is_rate { before.max(value) } else { before.min(value) };
        numbers.entry(name.to_owned()).and_modify(|before| *before = better(*before)).or_insert(value);
    }
}

fn number(numbers: &Numbers, name: &str) -> Result<f64> {
    numbers.get(name).copied().ok_or_else(|| format!("bench_matmul said no `{name}`"))
}

fn row(
    work: &Work,
    (width, count): (usize, &str),
    ceiling: f64,
    ours: &Numbers,
    theirs: &[Numbers; 2],
) -> Result<String> {
    let operations = 2.0 * count.parse::<f64>().unwrap_or(0.0) * (width * width) as f64 / 1e9;
    let seconds = number(ours, &format!("{} {count}", work.ours))?;
    let gops = operations / seconds;
    let reached = if count == "1" {
        let reads = number(ours, &format!("reads-{}", work.weights))?;
        let rate = number(ours, &format!("bytes-{}", work.weights))? / seconds;
        format!("{:.0}% of {:.0} GB/s", 100.0 * rate / reads, reads / 1e9)
    } else {
        format!("{:.0}%", 100.0 * gops / ceiling)
    };
    let time = |(names, numbers): (&&[&str], &Numbers)| {
        let times = names.iter().filter_map(|name| numbers.get(&format!("{name} {count}")).copied());
        times.reduce(f64::min).map(|seconds| operations / seconds)
    };
    let peers: Vec<Option<f64>> = work.theirs.iter().zip(theirs).map(time).collect();
    let shown = |gops: &Option<f64>| gops.map_or_else(|| "–".to_owned(), |gops| format!("{gops:.0}"));
    let best = peers.iter().flatten().copied().reduce(f64::max);
    let ratio = best.map_or_else(|| "–".to_owned(), |best| format!("{:.2}", gops / best));
    let columns: Vec<String> = peers.iter().map(shown).collect();
    let title = work.title;
    Ok(format!("| {title} | {width} | {count} | {gops:.0} | {reached} | {} | {ratio} |", columns.join(" | ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_all_rounds_is_compared_with_the_best_peer() {
        let (mut ours, mut theirs) = (Numbers::new(), [Numbers::new(), Numbers::new()]);
        keep_best(
            &mut ours,
            "kernel x\nceiling 100\nint8 1 0.002\nint8 32 1e-3\nbytes-int8 4e6\nreads-int8 8e9\n",
        );
        keep_best(&mut ours, "ceiling 128\nint8 1 0.001\nint8 32 2e-3\nbytes-int8 4e6\nreads-int8 5e9\n");
        keep_best(&mut theirs[0], "DynamicQuantizeLinear+MatMulInteger 32 5e-4\n");
        keep_best(&mut theirs[1], "int8 32 4e-3\nint8 1 5e-4\n");
        let row = |count| row(&WORKS[1], (1000, count), ours["ceiling"], &ours, &theirs);
        let want = "| int8 weights, f32 activations | 1000 | 32 | 64 | 50% | 128 | 16 | 0.50 |";
        assert_eq!(row("32").as_deref(), Ok(want));
        let want = "| int8 weights, f32 activations | 1000 | 1 | 2 | 50% of 8 GB/s | – | 4 | 0.50 |";
        assert_eq!(row("1").as_deref(), Ok(want));
        assert!(row("128").is_err());
    }
}
