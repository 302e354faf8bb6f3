//! Measures the memory read bandwidth: `bench_reads BYTES THREADS` prints bytes per second.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use siskin_benches::read_rate;
use siskin_kernels::Cpu;
use siskin_kernels::ops::Kernels;
use std::process::ExitCode;
use std::time::Duration;

/// Duration of the measurement.
const PATIENCE: Duration = Duration::from_millis(600);

fn main() -> ExitCode {
    let numbers: Option<Vec<usize>> = std::env::args().skip(1).map(|text| text.parse().ok()).collect();
    match numbers.as_deref() {
        Some([bytes, threads]) if *bytes >= 64 && *threads > 0 => {
            println!("{}", read_rate(&Kernels::for_cpu(Cpu::detect()), *threads, *bytes, PATIENCE));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: bench_reads BYTES THREADS");
            ExitCode::from(2)
        }
    }
}
