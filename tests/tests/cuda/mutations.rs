//! Copies of kernels from which one barrier or one wait is taken out, or in which values are rounded otherwise: the
//! emulator must detect each, or the tests of the kernels prove little about synchronization and bits.

use std::path::{Path, PathBuf};

use siskin_device::Precision;
use siskin_emulator::cuda::{self, Checks, CudaEmulator, EmulatedArgument, ExecutionMode, LaunchConfig};
use siskin_tests::cuda::encode;
use siskin_tests::extent::cases;
use siskin_tests::paths;

use super::common::numbers;

/// Runs a kernel and returns its output.
type Run = fn(&mut CudaEmulator) -> Result<Vec<u8>, String>;

/// A change to a kernel.
struct Mutation {
    file: &'static str,
    /// Occurs once.
    text: &'static str,
    replacement: &'static str,
    run: Run,
    /// Whether it stands for similar ones.
    stands: bool,
}

const MUTATIONS: [Mutation; 15] = [
    // Keys are overwritten while other warps multiply by them.
    Mutation {
        file: "attention.cu",
        text: "of_queries + warp() * OWN * P::stride, of_keys);\n        sync_block();",
        replacement: "of_queries + warp() * OWN * P::stride, of_keys);",
        run: attention,
        stands: true,
    },
    // Keys are used before they arrive.
    Mutation {
        file: "attention.cu",
        text: "cp_async_wait<1>();\n        sync_block();\n        float probabilities",
        replacement: "cp_async_wait<2>();\n        sync_block();\n        float probabilities",
        run: attention,
        stands: true,
    },
    // Keys of other threads are used before they arrive.
    Mutation {
        file: "attention.cu",
        text: "cp_async_wait<1>();\n        sync_block();\n        float probabilities",
        replacement: "cp_async_wait<1>();\n        float probabilities",
        run: attention,
        stands: false,
    },
    Mutation {
        file: "attention.cu",
        text: "cp_async_wait<1>();\n        sync_block();\n        add_product",
        replacement: "sync_block();\n        add_product",
        run: attention,
        stands: false,
    },
    Mutation {
        file: "attention.cu",
        text: "of_values);\n        sync_block();",
        replacement: "of_values);",
        run: attention,
        stands: false,
    },
    Mutation {
        file: "attention_dense.cu",
        text: "cp_async_wait<0>();\n        sync_block();",
        replacement: "cp_async_wait<0>();",
        run: attention_dense,
        stands: false,
    },
    // The next tiles are loaded while other warps multiply.
    Mutation {
        file: "experts.cu",
        text: "sums[n][i] += part[n][i];\n    }\n    sync_block();",
        replacement: "sums[n][i] += part[n][i];\n    }",
        run: expert_linear,
        stands: true,
    },
    Mutation {
        file: "experts.cu",
        text: "cp_async_wait<0>();\n    sync_block();",
        replacement: "sync_block();",
        run: expert_linear,
        stands: false,
    },
    // In global memory, which is not watched: the result depends on the order of threads.
    Mutation {
        file: "experts.cu",
        text: "starts[i + 1] = sum;\n    }\n    sync_block();",
        replacement: "starts[i + 1] = sum;\n    }",
        run: expert_offsets,
        stands: true,
    },
    // The sums of the last columns are overwritten while the first warp adds them.
    Mutation {
        file: "sums.cuh",
        text: "sync_block();\n#pragma unroll",
        replacement: "#pragma unroll",
        run: sum_rows,
        stands: true,
    },
    Mutation {
        file: "sums.cu",
        text: "    sync_block();\n    if (warp() == 0 && column < columns)",
        replacement: "    if (warp() == 0 && column < columns)",
        run: reduce_parts,
        stands: false,
    },
    // The row is read before other threads have copied it.
    Mutation {
        file: "row_ops.cu",
        text: "row[i] = x[i];\n        sync_block();",
        replacement: "row[i] = x[i];",
        run: norm_row,
        stands: true,
    },
    // The same product with its factors in another order.
    Mutation {
        file: "row_ops.cu",
        text: "(x[i] - shared[2 * index]) * shared[2 * index + 1] * weight[column];",
        replacement: "(x[i] - shared[2 * index]) * (shared[2 * index + 1] * weight[column]);",
        run: norm_row,
        stands: true,
    },
    // The chains read sums that other warps have not stored.
    Mutation {
        file: "panel_matmul.cuh",
        text: "macros);\n            }\n            sync_block();\n            if (threadIdx.x < PANEL_ROWS) {",
        replacement: "macros);\n            }\n            if (threadIdx.x < PANEL_ROWS) {",
        run: matmul_one,
        stands: true,
    },
    // A scale is multiplied after the sum of products instead of before.
    Mutation {
        file: "panel_matmul.cuh",
        text: "{(float)results[i], scale.scale * row_scale};",
        replacement: "{(float)results[i] * scale.scale, row_scale};",
        run: matmul_one,
        stands: false,
    },
];

