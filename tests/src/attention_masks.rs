//! The small random models of `tests/data/golden-kinds`, with PyTorch's reference results under several attention
//! masks.

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
    GoldenModel::with_outputs(file, &folder, mask)
}
