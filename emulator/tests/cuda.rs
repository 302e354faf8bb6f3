//! The CUDA emulator computes correct kernels correctly and reports errors of others.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use siskin_emulator::cuda::{
    Checks, CopyTiming, CudaEmulator, EmulatedArgument, ExecutionMode, LaunchConfig, ThreadOrder, compile,
};

/// Compiles the kernels of `cuda/` in a folder of this name.
fn program(checks: Checks, name: &str) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let program = compile(&sources, &folder, checks).unwrap();
    if program.is_none() {
        eprintln!("skipped: no C++ compiler for 64-bit Linux");
    }
    program
}

fn machine() -> Option<CudaEmulator> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| program(Checks::Standard, "cuda"));
    program.as_ref().map(|program| CudaEmulator::start(program).unwrap())
}

/// Starts an emulator that checks every access.
fn strict_machine() -> Option<CudaEmulator> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| program(Checks::Accesses, "cuda-accesses"));
    program.as_ref().map(|program| CudaEmulator::start(program).unwrap())
}

fn upload(machine: &mut CudaEmulator, numbers: &[f32]) -> EmulatedArgument {
    let place = machine.allocate(4 * numbers.len()).unwrap();
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    machine.write(place, &bytes).unwrap();
    EmulatedArgument::Ptr(place)
}

