//! Measures every kernel on one thread and compares it to the machine's peak throughput.
//!
//! `cargo xtask bench-kernels [FILTER]`. Times are the minimum of several runs: interference only makes runs longer.

#![allow(clippy::print_stdout, reason = "this is what it is for")]

use siskin_benches::{AlignedLines, BenchRandom, PackedMatrix, quantized, read_rate, vector};
use siskin_kernels::ops::attention::{self, BLOCK, CacheType, KeySpan, Query};
use siskin_kernels::ops::{Kernels, activation, norm, peak, quantize};
use siskin_kernels::panel::PanelType;
use siskin_kernels::{Cpu, CpuFeatures};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Time limit of each measurement.
const PATIENCE: Duration = Duration::from_millis(60);

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let wanted = |name: &str| name.to_lowercase().contains(&filter.to_lowercase());
    let cpu = Cpu::detect();
    let avx2 = CpuFeatures::AVX512.with(CpuFeatures::AVXVNNI);
    let levels = [CpuFeatures::NONE, CpuFeatures::AMX, CpuFeatures::AVX512, avx2, CpuFeatures::AVX2];
    let mut tables: Vec<Kernels> = Vec::new();
    for without in levels {
        let table = Kernels::for_cpu(cpu.without(without));
        if tables.iter().all(|other| other.names().ne(table.names())) {
            tables.push(table);
        }
    }
    println!("features: {}", cpu.features());
    for (name, bytes) in [("256 KiB", 256 << 10), ("8 MiB", 8 << 20), ("512 MiB", 512 << 20)] {
        println!("reading {name}: {:.1} GB/s", read_rate(&tables[0], 1, bytes, PATIENCE) / 1e9);
    }
    for table in &tables {
        let name = table.names().last().unwrap_or_default();
        let ceiling = rate(peak::for_cpu(table.cpu()), peak::ROUND * 16);
        let dots = rate(peak::dots_for_cpu(table.cpu()), peak::DOT_ROUND);
        println!("\n## {name}: at most {ceiling:.0} GFLOPS of f32 and {dots:.0} GOPS of signed bytes");
        if wanted("attention") {
            for cache in [CacheType::F32, CacheType::Int14] {
                attend(table, cache, &TEXTS, ceiling);
            }
            for cache in [CacheType::F16, CacheType::Int14, CacheType::Int8] {
                attend(table, cache, &CHATS, ceiling);
            }
        }
        if wanted("rows") {
            rows(table);
        }
        if wanted("batches") && !name.ends_with("scalar") {
            small_batches(table);
        }
        products(table, &wanted);
    }
}

