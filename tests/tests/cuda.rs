//! The CUDA executor, its kernels carried out without a graphics processor, against the rules of the CPU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use siskin_tests::cuda::{Emulated, program};
use siskin_tests::gradients::load;
use siskin_tests::{golden, texts};
use siskin_trainer::cuda::{Precision, Runner as Device};
use siskin_trainer::loss::{CrossEntropy, Sum, Targets};
use siskin_trainer::{Goal, Gradients, Parameters, Recompute, Runner};

/// A device; `None`, with a word about it, where there is no compiler of C++.
fn device() -> Option<Emulated> {
    let program = program(Path::new(env!("CARGO_TARGET_TMPDIR")));
    if program.is_none() {
        eprintln!("skipped: no C++ compiler for 64-bit Linux");
    }
    program.map(Emulated::new)
}

fn targets(rows: usize, columns: usize) -> Targets {
    Targets {
        ids: (0..rows).map(|row| ((row * 7 + 3) % columns) as u32).collect(),
        weights: (0..rows).map(|row| if row % 5 == 4 { 0.0 } else { 1.0 }).collect(),
        numbers: Vec::new(),
    }
}

/// How far numbers are from others, beside the largest of them.
fn error(got: &[f32], want: &[f32], least: f32) -> f32 {
    let largest = want.iter().fold(least, |most, x| most.max(x.abs()));
    assert_eq!(got.len(), want.len());
    got.iter()
        .zip(want)
        .map(|(a, b)| if a.is_nan() { f32::INFINITY } else { (a - b).abs() })
        .fold(0.0, f32::max)
        / largest
}

/// Loss and gradients of a golden model on both; `None` where there are no kernels for it.
fn both(name: &str, precision: Precision, recompute: Recompute) -> Option<[(Sum, Vec<Vec<f32>>); 2]> {
    let case = load(name);
    let parameters = Parameters::<f32>::read(&case.program.weights, &case.file).unwrap();
    let output = case.program.values[case.program.output];
    let targets = targets(output.row_count(&case.batch), output.columns);
    let loss = CrossEntropy { smoothing: 0.1 };
    let scale = 0.25;
    let mut own = Gradients::zeros(&parameters, |_| true);
    let runner = Device::new(device()?, precision, case.program.clone(), recompute, &parameters, |_| true);
    let mut runner = match runner {
        Ok(runner) => runner,
        Err(error) => {
            assert_eq!(error.place(), "device", "{name}: {error}");
            return None;
        }
    };
    runner.run(&case.batch, loss, &targets, scale).unwrap_or_else(|error| panic!("{name}: {error}"));
    let sum = runner.take_sum().unwrap();
    runner.gradients(&mut own).unwrap();
    let mut cpu = Runner::new(case.program.clone(), Recompute::Nothing, |_| true).unwrap();
    let mut want = Gradients::zeros(&parameters, |_| true);
    let goal = Goal { loss: &loss, targets: &targets, scale };
    let cpu_sum = cpu.run(&parameters, &case.batch, goal, &mut want).unwrap();
    let list = |gradients: Gradients<f32>| gradients.list.into_iter().flatten().collect();
    Some([(sum, list(own)), (cpu_sum, list(want))])
}

fn compare(name: &str, precision: Precision, limit: f32) -> Option<String> {
    let [(sum, own), (cpu_sum, want)] = both(name, precision, Recompute::Nothing)?;
    let mut report = String::new();
    let apart = ((sum.mean() - cpu_sum.mean()) / cpu_sum.mean()).abs();
    if apart.is_nan() || apart > f64::from(limit) || sum.weight != cpu_sum.weight {
        report += &format!("{name} {precision:?}: {sum:?}, not {cpu_sum:?}\n");
    }
    let whole = want.iter().flatten().fold(0.0_f32, |most, x| most.max(x.abs()));
    let case = load(name);
    for ((weight, own), want) in case.program.weights.iter().zip(&own).zip(&want) {
        let error = error(own, want, whole * 1e-3);
        if error.is_nan() || error > limit {
            report += &format!("{name} {precision:?}: {} {error:.1e}\n", weight.name);
        }
    }
    Some(report)
}

#[test]
fn gradients_are_those_of_the_cpu() {
    let names = golden::NAMES.iter().chain(texts::NAMES).copied();
    let all: Vec<(&str, Option<String>)> =
        names.map(|name| (name, compare(name, Precision::F32, 1e-4))).collect();
    let report: String = all.iter().filter_map(|(_, report)| report.clone()).collect();
    let without: Vec<&str> =
        all.iter().filter(|(_, report)| report.is_none()).map(|(name, _)| *name).collect();
    println!("no kernels: {without:?}");
    assert!(report.is_empty(), "beyond 1e-4:\n{report}");
}
