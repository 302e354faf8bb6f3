//! A short deterministic fuzz run: every target over mutations of its committed seeds.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_benches::BenchRandom;
use siskin_tests::counting::{Counting, measure};
use siskin_tests::fuzz::{TARGETS, mutate, small_session};
use siskin_tests::{env, paths};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory limit of a target: this many bytes, plus a multiple of its input's size.
const BASE: usize = 4 << 20;
const FACTOR: usize = 64;
/// Time limit for an input of a few kilobytes, on slow and busy machines too.
const SLOWEST: Duration = Duration::from_secs(20);

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = paths::data("fuzz").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} holds no seed", folder.display());
    seeds
}

/// Returns a description of the target's misbehavior on this input, if any.
fn complaint(run: fn(&[u8]), data: &[u8]) -> Option<String> {
    let start = Instant::now();
    let (outcome, usage) = measure(|| catch_unwind(AssertUnwindSafe(|| run(data))));
    let limit = BASE + FACTOR * data.len();
    if outcome.is_err() {
        Some("panicked".to_owned())
    } else if usage.peak > limit as isize || usage.largest > limit {
        Some(format!("held {} bytes, largest request {}, limit {limit}", usage.peak, usage.largest))
    } else if start.elapsed() > SLOWEST {
        Some(format!("took {:?}", start.elapsed()))
    } else {
        None
    }
}

fn check(target: &str, run: fn(&[u8]), what: &str, data: &[u8]) {
    let Some(complaint) = complaint(run, data) else { return };
    let mut path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    path.push(format!("{target}-{}.bin", what.replace([' ', '/'], "-")));
    std::fs::write(&path, data).unwrap();
    panic!("{target}: {complaint} on {what}; the input is {}", path.display());
}

#[test]
fn mutated_seeds_give_errors_and_nothing_worse() {
    let rounds = env::fuzz_rounds();
    for (index, (target, run)) in TARGETS.iter().enumerate() {
        let seeds = seeds(target);
        for (number, (name, seed)) in seeds.iter().enumerate() {
            check(target, *run, name, seed);
            let mut random = BenchRandom::new((index * 1000 + number) as u64);
            for round in 0..rounds {
                let other = &seeds[random.below(seeds.len())].1;
                let data = mutate(seed, other, &mut random);
                check(target, *run, &format!("{name} round {round}"), &data);
            }
        }
        println!("{target}: {} seeds, {rounds} mutations each", seeds.len());
    }
}

/// Writes the seed of the target `session`: after prefill of a prompt and some generated tokens.
#[test]
#[ignore = "writes tests/data/fuzz/session"]
fn bless_session() {
    let mut session = small_session().unwrap();
    session.prefill(&[1, 2, 3, 0, 1]).unwrap();
    session.next_token().unwrap();
    let folder = paths::data("fuzz/session");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("small.bin"), session.save().unwrap()).unwrap();
}

/// Writes the seeds of the target `adapter`: a file, and the two PEFT files with a zero between them.
#[test]
#[ignore = "writes tests/data/fuzz/adapter"]
fn bless_adapter() {
    let base = siskin::file::File::open(paths::data("fuzz/container/small.bin")).unwrap();
    let numbers = |count: usize| (0..count).map(|i| (i % 7) as f32 * 0.125 - 0.375).collect::<Vec<f32>>();
    let part = |name: &str, lengths: bool| {
        let tensor = base.tensor(name).unwrap();
        let (rows, columns, rank) = (tensor.rows, tensor.columns, 2);
        siskin::LoraMatrix {
            tensor: name.to_owned(),
            rows,
            columns,
            rank,
            scale: 2.0,
            a: numbers(rank * columns),
            b: numbers(rows * rank),
            magnitudes: if lengths { numbers(rows) } else { Vec::new() },
        }
    };
    let parts = vec![part("blk.0.attn_q.weight", true), part("blk.0.ffn_down.weight", false)];
    let architecture = base.metadata().architecture.clone();
    let adapter = siskin::Adapter { architecture, base: Some(base.digest()), parts };
    let folder = paths::data("fuzz/adapter");
    std::fs::create_dir_all(&folder).unwrap();
    let out = adapter.write(None, Default::default(), std::io::Cursor::new(Vec::new())).unwrap();
    std::fs::write(folder.join("small.bin"), out.into_inner()).unwrap();
    let [rows, columns] = [adapter.parts[0].rows, adapter.parts[0].columns];
    let module = "base_model.model.model.layers.0.self_attn.q_proj";
    let (a, b) = (4 * 2 * columns, 4 * 2 * rows);
    let header = serde_json::json!({
        format!("{module}.lora_A.weight"): {"dtype": "F32", "shape": [2, columns], "data_offsets": [0, a]},
        format!("{module}.lora_B.weight"): {"dtype": "F32", "shape": [rows, 2], "data_offsets": [a, a + b]},
    });
    let mut peft =
        br#"{"peft_type": "LORA", "lora_alpha": 4, "use_rslora": true, "alpha_pattern": {"q_proj": 2}}"#
            .to_vec();
    let header = header.to_string();
    peft.push(0);
    peft.extend((header.len() as u64).to_le_bytes());
    peft.extend(header.as_bytes());
    peft.extend([0x3e; 4].repeat((a + b) / 4));
    std::fs::write(folder.join("peft.bin"), peft).unwrap();
    siskin_tests::fuzz::adapter(&std::fs::read(folder.join("small.bin")).unwrap());
}

#[test]
fn misbehavior_is_noticed() {
    assert!(complaint(|_| drop(vec![0_u8; 64 << 20]), b"x").unwrap().contains("held"));
    assert!(complaint(|data| assert!(data.is_empty()), b"x").unwrap().contains("panicked"));
    assert_eq!(complaint(|data| drop(data.to_vec()), b"x"), None);
}

#[test]
fn every_target_has_a_libfuzzer_harness_and_the_reverse() {
    let folder = paths::root().join("fuzz/fuzz_targets");
    let mut harnesses: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    harnesses.sort();
    let targets: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets, harnesses);
    let manifest = std::fs::read_to_string(paths::root().join("fuzz/Cargo.toml")).unwrap();
    for name in targets {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml has no [[bin]] {name}");
    }
}