/// Compiles the kernels of `files`, and only those of bf16 and of the smallest heads, with a mutation. Returns `None` if
/// there is no compiler.
fn compile(name: &str, files: &[&str], mutation: Option<&Mutation>) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let narrowed = [
        ("common.cuh", "BODY(float, f32) BODY(bf16, bf16) BODY(f16, f16)", "BODY(bf16, bf16)"),
        ("attention.cuh", "BODY(T, type, 64) BODY(T, type, 128) BODY(T, type, 256)", "BODY(T, type, 64)"),
    ];
    let mutated = mutation.map(|mutation| (mutation.file, mutation.text, mutation.replacement));
    for entry in std::fs::read_dir(paths::root().join("runtime/cuda/kernels")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if !file.ends_with(".cuh") && !files.contains(&file) {
            continue;
        }
        let mut code = std::fs::read_to_string(&path).unwrap();
        for (_, text, replacement) in narrowed.iter().chain(&mutated).filter(|(of, ..)| *of == file) {
            assert_eq!(code.matches(text).count(), 1, "{file}: {text}");
            code = code.replace(text, replacement);
        }
        std::fs::write(folder.join(file), code).unwrap();
    }
    let program = cuda::compile(&folder, &folder, Checks::Accesses).unwrap_or_else(|error| panic!("{error}"));
    if program.is_none() {
        eprintln!("skipped: no C++ compiler for 64-bit Linux");
    }
    program
}

/// Runs a kernel in every mode: returns its output, or an error, also if the outputs differ.
fn run(program: &Path, run: Run) -> Result<Vec<u8>, String> {
    let results = ExecutionMode::ALL.map(|mode| {
        let mut emulator = CudaEmulator::start(program)?;
        emulator.set_mode(mode)?;
        run(&mut emulator)
    });
    let [first, second, third] = results;
    let (first, others) = (first?, [second?, third?]);
    if others.iter().all(|other| *other == first) { Ok(first) } else { Err("modes differ".to_owned()) }
}

#[test]
fn missing_barriers_and_waits_are_detected() {
    let shipped = [
        "attention.cu",
        "attention_dense.cu",
        "experts.cu",
        "panel_matmul_blocks.cu",
        "row_ops.cu",
        "sums.cu",
    ];
    let Some(program) = compile("shipped", &shipped, None) else { return };
    let mut report = String::new();
    let selected = cases("mutations", MUTATIONS.into_iter().enumerate(), |(_, mutation)| mutation.stands);
    for (index, mutation) in selected {
        let want = run(&program, mutation.run).unwrap_or_else(|error| panic!("{error}"));
        let file = match mutation.file {
            "sums.cuh" => "sums.cu",
            "panel_matmul.cuh" => "panel_matmul_blocks.cu",
            file => file,
        };
        let Some(program) = compile(&index.to_string(), &[file], Some(&mutation)) else { return };
        match run(&program, mutation.run) {
            Err(error) => println!("{}: {error}", mutation.file),
            Ok(result) if result != want => println!("{}: the result differs", mutation.file),
            Ok(_) => report += &format!("{}: nothing detects {:?}\n", mutation.file, mutation.replacement),
        }
    }
    assert!(report.is_empty(), "{report}");
}

fn upload(emulator: &mut CudaEmulator, bytes: &[u8]) -> Result<u64, String> {
    let place = emulator.allocate(bytes.len())?;
    emulator.write(place, bytes)?;
    Ok(place)
}

fn upload_bf16(emulator: &mut CudaEmulator, count: usize, seed: usize) -> Result<u64, String> {
    upload(emulator, &encode(Precision::Bf16, &numbers(count, seed)))
}

fn upload_i32(emulator: &mut CudaEmulator, numbers: impl IntoIterator<Item = i32>) -> Result<u64, String> {
    upload(emulator, &numbers.into_iter().flat_map(i32::to_le_bytes).collect::<Vec<u8>>())
}

