//! The small random models of `tests/data/golden`, with PyTorch's reference results.

use std::path::Path;

use siskin::file::{Bytes, File};
use siskin::{CpuFeatures, DeviceKind, Model, ModelOptions, Session, SessionOptions};
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, Recipe, open_any};
use siskin_kernels::Cpu;

use crate::paths;

/// All golden models.
pub const NAMES: &[&str] = &[
    "llama",
    "llama3-rope",
    "smollm3",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi",
    "phi3",
    "gpt2",
    "gpt-neox",
    "bloom",
    "mpt",
    "olmo2",
    "granite",
    "starcoder2",
    "falcon",
    "falcon-multi-query",
    "falcon-alibi",
    "mixtral",
    "qwen3-moe",
    "granite-moe",
    "olmoe",
    "gpt-oss",
    "qwen2-moe",
    "granite-moe-shared",
    "qwen3-next",
    "qwen3-5",
    "lfm2",
    "llama-dynamic",
    "llama-linear",
];

/// A golden model with its inputs and expected logits.
#[derive(Debug)]
pub struct GoldenModel {
    /// The packed model.
    pub file: File,
    /// One list of token ids per sequence of the batch.
    pub ids: Vec<Vec<u32>>,
    /// The logits of every token of every sequence.
    pub logits: Vec<Vec<f32>>,
}

/// Reads and packs a golden model.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn load(name: &str) -> GoldenModel {
    load_as(name, None)
}

/// Does the same with matrices of the types of `recipe`; the expected logits are those of the source.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn load_as(name: &str, recipe: Option<Recipe>) -> GoldenModel {
    load_from(&paths::data("golden").join(name), recipe)
}

/// Does the same for a folder.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn load_from(folder: &Path, recipe: Option<Recipe>) -> GoldenModel {
    let options = OpenOptions { cache: PackedCache::Off, recipe, ..OpenOptions::default() };
    let file = open_any(folder, &options).expect("a golden model packs");
    GoldenModel::with_outputs(file, folder, "logits")
}

impl GoldenModel {
    /// Reads the inputs of a packed model, and the logits that `io.safetensors` of its folder has under the name
    /// `output`.
    pub(crate) fn with_outputs(file: File, folder: &Path, output: &str) -> Self {
        let io = std::fs::read(folder.join("io.safetensors")).expect("io.safetensors is there");
        let io = safetensors::parse(Bytes::new(io)).expect("io.safetensors parses");
        let ids = &io["input_ids"];
        let columns = ids.shape[1] as usize;
        let words = ids.data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32);
        let ids: Vec<u32> = words.collect();
        let logits: Vec<f32> =
            io[output].data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let per_row = logits.len() / (ids.len() / columns);
        Self {
            file,
            ids: ids.chunks(columns).map(<[u32]>::to_vec).collect(),
            logits: logits.chunks(per_row).map(<[f32]>::to_vec).collect(),
        }
    }
}

/// CPU features to disable so that every kernel table is used: first none, then the best remaining level, down to the
/// portable kernels.
pub const LEVELS: [CpuFeatures; 6] = [
    CpuFeatures::NONE,
    CpuFeatures::AMX,
    CpuFeatures::AVX512.with(CpuFeatures::I8MM),
    CpuFeatures::AVX512.with(CpuFeatures::AVXVNNI),
    CpuFeatures::DOTPROD,
    CpuFeatures::AVX2.with(CpuFeatures::NEON),
];

/// Enables AMX, emulated in software if the machine lacks it but supports the emulator.
pub fn emulate() {
    if siskin_emulator::install() {
        // SAFETY: the emulator carries these instructions out in all threads.
        unsafe { Cpu::claim(CpuFeatures::AMX) }
    }
}

/// Returns the devices with a backend of their own: all but the automatic choice.
pub fn devices() -> impl Iterator<Item = DeviceKind> {
    DeviceKind::ALL.iter().copied().filter(|device| *device != DeviceKind::Auto)
}

/// Opens a model of `file`.
///
/// # Panics
/// If the model does not open.
pub fn model(file: &File, device: DeviceKind, threads: usize, disabled_cpu_features: CpuFeatures) -> Model {
    let options = ModelOptions { threads, device, disabled_cpu_features, ..ModelOptions::default() };
    Model::from_file(file.clone(), &options).expect("the model opens")
}

/// Returns the logits of every token of `ids`, in a new session.
///
/// # Panics
/// If the model fails.
pub fn score(model: &Model, ids: &[u32], batch: usize) -> Vec<f32> {
    let mut session = session(model, batch);
    let mut all = Vec::new();
    session.score(ids, &mut |_, logits| all.extend_from_slice(logits)).expect("the model runs");
    all
}

/// Creates a session with up to `batch` tokens per batch.
///
/// # Panics
/// If there is not enough memory.
pub fn session(model: &Model, batch: usize) -> Session {
    model.session(SessionOptions { batch, ..SessionOptions::default() }).expect("a session opens")
}

/// Returns the largest difference relative to the largest expected magnitude.
pub fn relative_error(got: &[f32], want: &[f32]) -> f32 {
    let largest = want.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let difference = got.iter().zip(want).fold(0.0_f32, |largest, (a, b)| largest.max((a - b).abs()));
    if got.len() == want.len() && got.iter().all(|x| x.is_finite()) {
        difference / largest
    } else {
        f32::INFINITY
    }
}

/// Computes the 64-bit FNV-1a hash of the bits of values.
pub fn hash(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
