//! Attention of some queries over the cached keys and values of one head.
//!
//! Flash attention (arXiv:2205.14135): the softmax is computed chunk by chunk with a running maximum and sum.
//!
//! Contract, for each query:
//! - A score is the chain `fma(q[e], k[e], …)` from zero in order of e, times the scale, softcapped, plus
//!   `slope · (key position − query position)` as one fused multiply-add, plus the bias of the key.
//! - Keys are processed in chunks of [`CHUNK`] positions from position 0. A chunk has its own maximum,
//!   weights `exp(score − maximum)`, their sum (sixteen lanes by position, then the fixed reduction tree)
//!   and, for each column, the chain `fma(weight, v, …)` from zero in order of position.
//! - A query attends to up to [`RUNS`] ranges of positions: the chunks of a range follow those of the range
//!   before it. A bias that ends before the last position of a range does not apply to that range.
//! - A sink is one more chunk, the last: its maximum is the sink, its sum is 1, and its columns are zeros.
//! - Chunks are merged in order: with `M` the larger maximum and factors `a`, `b` = exp(maximum − M) of the
//!   state and the chunk, `sum = fma(sum, a, chunk sum · b)`, and likewise for the columns. The first
//!   non-empty chunk initializes the state. The result is divided by the sum.
//!
//! In an int8 cache, the key or value of a position is quantized with one scale: `scale = largest |x| / 127`,
//! `q = round(x · (127 / largest))`. The query is quantized the same way, and the dot product of a score is
//! `Σ q·k · (key scale · query scale)`. The products of weights and value scales are quantized to 14-bit
//! integers `u`, with the largest of the chunk mapped to 16383; with `u = 128·h + l`, a column is
//! `fma(Σ h·v, 128, Σ l·v) · (largest / 16383)`.
//!
//! An int14 cache has 14-bit integers, stored as two 7-bit digits, `q = 128·h + l` with `l` from −64 to 63, so that dot
//! products are sums of exact products of bytes in any order (integer slicing, as in the Ozaki scheme,
//! arXiv:2306.11975):
//! - Keys and queries are rotated first, by the Hadamard transform of blocks of `width` columns, the largest power of two
//!   up to 128 that divides the padded head size. This spreads outliers and leaves scores as they are (QuaRot,
//!   arXiv:2404.00456).
//! - The scale of a value is that of an int8 cache with 8127 in the place of 127. For a key or a query, the alternative is
//!   `norm / 46000`, `q = round(x · (46000 / norm))`; the larger scale is used, so that a dot product is below 2^31. The
//!   squares of the norm are summed in sixteen lanes by column, then by the fixed reduction tree. If their sum is below
//!   2^−126, the row counts as zeros; if it is infinite, the row counts as not finite.
//! - The dot product of a score is `Σ q·k · (key scale · (query scale / width))`.
//! - Products of weights and value scales are quantized to integers `u` with the largest of the chunk mapped to 16319, or
//!   with their sum (sixteen lanes by position, then the tree) mapped to 260000 if that scale is larger; a column is
//!   `Σ u·v · scale`.
//!
//! The result of a query does not depend on which other queries are computed, or on how a prompt was split
//! into batches.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
mod digits;
mod flash;
#[cfg(target_arch = "aarch64")]
mod i8mm;
mod instructions;
mod int14;
mod int14_dot;
mod int8;
mod kv_chunk;
#[cfg(target_arch = "aarch64")]
mod neon;
mod online_softmax;
mod reference;
mod split_k;
mod store;
mod tile;

use core::ops::Range;

pub use reference::reference;
pub(crate) use split_k::MERGE_LIST;
pub use split_k::{Merge, part_size, sink_part};
pub use store::{Pair, store};

use crate::ops::Kernel;
use crate::ops::instantiate::instantiate;

/// Key positions that share a softmax maximum.
pub const CHUNK: usize = 256;
/// Token slots of a KV cache block; [`CHUNK`] is a multiple of it.
pub const BLOCK: usize = 64;
/// Keys that are interleaved in a panel.
pub const PANEL: usize = 16;
/// Maximum number of queries per call; they share the reads of keys and values.
pub const QUERIES: usize = 48;

/// Maximum number of position ranges that a query attends to.
pub const RUNS: usize = 3;

/// A bias that masks a key, if the query attends to at least one other key: it is far below any score, so the
/// key's weight becomes zero.
pub const HIDDEN: f32 = -1e30;

/// The element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// One byte per element, and one scale per position.
    Int8,
    /// Two bytes per element, one for each of two 7-bit digits, and one scale per position.
    Int14,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl CacheType {
    /// All types with their names.
    pub const NAMES: &[(Self, &str)] =
        &[(Self::Int8, "int8"), (Self::Int14, "int14"), (Self::F16, "f16"), (Self::F32, "f32")];

    /// Returns whether elements are integers with a scale per position.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::Int8 | Self::Int14)
    }

    /// Returns the maximum head size that the type supports.
    pub const fn max_columns(self) -> usize {
        match self {
            Self::Int8 => int8::MAX_COLUMNS,
            Self::Int14 => int14::MAX_COLUMNS,
            Self::F16 | Self::F32 => usize::MAX,
        }
    }

    /// Returns the number of 32-bit words that the keys, and also the values, of one head take in one block.
    pub const fn words(self, head_size: usize) -> usize {
        let numbers = BLOCK * padded(head_size);
        match self {
            Self::Int8 => numbers / 4 + BLOCK,
            Self::Int14 => numbers / 2 + BLOCK,
            Self::F16 => numbers / 2,
            Self::F32 => numbers,
        }
    }
}

