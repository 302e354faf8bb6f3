//! Measures matmuls of integer panels and prints lines that `cargo xtask bench-peers --kernels` reads.
//!
//! `bench_matmul WIDTH THREADS ROWS…` multiplies rows by square matrices of size `WIDTH` and prints `name value`
//! lines. For each number of rows M: `bare-int8 M seconds` (inputs already quantized), `int8 M seconds` and `int4 M
//! seconds` (quantization included; `int8` has one scale per row). Then the peak rates: `ceiling GOPS`, and `reads-int8
//! bytes/s` and `reads-int4 bytes/s` of reading as many bytes as the matrix has. Last, the name of the kernel.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use siskin_benches::{BenchRandom, PackedMatrix, SharedRows, read_rate, time_together, vector};
use siskin_kernels::Cpu;
use siskin_kernels::ops::{Kernels, peak};
use siskin_kernels::panel::PanelType;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of each measurement.
const PATIENCE: Duration = Duration::from_millis(150);

fn main() -> ExitCode {
    let numbers: Option<Vec<usize>> = std::env::args().skip(1).map(|text| text.parse().ok()).collect();
    match numbers.as_deref() {
        Some([width, threads, rows @ ..])
            if width.is_multiple_of(64) && *width > 0 && *threads > 0 && !rows.contains(&0) =>
        {
            measure_all(*width, *threads, rows);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: bench_matmul WIDTH THREADS ROWS…, the width in multiples of 64");
            ExitCode::from(2)
        }
    }
}

fn measure_all(width: usize, threads: usize, rows: &[usize]) {
    let kernels = Kernels::for_cpu(Cpu::detect());
    println!("kernel {}", kernels.names().last().unwrap_or_default());
    println!("ceiling {}", ceiling(&kernels, threads));
    let mut random = BenchRandom::new(3);
    for (name, panel) in [("int8", PanelType::W8R), ("int4", PanelType::Q4)] {
        let matrix = PackedMatrix::new(panel, width, width, &mut random);
        println!("reads-{name} {}", read_rate(&kernels, threads, matrix.weights.len(), PATIENCE));
        println!("bytes-{name} {}", matrix.weights.len());
        for &rows in rows {
            let x = vector(rows * width, &mut random);
            let mut product = SharedRows::new(kernels, &matrix, &x);
            if panel == PanelType::W8R {
                println!("bare-{name} {rows} {}", product.seconds(threads, false, PATIENCE));
            }
            println!("{name} {rows} {}", product.seconds(threads, true, PATIENCE));
        }
    }
}

/// Returns the peak rate of int8 multiply-adds in GOPS.
fn ceiling(kernels: &Kernels, threads: usize) -> f64 {
    const ROUNDS: usize = 100_000;
    let dots = peak::dots_for_cpu(kernels.cpu());
    let run = |_| dots(ROUNDS, black_box(&mut [1.0; 16]));
    let seconds = time_together(threads, &[(0..threads, &run)], PATIENCE);
    (2 * threads * ROUNDS * peak::DOT_ROUND) as f64 / seconds / 1e9
}
