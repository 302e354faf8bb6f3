//! A short deterministic fuzz run: every target over mutations of its committed seeds.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its inputs fails")]

use siskin_tests::counting::{Counting, measure};
use siskin_tests::fuzz::{Random, TARGETS, mutate, small_session};
use siskin_tests::{knobs, paths};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory a target may hold at once: this much, and this many bytes for each byte of its input.
const BASE: usize = 4 << 20;
const FACTOR: usize = 64;
/// No input of some kilobytes is worth more work than this, on a slow and busy machine too.
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

/// What is wrong with the target's behaviour on this input, if anything.
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
    let rounds = knobs::fuzz_rounds();
    for (index, (target, run)) in TARGETS.iter().enumerate() {
        let seeds = seeds(target);
        for (number, (name, seed)) in seeds.iter().enumerate() {
            check(target, *run, name, seed);
            let mut random = Random::new((index * 1000 + number) as u64);
            for round in 0..rounds {
                let other = &seeds[random.below(seeds.len())].1;
                let data = mutate(seed, other, &mut random);
                check(target, *run, &format!("{name} round {round}"), &data);
            }
        }
        println!("{target}: {} seeds, {rounds} mutations each", seeds.len());
    }
}

/// The seed of the target `session`: a prompt was read, and an answer begun.
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

#[test]
fn misbehaviour_is_noticed() {
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
