//! Compares results of golden models to committed hashes, so that machines of every kind give the same bits.
//! `kernels/tests/kernels/identity.rs` does this for each operation.
//!
//! `tests/data/golden/hashes.txt` has one line per model and type. Changes of the numeric contract change the hashes:
//! `cargo test -p siskin-tests --test bit_identity -- --ignored bless` rewrites the file.

use std::fmt::Write as _;
use std::path::PathBuf;

use siskin::{CpuFeatures, DeviceKind};
use siskin_convert::{Recipe, WeightTarget};
use siskin_kernels::Cpu;
use siskin_tests::extent::cases;
use siskin_tests::golden::{LEVELS, emulate, hash, load_as, model, score};
use siskin_tests::{paths, texts};

const MODELS: [&str; 8] =
    ["llama", "gpt2", "gemma3", "starcoder2", "olmoe", "gpt-oss", "qwen3-next", "llama-linear"];
/// Encoders and encoder–decoders; of the latter, the decoder's outputs are hashed.
const TEXTS: [&str; 10] = [
    "mpnet",
    "modernbert",
    "mobilebert",
    "longformer",
    "t5",
    "switch",
    "whisper",
    "bigbird-blocks",
    "bert-linear",
    "bert-mixed",
];
const TYPES: [&str; 6] = ["source", "Q4_0", "Q5_1", "Q8_0", "W4i", "W8r"];

fn path() -> PathBuf {
    paths::data("golden").join("hashes.txt")
}

/// A model and a type.
type Line = (&'static str, &'static str);

/// Iterates over the lines of the file in order.
fn all() -> impl Iterator<Item = Line> {
    let models = MODELS.into_iter().chain(TEXTS);
    models.flat_map(|name| TYPES.map(|form| (name, form)))
}

/// Returns true for the lines that run where instructions are emulated: each model once, and each type with three of
/// the models.
fn stands((name, form): Line) -> bool {
    let model = MODELS.iter().chain(&TEXTS).position(|known| *known == name);
    model.is_some_and(|model| TYPES[model % TYPES.len()] == form)
}

/// Returns the lines, computed in batches without the given features.
fn lines(wanted: &[Line], without: CpuFeatures, batch: usize) -> String {
    let mut lines = String::new();
    for &(name, form) in wanted {
        let values = if MODELS.contains(&name) {
            let golden = load_as(name, recipe(form));
            score(&model(&golden.file, DeviceKind::Cpu, 2, without), &golden.ids[0], batch)
        } else {
            let golden = texts::load(name, recipe(form));
            let model = model(&golden.file, DeviceKind::Cpu, 2, without);
            match golden.written.first() {
                Some(written) => texts::score(&model, &golden.texts[0], written, batch),
                None => texts::read(&model, &golden.texts, batch).concat(),
            }
        };
        writeln!(lines, "{name} {form} {:016x}", hash(&values)).expect("a string takes everything");
    }
    lines
}

fn recipe(form: &str) -> Option<Recipe> {
    WeightTarget::from_name(form).map(|matrices| Recipe { matrices, tables: None, always: false, mix: None })
}

#[test]
fn logits_have_the_committed_bits() {
    let committed = std::fs::read_to_string(path()).unwrap();
    emulate();
    // Processors of other architectures are usually emulated, and slow.
    let is_quick = cfg!(target_arch = "x86_64");
    let wanted = cases("models and types", all(), |line| is_quick || stands(*line));
    let of_line =
        |line: &&str| wanted.iter().any(|(name, form)| line.starts_with(&format!("{name} {form} ")));
    let committed: String = committed.lines().filter(of_line).map(|line| format!("{line}\n")).collect();
    let mut seen = Vec::new();
    for (without, batch) in LEVELS.into_iter().zip([64, 7, 32, 5, 1, 7]) {
        let features = Cpu::detect().without(without).features();
        if seen.contains(&features) {
            continue;
        }
        seen.push(features);
        assert_eq!(lines(&wanted, without, batch), committed, "without {without}, batches of {batch}");
    }
}

#[test]
#[ignore = "writes the committed hashes"]
fn bless() {
    std::fs::write(path(), lines(&all().collect::<Vec<_>>(), CpuFeatures::AVX2.with(CpuFeatures::NEON), 7))
        .unwrap();
}