/// Returns the best time of a run, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    let mut runs = 0;
    while runs < 3 || start.elapsed() < PATIENCE {
        let begin = Instant::now();
        work();
        best = best.min(begin.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Returns the rate of a loop with `round` multiply-adds per iteration, in GOPS.
fn rate(run: peak::Function, round: usize) -> f64 {
    const ROUNDS: usize = 100_000;
    let seconds = best(|| run(ROUNDS, black_box(&mut [1.0; 16])));
    (ROUNDS * round * 2) as f64 / seconds / 1e9
}

struct Blocks {
    words: Vec<[AlignedLines<u32>; 2]>,
}

impl attention::HeadCache for Blocks {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        let [keys, values] = &self.words[block];
        (keys, values)
    }
}

/// Head size, query heads per KV head, and number of keys, as in decoders.
const CHATS: [(usize, usize, usize); 5] =
    [(64, 3, 512), (64, 3, 4096), (64, 3, 16384), (128, 4, 4096), (256, 4, 512)];
/// The same as in encoders.
const TEXTS: [(usize, usize, usize); 3] = [(32, 1, 128), (64, 1, 128), (64, 1, 512)];

/// Measures attention as in prefill and in decode.
fn attend(table: &Kernels, cache: CacheType, cases: &[(usize, usize, usize)], ceiling: f64) {
    println!("\n| attention | queries | keys | GFLOPS | of the ceiling | GB/s |\n|---|---|---|---|---|---|");
    let mut random = BenchRandom::new(1);
    for &(head_size, group, length) in cases {
        let words = cache.words(head_size);
        let block = |_| [AlignedLines::new(words), AlignedLines::new(words)];
        let mut blocks = Blocks { words: (0..length / BLOCK).map(block).collect() };
        for position in 0..length {
            let (key, value) = (vector(head_size, &mut random), vector(head_size, &mut random));
            let [keys, values] = blocks.words[position / BLOCK].each_mut();
            attention::store(cache, position % BLOCK, &[(&key, &value)], keys, values);
        }
        for count in [group, attention::QUERIES] {
            let rows: Vec<_> = (0..count).map(|_| vector(head_size, &mut random)).collect();
            let query = |(i, values): (usize, &'static [f32])| Query::at(length - count + i, values);
            let rows: Vec<&'static [f32]> = rows.into_iter().map(|row| &*row.leak()).collect();
            let queries: Vec<_> = rows.into_iter().enumerate().map(query).collect();
            let arguments = attention::AttentionArguments { head_size, scale: 0.125, softcap: 0.0, cache };
            let mut scratch = AlignedLines::new(attention::scratch_size(head_size));
            let mut out = vec![vec![0.0; head_size]; count];
            let seconds = best(|| {
                let mut out: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                table.attention()(&arguments, &queries, &blocks, KeySpan::Whole, &mut scratch, &mut out);
            });
            let flops = (4 * count * length * head_size) as f64 / seconds / 1e9;
            let read = (8 * words / BLOCK * length) as f64 / seconds / 1e9;
            let share = 100.0 * flops / ceiling;
            println!(
                "| {cache:?}, {head_size} columns | {count} | {length} | {flops:.0} | {share:.0}% | {read:.1} |"
            );
        }
    }
}

/// Measures row operations, each on a row in the L1 cache.
fn rows(table: &Kernels) {
    const SIZES: [usize; 3] = [576, 768, 3072];
    println!("\n| operation | ns for 576 columns | 768 | 3072 |\n|---|---|---|---|");
    let mut random = BenchRandom::new(3);
    let report = |name: &str, run: &mut dyn FnMut(usize)| {
        let times = SIZES.map(|columns| {
            const TIMES: usize = 64;
            1e9 * best(|| (0..TIMES).for_each(|_| run(columns))) / TIMES as f64
        });
        println!("| {name} | {:.0} | {:.0} | {:.0} |", times[0], times[1], times[2]);
    };
    let (a, b) = (vector(3072, &mut random), vector(3072, &mut random));
    let mut out = vec![0.0; 3072];
    let mut words = vec![0; quantize::QuantizedRowLayout::new(3072).words()];
    report("quantize", &mut |columns| table.quantize()(black_box(&a[..columns]), &mut words));
    report("quantize, rotated", &mut |columns| {
        table.quantize_rotated()(black_box(&a[..columns]), &mut words)
    });
    report("norm", &mut |columns| {
        let weight = &b[..columns];
        let arguments = norm::NormArguments { centered: false, weight, bias: &[], epsilon: 1e-5 };
        table.norm()(&arguments, black_box(&a[..columns]), &mut out[..columns]);
    });
    report("SiLU and gate", &mut |columns| {
        let gate = table.gate();
        gate(
            activation::ActivationFunction::Silu,
            black_box(&a[..columns]),
            &b[..columns],
            &mut out[..columns],
        );
    });
    report("GELU", &mut |columns| {
        table.activate()(activation::ActivationFunction::Gelu, black_box(&a[..columns]), &mut out[..columns]);
    });
    report("add", &mut |columns| {
        table.add()(black_box(&a[..columns]), &b[..columns], &mut out[..columns]);
    });
}

/// Measures matmuls of every panel type.
fn products(table: &Kernels, wanted: &dyn Fn(&str) -> bool) {
    const OUTPUTS: usize = 1024;
    /// Rows and columns. With short rows, a tile spends a larger part of its time in the prologue and epilogue.
    const SIZES: [(usize, usize); 6] = [(1, 2048), (4, 2048), (8, 2048), (32, 2048), (128, 2048), (128, 512)];
    let titles = SIZES.map(|(rows, columns)| format!(" {rows} × {columns} |")).concat();
    println!("\n| type | GB/s |{titles}\n|---|---|{}", "---|".repeat(SIZES.len()));
    let mut random = BenchRandom::new(2);
    for &ty in PanelType::ALL.iter().filter(|ty| wanted(ty.name())) {
        let cells = SIZES.map(|(rows, columns)| {
            let matrix = PackedMatrix::new(ty, OUTPUTS, columns, &mut random);
            let x = vector(rows * columns, &mut random);
            let words = quantized(table, ty, &x, columns);
            let mut out = AlignedLines::new(rows * OUTPUTS);
            let seconds = best(|| matrix.multiply(table, matrix.input(&x, &words), rows, &mut out));
            let gops = (2 * rows * OUTPUTS * columns) as f64 / seconds / 1e9;
            let read = if rows == 1 {
                format!(" {:.1} |", matrix.weights.len() as f64 / seconds / 1e9)
            } else {
                String::new()
            };
            format!("{read} {gops:.0} |")
        });
        println!("| {} |{}", ty.name(), cells.concat());
    }
}

/// Measures matmuls of a few rows with weights that come from memory, relative to a single row.
fn small_batches(table: &Kernels) {
    const TYPES: [PanelType; 6] =
        [PanelType::Q4, PanelType::Q4M, PanelType::Q4K, PanelType::Q6K, PanelType::Q8, PanelType::W4I];
    const ROWS: [usize; 6] = [2, 3, 4, 6, 8, 16];
    /// Bytes of weights, more than fit in the caches.
    const BYTES: usize = 96 << 20;
    const COLUMNS: usize = 1536;
    let titles = ROWS.map(|rows| format!(" {rows} rows |")).concat();
    println!("\n| batches | ms for 1 row |{titles}\n|---|---|{}", "---|".repeat(ROWS.len()));
    let mut random = BenchRandom::new(4);
    for ty in TYPES {
        let panel_bytes = ty.panel_bytes(COLUMNS).unwrap_or(usize::MAX);
        let outputs = BYTES / panel_bytes * siskin_kernels::panel::ROWS;
        let matrix = PackedMatrix::new(ty, outputs, COLUMNS, &mut random);
        let mut measure = |rows: usize| {
            let x = vector(rows * COLUMNS, &mut random);
            let words = quantized(table, ty, &x, COLUMNS);
            let mut out = AlignedLines::new(rows * outputs);
            1e3 * best(|| matrix.multiply(table, matrix.input(&x, &words), rows, &mut out))
        };
        let one = measure(1);
        let cells = ROWS.map(|rows| format!(" {:.2} |", measure(rows) / one));
        println!("| {} | {one:.2} |{}", ty.name(), cells.concat());
    }
}