fn download(machine: &mut CudaEmulator, place: EmulatedArgument, count: usize) -> Vec<f32> {
    let EmulatedArgument::Ptr(place) = place else { panic!("not a pointer") };
    let mut bytes = vec![0; 4 * count];
    machine.read(place, &mut bytes).unwrap();
    bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn ordered(order: ThreadOrder) -> ExecutionMode {
    ExecutionMode { order, ..ExecutionMode::default() }
}

const BLOCK: LaunchConfig = LaunchConfig { grid: [1, 1, 1], threads: 64, shared: 1024 };

#[test]
fn block_reductions_are_correct() {
    let Some(mut machine) = machine() else { return };
    let numbers: Vec<f32> = (0..192).map(|i| i as f32).collect();
    let x = upload(&mut machine, &numbers);
    for mode in ExecutionMode::ALL {
        machine.set_mode(mode).unwrap();
        let out = upload(&mut machine, &[0.0; 3]);
        machine.launch("sum", LaunchConfig { grid: [3, 1, 1], ..BLOCK }, &[x, out]).unwrap();
        let want: Vec<f32> = numbers.chunks(64).map(|numbers| numbers.iter().sum()).collect();
        assert_eq!(download(&mut machine, out, 3), want);
    }
}

#[test]
fn kernel_faults_are_reported() {
    for (kernel, word) in
        [("divergent_barriers", "divergence"), ("early_return", "returns"), ("nothing", "no kernel")]
    {
        let Some(mut machine) = machine() else { return };
        // The waiting threads run first.
        machine.set_mode(ordered(ThreadOrder::Reverse)).unwrap();
        let out = upload(&mut machine, &[0.0; 64]);
        let error = machine.launch(kernel, BLOCK, &[out]).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    let Some(mut machine) = machine() else { return };
    let error = machine.launch("sum", BLOCK, &[]).unwrap_err();
    assert!(error.contains("takes 2 arguments"), "{error}");
    let error = machine
        .launch("sum", LaunchConfig { threads: 65, ..BLOCK }, &[EmulatedArgument::Ptr(0); 2])
        .unwrap_err();
    assert!(error.contains("65 threads"), "{error}");
}

/// Data that was not waited for is NaN or depends on the order of threads.
#[test]
fn missing_barriers_are_detected() {
    let Some(mut machine) = machine() else { return };
    let x = upload(&mut machine, &[1.0; 256]);
    let out = upload(&mut machine, &[0.0; 256]);
    machine.launch("missing_wait", BLOCK, &[x, out]).unwrap();
    assert!(download(&mut machine, out, 256).iter().all(|number| number.is_nan()));
    let results = [ThreadOrder::Forward, ThreadOrder::Reverse].map(|order| {
        machine.set_mode(ordered(order)).unwrap();
        machine.launch("missing_barrier", BLOCK, &[x, out]).unwrap();
        download(&mut machine, out, 64)
    });
    let nan_count = results.iter().flatten().filter(|number| number.is_nan()).count();
    assert!(nan_count > 0, "{results:?}");
}

/// Sums over double-buffered tiles do not depend on when copies land, unless a tile is overwritten while it is read.
#[test]
fn copies_into_tiles_in_use_are_detected() {
    let Some(mut machine) = machine() else { return };
    let numbers: Vec<f32> = (0..1024).map(|i| (i % 37) as f32).collect();
    let x = upload(&mut machine, &numbers);
    let orders = [ThreadOrder::Forward, ThreadOrder::Reverse];
    let modes: Vec<ExecutionMode> = [CopyTiming::AtWait, CopyTiming::AtStart]
        .into_iter()
        .chain((0..8).map(CopyTiming::Random))
        .flat_map(|copies| orders.map(|order| ExecutionMode { order, copies, ..ExecutionMode::default() }))
        .collect();
    let mut run = |kernel: &str, mode: ExecutionMode| {
        machine.set_mode(mode).unwrap();
        let out = upload(&mut machine, &[0.0; 64]);
        let config = LaunchConfig { shared: 2048, ..BLOCK };
        machine.launch(kernel, config, &[x, out, EmulatedArgument::Int(4)]).unwrap();
        download(&mut machine, out, 64)
    };
    // Thread i sums the column 63 - i of four rows of each tile.
    let column = |i: usize| numbers.iter().skip(63 - i).step_by(64).sum::<f32>();
    let want: Vec<f32> = (0..64).map(column).collect();
    for &mode in &modes {
        assert_eq!(run("sum_tiles", mode), want, "{mode:?}");
    }
    for &mode in &modes {
        let differs = run("sum_tiles_in_use", mode) != want;
        assert_eq!(differs, mode.copies != CopyTiming::AtWait, "{mode:?}");
    }
}

#[test]
fn out_of_bounds_accesses_end_the_emulator() {
    let Some(mut machine) = machine() else { return };
    let out = upload(&mut machine, &[0.0; 8]);
    machine.launch("out_of_bounds", BLOCK, &[out, EmulatedArgument::Int(7)]).unwrap();
    let error = machine.launch("out_of_bounds", BLOCK, &[out, EmulatedArgument::Int(8)]).unwrap_err();
    assert!(error.contains("ended"), "{error}");
    // Shared memory ends where the launch configuration says.
    let Some(mut machine) = self::machine() else { return };
    let out = upload(&mut machine, &[0.0; 64]);
    let arguments = |beyond| [out, EmulatedArgument::Int(256), EmulatedArgument::Int(beyond)];
    machine.launch("beyond_shared_memory", BLOCK, &arguments(0)).unwrap();
    let error = machine.launch("beyond_shared_memory", BLOCK, &arguments(1)).unwrap_err();
    assert!(error.contains("ended"), "{error}");
}

#[test]
fn static_shared_memory_is_uninitialized_in_each_block() {
    let Some(mut machine) = machine() else { return };
    let out = upload(&mut machine, &[0.0; 3]);
    machine.launch("uninitialized", LaunchConfig { grid: [3, 1, 1], ..BLOCK }, &[out]).unwrap();
    assert!(download(&mut machine, out, 3).iter().all(|number| number.is_nan()));
}

#[test]
fn halves_are_rounded_to_nearest() {
    let Some(mut machine) = machine() else { return };
    // Ties, the limits of each type, overflow and underflow; in pairs of bf16 and f16.
    let (smallest, largest) = (1.0 / 16_777_216.0, f32::from_bits(0x7f7f_0000));
    let rows: [(f32, f32, f32); 10] = [
        (1.0, 1.0, 1.0),
        (257.0 / 256.0, 1.0, 257.0 / 256.0),
        (259.0 / 256.0, 260.0 / 256.0, 259.0 / 256.0),
        (2049.0 / 2048.0, 1.0, 1.0),
        (65_519.0, 65_536.0, 65_504.0),
        (65_520.0, 65_536.0, f32::INFINITY),
        (-smallest, -smallest, -smallest),
        (smallest / 4.0, smallest / 4.0, 0.0),
        (f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY),
        (largest, largest, f32::INFINITY),
    ];
    let mut numbers = rows.map(|row| row.0).to_vec();
    numbers.resize(64, f32::NAN);
    let (x, brain, half) =
        (upload(&mut machine, &numbers), upload(&mut machine, &[0.0; 64]), upload(&mut machine, &[0.0; 64]));
    machine.launch("round_trip", BLOCK, &[x, brain, half]).unwrap();
    let (brain, half) = (download(&mut machine, brain, 64), download(&mut machine, half, 64));
    for (i, (x, of_brain, of_half)) in rows.into_iter().enumerate() {
        assert_eq!((brain[i], half[i]), (of_brain, of_half), "{x}");
    }
    assert!(brain[63].is_nan() && half[63].is_nan());
}

#[test]
fn matrix_multiplies_are_correct() {
    let Some(mut machine) = machine() else { return };
    let a: Vec<f32> = (0..256).map(|i| (i % 23) as f32 - 11.0).collect();
    let b: Vec<f32> = (0..128).map(|i| (i % 7) as f32 - 3.0).collect();
    let (of_a, of_b) = (upload(&mut machine, &a), upload(&mut machine, &b));
    let out = upload(&mut machine, &[0.0; 128]);
    machine.launch("matmul", LaunchConfig { threads: 32, ..BLOCK }, &[of_a, of_b, out]).unwrap();
    let got = download(&mut machine, out, 128);
    for row in 0..16 {
        for column in 0..8 {
            let want: f32 = (0..16).map(|k| a[row * 16 + k] * b[k * 8 + column]).sum();
            assert_eq!(got[row * 8 + column], want, "{row}, {column}");
        }
    }
}

#[test]
fn races_in_shared_memory_are_reported() {
    let Some(mut machine) = strict_machine() else { return };
    let x = upload(&mut machine, &[1.0; 1024]);
    let out = upload(&mut machine, &[0.0; 256]);
    let steps = EmulatedArgument::Int(4);
    let config = LaunchConfig { grid: [2, 1, 1], shared: 2048, ..BLOCK };
    let cases: [(&str, &[EmulatedArgument], &str); 9] = [
        ("sum", &[x, out], ""),
        ("sum_tiles", &[x, out, steps], ""),
        ("reverse_warps", &[x, out], ""),
        ("missing_barrier", &[x, out], "of dynamic shared memory"),
        ("missing_wait", &[x, out], "copies without having waited for it"),
        ("sum_tiles_in_use", &[x, out, steps], "race: thread"),
        ("reverse_warps_by_shuffles", &[x, out], "of static shared memory"),
        ("missing_barrier_after_reads", &[x, out], "which thread"),
        ("pending_copy", &[x], "returns while its asynchronous copies are pending"),
    ];
    for mode in ExecutionMode::ALL {
        machine.set_mode(mode).unwrap();
        // What failed launches leave changes nothing.
        for (kernel, arguments, word) in cases.into_iter().chain(cases) {
            match machine.launch(kernel, config, arguments) {
                Ok(()) => assert_eq!(word, "", "{kernel}, {mode:?}"),
                Err(error) => {
                    assert!(!word.is_empty() && error.contains(word), "{kernel}, {mode:?}: {error}")
                }
            }
        }
    }
    machine.set_mode(ExecutionMode::default()).unwrap();
    let error = machine.launch("missing_barrier", BLOCK, &[x, out]).unwrap_err();
    let want = "missing_barrier: race: thread 32 writes byte 128 of dynamic shared memory, which thread 1 read since the \
                last barrier (block 0 0 0, thread 32)";
    assert_eq!(error, want);
}

#[test]
fn misaligned_accesses_are_reported() {
    let Some(mut machine) = strict_machine() else { return };
    let [x, out] = [1.0; 2].map(|number| upload(&mut machine, &[number; 132]));
    let EmulatedArgument::Ptr(first) = x else { panic!("not a pointer") };
    machine.launch("copy_pairs", BLOCK, &[x, out]).unwrap();
    let error = machine.launch("copy_pairs", BLOCK, &[EmulatedArgument::Ptr(first + 4), out]).unwrap_err();
    assert!(error.contains("not aligned to 8 bytes in") && error.contains("faults.cu:"), "{error}");
}

/// Blocks that communicate: the last one merges, or each waits for the one before.
#[test]
fn resident_blocks_run_interleaved() {
    for machine in [machine(), strict_machine()] {
        let Some(mut machine) = machine else { return };
        let numbers: Vec<f32> = (0..320).map(|i| i as f32).collect();
        let x = upload(&mut machine, &numbers);
        let config = LaunchConfig { grid: [5, 1, 1], shared: 0, ..BLOCK };
        for (order, resident) in [
            (ThreadOrder::Forward, 1),
            (ThreadOrder::Reverse, 1),
            (ThreadOrder::Forward, 3),
            (ThreadOrder::Reverse, 3),
            (ThreadOrder::Reverse, 5),
        ] {
            let resident_blocks = resident.try_into().unwrap();
            machine.set_mode(ExecutionMode { resident_blocks, ..ordered(order) }).unwrap();
            let sums = upload(&mut machine, &[0.0; 5]);
            let [out, counter] = [(); 2].map(|()| upload(&mut machine, &[0.0]));
            machine.launch("sum_of_blocks", config, &[x, sums, counter, out]).unwrap();
            assert_eq!(
                download(&mut machine, out, 1),
                [numbers.iter().sum::<f32>()],
                "{order:?}, {resident}"
            );
            let [out, counter] = [(); 2].map(|()| upload(&mut machine, &[0.0]));
            match machine.launch("relay", config, &[out, counter]) {
                // Blocks that are not resident are waited for in vain.
                Err(error) => {
                    assert!(order == ThreadOrder::Reverse && resident < 5, "{order:?}, {resident}: {error}");
                    assert!(error.contains("poll a counter in vain"), "{error}");
                }
                Ok(()) => {
                    assert!(order == ThreadOrder::Forward || resident == 5, "{order:?}, {resident}");
                    assert_eq!(download(&mut machine, out, 1), [26.0]);
                }
            }
        }
    }
}
