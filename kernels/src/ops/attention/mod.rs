//! Attention of some queries over the cached keys and values of one head.
//!
//! Contract, for each query:
//! - A score is the chain `fma(q[e], k[e], …)` from zero in order of e, times the scale, soft-capped, plus
//!   `slope · (key position − query position)` as one fused multiply-add.
//! - Keys are taken in chunks of [`CHUNK`] positions from position 0. A chunk has its own maximum, weights
//!   `exp(score − maximum)`, their sum (sixteen lanes by position, then the fixed tree) and, column by column,
//!   the chain `fma(weight, v, …)` from zero in order of position.
//! - Chunks are merged in order: with `M` the larger maximum and factors `a`, `b` = exp(maximum − M) of the
//!   state and the chunk, `sum = fma(sum, a, chunk sum · b)` and the same for the columns. The first chunk
//!   that holds a key is the state. The result is divided by the sum.
//!
//! Nothing depends on which other queries are computed, or on how a prompt was cut.

mod body;
mod reference;
mod softmax;
#[cfg(test)]
pub(crate) mod tests;
mod tile;

use core::ops::Range;

pub use reference::reference;

use crate::simd::instantiate;

/// Key positions that share a maximum.
pub const CHUNK: usize = 256;
/// Positions of a cache block; [`CHUNK`] is a multiple.
pub const BLOCK: usize = 64;
/// Keys that lie side by side.
pub const PANEL: usize = 16;
/// Queries that a call takes at most: their scores stay in the second cache.
pub const QUERIES: usize = 48;

/// The type of cached numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// Two bytes.
    F16,
    /// Four bytes.
    F32,
}

impl CacheType {
    /// 32-bit words of the keys, and of the values, of one head in one block.
    pub const fn words(self, head_size: usize) -> usize {
        let numbers = BLOCK * padded(head_size);
        match self {
            Self::F16 => numbers / 2,
            Self::F32 => numbers,
        }
    }
}

/// Columns of a head in the cache: a multiple of 16.
pub const fn padded(head_size: usize) -> usize {
    head_size.next_multiple_of(16)
}

/// What all queries of a call share.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// Columns per head, even.
    pub head_size: usize,
    /// Factor on the dot product.
    pub scale: f32,
    /// Scores become `cap · tanh(score / cap)`; zero: no cap.
    pub softcap: f32,
    /// The type of cached numbers.
    pub cache: CacheType,
}

/// One query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Its columns.
    pub values: &'a [f32],
    /// Its position.
    pub position: usize,
    /// The first position it sees; it sees up to its own.
    pub first: usize,
    /// Added to the score per position of distance.
    pub slope: f32,
}

/// Where the cache keeps a head's keys and values.
///
/// In a block of [`BLOCK`] positions, keys lie in panels of [`PANEL`] positions: column by column, the panel's
/// positions side by side. Values lie position by position, [`padded`] columns each. Two f16 share a word, the
/// first in its low half.
pub trait Cache {
    /// The words of the keys and of the values of block `block` (position / [`BLOCK`]).
    fn block(&self, block: usize) -> (&[u32], &[u32]);
}

/// Numbers a call of [`Function`] works with: for [`QUERIES`] the chunk's scores and twice the columns, then a
/// block as f32.
pub const fn scratch_size(head_size: usize) -> usize {
    QUERIES * (CHUNK + 2 * padded(head_size)) + BLOCK * padded(head_size)
}

/// Numbers of a query's part of a chunk: the columns' sums, the maximum, the sum of the weights.
pub const fn part_size(head_size: usize) -> usize {
    padded(head_size) + 2
}

/// How much of a query's keys a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All: the result is the attention's, `head_size` numbers.
    Whole,
    /// Those in one chunk: the result is a part of [`part_size`] numbers for [`Merge`]. A query may see none.
    Chunk(usize),
}

/// Attends with up to [`QUERIES`] queries; each result goes to `out[i]`. `scratch` has [`scratch_size`]
/// numbers.
pub type Function = fn(&Arguments, &[Query<'_>], &dyn Cache, Span, &mut [f32], &mut [&mut [f32]]);

instantiate!(LIST: Function = "attention" attend(
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    span: Span,
    scratch: &mut [f32],
    out: &mut [&mut [f32]]
));

/// Merges the parts of a query's chunks, one after the other, into its result. `scratch` has [`padded`]
/// numbers.
pub type Merge = fn(usize, &[f32], &mut [f32], &mut [f32]);

instantiate!(MERGE_LIST: Merge = "merge" merge_chunks(
    head_size: usize,
    parts: &[f32],
    scratch: &mut [f32],
    out: &mut [f32]
));

use body::{attend, merge_chunks};

/// Writes a key and a value of one head at slot `slot` of a block.
pub fn store(
    cache: CacheType,
    slot: usize,
    key: &[f32],
    value: &[f32],
    keys: &mut [u32],
    values: &mut [u32],
) {
    let head_size = key.len();
    let columns = padded(head_size);
    let panel = slot / PANEL * PANEL * columns;
    match cache {
        CacheType::F32 => {
            for (e, k) in key.iter().enumerate() {
                keys[panel + e * PANEL + slot % PANEL] = k.to_bits();
            }
            for (word, v) in values[slot * columns..].iter_mut().zip(value) {
                *word = v.to_bits();
            }
        }
        CacheType::F16 => {
            for (e, k) in key.iter().enumerate() {
                set_half(keys, panel + e * PANEL + slot % PANEL, *k);
            }
            for (e, v) in value.iter().enumerate() {
                set_half(values, slot * columns + e, *v);
            }
        }
    }
}

/// Writes number `index` of words that hold two f16 each.
fn set_half(words: &mut [u32], index: usize, x: f32) {
    let (word, shift) = (&mut words[index / 2], index % 2 * 16);
    *word = *word & !(0xffff << shift) | u32::from(half::f16::from_f32(x).to_bits()) << shift;
}

/// The chunk that holds a position, and the positions of a chunk.
const fn chunk_of(position: usize) -> usize {
    position / CHUNK
}

fn chunk_positions(chunk: usize) -> Range<usize> {
    chunk * CHUNK..(chunk + 1) * CHUNK
}
