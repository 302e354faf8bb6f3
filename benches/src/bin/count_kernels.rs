//! Kernel calls whose instructions `cargo xtask counts` counts.
//!
//! Without arguments, prints every `TABLE CASE` that this processor can run. `count_kernels TABLE CASE REPEATS` sets up
//! the case and repeats its call: the cost of a call follows from the difference between two runs.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use siskin_benches::{BenchRandom, PackedMatrix, quantized, vector};
use siskin_kernels::ops::attention::{self, BLOCK, CacheType, KeySpan, Query};
use siskin_kernels::ops::quantize::QuantizedRowLayout;
use siskin_kernels::ops::{Kernels, activation, norm};
use siskin_kernels::panel::PanelType;
use siskin_kernels::{Cpu, CpuFeatures};
use std::hint::black_box;
use std::process::ExitCode;

/// A kernel call, run with a kernel table a given number of times.
struct Case {
    name: &'static str,
    run: fn(&Kernels, usize),
}

const CASES: &[Case] = &[
    Case { name: "matmul-q8-1", run: |kernels, repeats| product(kernels, PanelType::Q8, 1, repeats) },
    Case { name: "matmul-q8-8", run: |kernels, repeats| product(kernels, PanelType::Q8, 8, repeats) },
    Case { name: "matmul-q4-1", run: |kernels, repeats| product(kernels, PanelType::Q4, 1, repeats) },
    Case { name: "matmul-q4-8", run: |kernels, repeats| product(kernels, PanelType::Q4, 8, repeats) },
    Case { name: "matmul-q6k-1", run: |kernels, repeats| product(kernels, PanelType::Q6K, 1, repeats) },
    Case { name: "matmul-q6k-8", run: |kernels, repeats| product(kernels, PanelType::Q6K, 8, repeats) },
    Case { name: "matmul-w8r-1", run: |kernels, repeats| product(kernels, PanelType::W8R, 1, repeats) },
    Case { name: "matmul-w8r-8", run: |kernels, repeats| product(kernels, PanelType::W8R, 8, repeats) },
    Case { name: "matmul-w4i-1", run: |kernels, repeats| product(kernels, PanelType::W4I, 1, repeats) },
    Case { name: "matmul-w4i-8", run: |kernels, repeats| product(kernels, PanelType::W4I, 8, repeats) },
    Case { name: "attention-f16-3", run: |kernels, repeats| attend(kernels, CacheType::F16, 3, repeats) },
    Case { name: "attention-f16-48", run: |kernels, repeats| attend(kernels, CacheType::F16, 48, repeats) },
    Case { name: "attention-int8-3", run: |kernels, repeats| attend(kernels, CacheType::Int8, 3, repeats) },
    Case { name: "attention-int14-3", run: |kernels, repeats| attend(kernels, CacheType::Int14, 3, repeats) },
    Case {
        name: "attention-int14-48",
        run: |kernels, repeats| attend(kernels, CacheType::Int14, 48, repeats),
    },
    Case { name: "norm", run: normalize },
    Case { name: "gate", run: gate },
    Case { name: "quantize", run: quantize },
];

/// Columns of rows that are not attention heads.
const COLUMNS: usize = 512;

fn main() -> ExitCode {
    let tables = tables();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        for (table, _) in &tables {
            CASES.iter().for_each(|case| println!("{table} {}", case.name));
        }
        return ExitCode::SUCCESS;
    }
    let chosen = match arguments.as_slice() {
        [table, case, repeats] => {
            let table = tables.iter().find(|(name, _)| name == table);
            table.zip(CASES.iter().find(|known| known.name == case)).zip(repeats.parse().ok())
        }
        _ => None,
    };
    let Some((((_, kernels), case), repeats)) = chosen else {
        eprintln!("usage: count_kernels [TABLE CASE REPEATS], as listed without arguments");
        return ExitCode::from(2);
    };
    (case.run)(kernels, repeats);
    ExitCode::SUCCESS
}