/// Returns the columns of a head in the cache: the head size rounded up to a multiple of 16.
pub const fn padded(head_size: usize) -> usize {
    head_size.next_multiple_of(16)
}

/// The arguments that all queries of a call share.
#[derive(Clone, Copy, Debug)]
pub struct AttentionArguments {
    /// Columns per head, even.
    pub head_size: usize,
    /// Factor on the dot product.
    pub scale: f32,
    /// Scores become `cap · tanh(score / cap)`; zero disables the softcap.
    pub softcap: f32,
    /// The element type of the KV cache.
    pub cache: CacheType,
}

/// One query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The query vector, `head_size` columns.
    pub values: &'a [f32],
    /// Its position.
    pub position: usize,
    /// The first position it attends to.
    pub first: usize,
    /// The last position it attends to.
    pub last: usize,
    /// ALiBi slope (arXiv:2108.12409): added to the score per position of distance.
    pub slope: f32,
    /// Added to the score of each position; empty if there is no bias.
    pub bias: &'a [f32],
    /// First and last positions of the other ranges it attends to; the `None` entries are last.
    pub also: [Option<(usize, usize)>; RUNS - 1],
    /// Attention sink: a score that takes part in the softmax and has no value vector.
    pub sink: Option<f32>,
}

impl<'a> Query<'a> {
    /// Creates a causal query: it attends to its own position and all earlier ones.
    pub const fn at(position: usize, values: &'a [f32]) -> Self {
        let also = [None; RUNS - 1];
        Self { values, position, first: 0, last: position, slope: 0.0, bias: &[], also, sink: None }
    }

    /// Returns the first and last position of a range: range 0 is `first` to `last`, the others are in
    /// `also`.
    #[inline(always)]
    pub(crate) fn sees(&self, run: usize) -> Option<(usize, usize)> {
        match run.checked_sub(1) {
            None => Some((self.first, self.last)),
            Some(other) => self.also[other],
        }
    }

    /// Returns whether its bias applies to a range that ends with position `last`.
    #[inline(always)]
    pub(crate) fn is_biased(&self, last: usize) -> bool {
        self.bias.len() > last
    }

    /// Returns the number of position ranges it attends to.
    pub(crate) fn runs(&self) -> usize {
        1 + self.also.iter().flatten().count()
    }
}

/// Access to the cached keys and values of a head.
///
/// In a block of [`BLOCK`] positions, keys are stored in panels of [`PANEL`] positions: column-major, with
/// the positions of a panel interleaved. Values are stored row-major, one row of [`padded`] columns per
/// position. Two f16 share a word, the first in its low half.
///
/// With int8, a word holds four columns of a key, with the positions of a panel interleaved; or four
/// positions of a column of the values, with sixteen columns interleaved, column groups before positions. The
/// scales of the positions follow.
///
/// With int14, the high digits are stored as int8 elements are, then the low digits, then the scales. Keys are
/// rotated.
///
/// An implementation must not call kernels: an AMX kernel calls it while its tile registers are in use.
pub trait HeadCache {
    /// Returns the words of the keys and of the values of block `block` (position / [`BLOCK`]).
    fn block(&self, block: usize) -> (&[u32], &[u32]);
}

/// Queries that are processed together: with four vectors of keys or values, their accumulators fit in 32
/// registers.
const GROUP: usize = 6;
/// The same with AMX tiles, where each query is one row of a tile.
const TILED_GROUP: usize = 16;

/// Returns the scratch size of [`Function`] in floats: the chunk's scores and sums for the queries processed
/// together, and running totals and quantized columns for [`QUERIES`].
pub const fn scratch_size(head_size: usize) -> usize {
    let columns = padded(head_size);
    TILED_GROUP * (CHUNK + columns) + QUERIES * (columns + columns / 2)
}

/// Which keys a call processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySpan {
    /// All keys: the result is the attention output, `head_size` floats.
    Whole,
    /// The keys of the first range in one chunk, without the sink (split-K): the result is a partial result
    /// of [`part_size`] floats for [`Merge`]. The range may be empty for a query.
    Chunk(usize),
}

/// Computes attention for up to [`QUERIES`] queries; each result is written to `out[i]`. `scratch` has
/// [`scratch_size`] floats.
pub type Function =
    fn(&AttentionArguments, &[Query<'_>], &dyn HeadCache, KeySpan, &mut [f32], &mut [&mut [f32]]);

instantiate!(VECTORS: Function = "attention" attend(
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]]
));

#[cfg(target_arch = "x86_64")]
pub(crate) static LIST: &[Kernel<Function>] =
    &[amx::KERNEL, VECTORS[0], avx_vnni::KERNEL, VECTORS[1], VECTORS[2]];
#[cfg(target_arch = "aarch64")]
pub(crate) static LIST: &[Kernel<Function>] = &{
    #[cfg(feature = "portable")]
    let list = [neon::I8MM, neon::DOTPROD, neon::NEON, VECTORS[1]];
    #[cfg(not(feature = "portable"))]
    let list = [neon::I8MM, neon::DOTPROD, neon::NEON];
    assert!(VECTORS.len() + 2 == list.len(), "two more kernels than vectors have");
    list
};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) static LIST: &[Kernel<Function>] = VECTORS;

use flash::attend;

/// Returns the chunk that holds a position.
const fn chunk_of(position: usize) -> usize {
    position / CHUNK
}

fn chunk_positions(chunk: usize) -> Range<usize> {
    chunk * CHUNK..(chunk + 1) * CHUNK
}