fn download(emulator: &mut CudaEmulator, place: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; bytes];
    emulator.read(place, &mut out)?;
    Ok(out)
}

const NULL: EmulatedArgument = EmulatedArgument::Ptr(0);

fn ptr(place: u64) -> EmulatedArgument {
    EmulatedArgument::Ptr(place)
}

fn int(number: i64) -> EmulatedArgument {
    EmulatedArgument::Int(number)
}

/// Rows of padded tiles of heads of 64, in bf16.
fn tile_bytes(rows: u32) -> u32 {
    rows * (64 + 8) * 2
}

/// Causal attention of one head over a sequence of several tiles. `arguments` gets the tiles and the key ranges.
fn attend(
    emulator: &mut CudaEmulator,
    kernel: &str,
    tile_rows: u32,
    arguments: impl FnOnce(EmulatedArgument, EmulatedArgument) -> Vec<EmulatedArgument>,
) -> Result<Vec<u8>, String> {
    const ROWS: i32 = 150;
    let mut all = Vec::new();
    for seed in 0..3 {
        all.push(ptr(upload_bf16(emulator, ROWS as usize * 64, seed)?));
    }
    // Widths of queries, keys and values; the head size; the output and its width.
    all.extend([int(64); 4]);
    let out = emulator.allocate(ROWS as usize * 128)?;
    let log_sum_exps = emulator.allocate(ROWS as usize * 4)?;
    all.extend([ptr(out), int(64), ptr(log_sum_exps)]);
    let tiles = (0..ROWS).step_by(64).flat_map(|first| {
        let end = (first + 64).min(ROWS);
        [first, end - first, 0, 0, 0, end, ROWS, ROWS]
    });
    let tiles = upload_i32(emulator, tiles)?;
    let ranges = upload_i32(emulator, (0..ROWS).flat_map(|row| [0, row + 1]))?;
    all.extend(arguments(ptr(tiles), ptr(ranges)));
    let config = LaunchConfig { grid: [3, 1, 1], threads: 128, shared: tile_bytes(tile_rows) };
    emulator.launch(kernel, config, &all)?;
    download(emulator, out, ROWS as usize * 128)
}

fn attention(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    attend(emulator, "attention_bf16_64", 3 * 64, |tiles, ranges| {
        let bias = [NULL, NULL, NULL, int(0)];
        let scores = [int(1), EmulatedArgument::Float(0.125), EmulatedArgument::Float(0.0), int(0)];
        [
            vec![tiles, ranges, int(1)],
            bias.into(),
            scores.into(),
            vec![EmulatedArgument::Float(0.0), NULL, int(1)],
        ]
        .concat()
    })
}

fn attention_dense(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    attend(emulator, "attention_dense_bf16_64", 5 * 64, |tiles, ranges| {
        vec![tiles, ranges, int(1), EmulatedArgument::Float(0.125), int(1)]
    })
}

/// Two experts, with 30 and 40 slots.
fn expert_linear(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    const SLOTS: usize = 70;
    const DEPTH: usize = 136;
    const COLUMNS: usize = 70;
    let x = upload_bf16(emulator, SLOTS * DEPTH, 0)?;
    let matrices = [upload_bf16(emulator, COLUMNS * DEPTH, 1)?, upload_bf16(emulator, COLUMNS * DEPTH, 2)?];
    let weights = upload(emulator, &matrices.map(u64::to_le_bytes).concat())?;
    let starts = upload_i32(emulator, [0, 30, 70])?;
    let out = emulator.allocate(SLOTS * COLUMNS * 2)?;
    let sizes = [SLOTS, DEPTH, COLUMNS, 2].map(|size| int(size as i64));
    let arguments = [vec![ptr(x), ptr(weights), NULL, ptr(starts), ptr(out)], sizes.into()].concat();
    let config = LaunchConfig { grid: [2, 3, 1], threads: 128, shared: tile_bytes(2 * 64) };
    emulator.launch("expert_linear_bf16", config, &arguments)?;
    download(emulator, out, SLOTS * COLUMNS * 2)
}

fn expert_offsets(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    let counts = upload_i32(emulator, (0..3 * 40).map(|i| i % 7))?;
    let starts = emulator.allocate(41 * 4)?;
    let config = LaunchConfig { grid: [1, 1, 1], threads: 256, shared: 0 };
    emulator.launch("expert_offsets", config, &[ptr(counts), ptr(starts), int(3), int(40)])?;
    Ok([download(emulator, counts, 3 * 40 * 4)?, download(emulator, starts, 41 * 4)?].concat())
}

