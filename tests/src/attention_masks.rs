//! The small random models of `tests/data/golden-kinds`, with PyTorch's reference results under several attention
//! masks.

use siskin::file::Bytes;
use siskin_convert::import::safetensors;
use siskin_convert::{OpenOptions, PackedCache, open_any};

use crate::golden::GoldenModel;
use crate::paths;

/// Sliding window size of the mask `recent`.
pub const RECENT: usize = 6;
/// Number of attention sinks of the mask `recent`.
pub const FIRST: usize = 3;
/// Number of prefix tokens with bidirectional attention in the mask `prefix`.
pub const PREFIX: usize = 7;

/// Reads and packs a model; the expected logits are those under the mask, or `logits` without one.
///
/// # Panics
/// If its files are missing or corrupt: they are part of the repository.
pub fn masked(name: &str, mask: &str) -> GoldenModel {
    let folder = paths::data("golden-kinds").join(name);
    let options = OpenOptions { cache: PackedCache::Off, ..OpenOptions::default() };
    let gguf = folder.join("model.gguf");
    let source = if gguf.is_file() { &gguf } else { &folder };
    let file = open_any(source, &options).expect("a golden model packs");
    let io = std::fs::read(folder.join("io.safetensors")).expect("io.safetensors is there");
    let io = safetensors::parse(Bytes::new(io)).expect("io.safetensors parses");
    let ids = &io["input_ids"];
    let columns = ids.shape[1] as usize;
    let words = ids.data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as u32);
    let ids: Vec<u32> = words.collect();
    let logits: Vec<f32> =
        io[mask].data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let per_row = logits.len() / (ids.len() / columns);
    GoldenModel {
        file,
        ids: ids.chunks(columns).map(<[u32]>::to_vec).collect(),
        logits: logits.chunks(per_row).map(<[f32]>::to_vec).collect(),
    }
}