/// Returns the kernel tables that are counted and that this processor supports.
fn tables() -> Vec<(&'static str, Kernels)> {
    let avx2 = Cpu::detect().without(CpuFeatures::AVX512.with(CpuFeatures::AVXVNNI));
    let best = avx2.has(CpuFeatures::AVX2).then_some(("avx2", Kernels::for_cpu(avx2)));
    best.into_iter().chain([("scalar", Kernels::for_cpu(Cpu::scalar()))]).collect()
}

fn product(kernels: &Kernels, panel: PanelType, rows: usize, repeats: usize) {
    const OUTPUTS: usize = 64;
    let mut random = BenchRandom::new(1);
    let matrix = PackedMatrix::new(panel, OUTPUTS, COLUMNS, &mut random);
    let x = vector(rows * COLUMNS, &mut random);
    let words = quantized(kernels, panel, &x, COLUMNS);
    let mut out = vec![0.0; rows * OUTPUTS];
    for _ in 0..repeats {
        matrix.multiply(kernels, matrix.input(&x, black_box(&words)), rows, black_box(&mut out));
    }
}

struct Blocks(Vec<(Vec<u32>, Vec<u32>)>);

impl attention::HeadCache for Blocks {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        let (keys, values) = &self.0[block];
        (keys, values)
    }
}

/// Computes attention of `count` queries over a chunk of keys: scores, softmax and values.
fn attend(kernels: &Kernels, cache: CacheType, count: usize, repeats: usize) {
    const HEAD: usize = 64;
    const LENGTH: usize = 256;
    let mut random = BenchRandom::new(2);
    let words = cache.words(HEAD);
    let mut blocks = Blocks(vec![(vec![0; words], vec![0; words]); LENGTH / BLOCK]);
    for position in 0..LENGTH {
        let (key, value) = (vector(HEAD, &mut random), vector(HEAD, &mut random));
        let (keys, values) = &mut blocks.0[position / BLOCK];
        attention::store(cache, position % BLOCK, &[(&key, &value)], keys, values);
    }
    let rows = vector(count * HEAD, &mut random);
    let query = |(i, values)| Query::at(LENGTH - count + i, values);
    let queries: Vec<_> = rows.chunks(HEAD).enumerate().map(query).collect();
    let arguments = attention::AttentionArguments { head_size: HEAD, scale: 0.125, softcap: 0.0, cache };
    let mut scratch = vec![0.0; attention::scratch_size(HEAD)];
    let mut out = vec![0.0; count * HEAD];
    let mut out: Vec<&mut [f32]> = out.chunks_mut(HEAD).collect();
    for _ in 0..repeats {
        let queries = black_box(queries.as_slice());
        kernels.attention()(&arguments, queries, &blocks, KeySpan::Whole, &mut scratch, black_box(&mut out));
    }
}

fn normalize(kernels: &Kernels, repeats: usize) {
    let mut random = BenchRandom::new(3);
    let (x, weight) = (vector(COLUMNS, &mut random), vector(COLUMNS, &mut random));
    let arguments = norm::NormArguments { centered: false, weight: &weight, bias: &[], epsilon: 1e-5 };
    let mut out = vec![0.0; COLUMNS];
    for _ in 0..repeats {
        kernels.norm()(&arguments, black_box(&x), black_box(&mut out));
    }
}

fn gate(kernels: &Kernels, repeats: usize) {
    let mut random = BenchRandom::new(4);
    let (x, y) = (vector(COLUMNS, &mut random), vector(COLUMNS, &mut random));
    let mut out = vec![0.0; COLUMNS];
    for _ in 0..repeats {
        kernels.gate()(
            activation::ActivationFunction::Silu,
            black_box(&x),
            black_box(&y),
            black_box(&mut out),
        );
    }
}

fn quantize(kernels: &Kernels, repeats: usize) {
    let x = vector(COLUMNS, &mut BenchRandom::new(5));
    let mut words = vec![0; QuantizedRowLayout::new(COLUMNS).words()];
    for _ in 0..repeats {
        kernels.quantize()(black_box(&x), black_box(&mut words));
    }
}