/// Two parts of 20 rows, each by a block that computes 256 columns at a time.
fn sum_rows(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    let x = upload_bf16(emulator, 40 * 512, 0)?;
    let parts = emulator.allocate(2 * 512 * 4)?;
    let config = LaunchConfig { grid: [2, 1, 1], threads: 256, shared: 0 };
    let sizes = [40, 512, 512, 0, 20].map(int);
    emulator.launch("sum_rows_bf16", config, &[vec![ptr(x)], sizes.into(), vec![ptr(parts)]].concat())?;
    download(emulator, parts, 2 * 512 * 4)
}

fn reduce_parts(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    let parts = upload(emulator, &encode(Precision::F32, &numbers(40 * 40, 0)))?;
    let to = upload(emulator, &encode(Precision::F32, &numbers(40, 1)))?;
    let config = LaunchConfig { grid: [2, 1, 1], threads: 1024, shared: 0 };
    emulator.launch("reduce_parts", config, &[ptr(parts), int(40), int(40), ptr(to)])?;
    download(emulator, to, 40 * 4)
}

/// RMSNorm of a row of eight groups of 64 columns.
fn norm_row(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    const COLUMNS: u64 = 512;
    const GROUP: u64 = 64;
    const NORM: u64 = 3;
    let row = |seed| encode(Precision::F32, &numbers(COLUMNS as usize, seed));
    let (x, weight) = (upload(emulator, &row(0))?, upload(emulator, &row(1))?);
    let out = emulator.allocate(4 * COLUMNS as usize)?;
    let epsilon = u64::from(1e-5_f32.to_bits());
    let op = [NORM, x, 0, 0, 0, out, 0, COLUMNS, weight, 0, epsilon, 0, GROUP, 0, 0, 0];
    let op = upload(emulator, &op.map(u64::to_le_bytes).concat())?;
    let count = upload_i32(emulator, [1])?;
    let config = LaunchConfig { grid: [1, 1, 1], threads: 256, shared: 4 * (COLUMNS as u32 + 16) };
    let arguments = [ptr(op), int(1), ptr(count), int(COLUMNS as i64 + 16), int(0)];
    emulator.launch("row_ops", config, &arguments)?;
    download(emulator, out, 4 * COLUMNS as usize)
}

/// One row of 512 columns times two panels of random codes, with f16 scales.
fn matmul_one(emulator: &mut CudaEmulator) -> Result<Vec<u8>, String> {
    const MACROS: usize = 8;
    /// Eight lines of codes and one of scales.
    const MACRO_BYTES: usize = 9 * 64;
    let code = |i: usize| ((i * 2_654_435_761) >> 7) as u8;
    let panels: Vec<u8> = (0..2 * MACROS * MACRO_BYTES)
        .map(|i| match i % MACRO_BYTES {
            // Scales between 0.03 and 0.06.
            scale if scale >= 8 * 64 => {
                if scale % 2 == 0 {
                    code(i)
                } else {
                    0x2a
                }
            }
            _ => code(i),
        })
        .collect();
    let weights = upload(emulator, &panels)?;
    // Integers, then a scale and a scaled sum for every 32 columns, and sums for every 16.
    let integers =
        (0..MACROS * 16).map(|i| i32::from_le_bytes([i, 2 * i, 3 * i, 5 * i].map(|i| code(i) / 2)));
    let scales = numbers(MACROS * 4, 2).into_iter().map(|scale| scale.to_bits() as i32);
    let input = upload_i32(emulator, integers.chain(scales).chain((0..MACROS * 4).map(|i| i as i32)))?;
    let out = emulator.allocate(4 * 32)?;
    let mut part = [weights, 0, out, 0].map(u64::to_le_bytes).concat();
    part.extend([32, 0, 32, 0].map(u32::to_le_bytes).concat());
    let (part, count) = (upload(emulator, &part)?, upload_i32(emulator, [1])?);
    let config = LaunchConfig { grid: [1, 1, 1], threads: 256, shared: (MACROS * 64 / 2 * 3) as u32 };
    let arguments = [ptr(part), int(1), ptr(input), ptr(count), int(MACROS as i64)];
    emulator.launch("matmul_one_q4", config, &arguments)?;
    download(emulator, out, 4 * 32)
}
