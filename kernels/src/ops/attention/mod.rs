//! Attention of some queries over the cached keys and values of one head.
//!
//! Contract, for each query:
//! - A score is the chain `fma(q[e], k[e], …)` from zero in order of e, times the scale, soft-capped, plus
//!   `slope · (key position − query position)` as one fused multiply-add, plus the key's bias.
//! - Keys are taken in chunks of [`CHUNK`] positions from position 0. A chunk has its own maximum, weights
//!   `exp(score − maximum)`, their sum (sixteen lanes by position, then the fixed tree) and, column by column,
//!   the chain `fma(weight, v, …)` from zero in order of position.
//! - A query may see up to [`RUNS`] runs of positions: the chunks of a run follow those of the run before it. A bias
//!   that ends before the last position of a run does not count in it.
//! - A sink is one more chunk, the last: its maximum is the sink, its sum 1, and its columns are zeros.
//! - Chunks are merged in order: with `M` the larger maximum and factors `a`, `b` = exp(maximum − M) of the
//!   state and the chunk, `sum = fma(sum, a, chunk sum · b)` and the same for the columns. The first chunk
//!   that holds a key is the state. The result is divided by the sum.
//!
//! With a cache of eight bits, a key or value of a position is integers times a scale: `scale = largest |x| / 127`,
//! `q = round(x · (127 / largest))`. The query is made the same, and a score's dot product is
//! `Σ q·k · (key scale · query scale)`. Weights times the values' scales become integers `u` of 14 bits, the largest
//! of the chunk 16383; with `u = 128·h + l`, a column is `fma(Σ h·v, 128, Σ l·v) · (largest / 16383)`.
//!
//! Nothing depends on which other queries are computed, or on how a prompt was cut.

#[cfg(target_arch = "x86_64")]
mod amx;
mod body;
mod int8;
mod reference;
mod softmax;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod tile;

use core::ops::Range;

pub use reference::reference;
pub use store::{Pair, store};

use crate::ops::Kernel;
use crate::simd::instantiate;

/// Key positions that share a maximum.
pub const CHUNK: usize = 256;
/// Positions of a cache block; [`CHUNK`] is a multiple.
pub const BLOCK: usize = 64;
/// Keys that lie side by side.
pub const PANEL: usize = 16;
/// Queries that a call takes at most: they share what is read of the keys and values.
pub const QUERIES: usize = 48;

/// Runs of positions that a query sees at most.
pub const RUNS: usize = 3;

/// A bias that hides a key from a query that sees another: no score is anywhere near it, and the key's weight
/// becomes zero.
pub const HIDDEN: f32 = -1e30;

/// The type of cached numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// One byte, and a scale for each position.
    Int8,
    /// Two bytes.
    F16,
    /// Four bytes.
    F32,
}

impl CacheType {
    /// Every type with its name.
    pub const NAMES: &[(Self, &str)] = &[(Self::Int8, "int8"), (Self::F16, "f16"), (Self::F32, "f32")];

    /// The most columns of a head that the type takes.
    pub const fn most_columns(self) -> usize {
        match self {
            Self::Int8 => int8::MOST_COLUMNS,
            Self::F16 | Self::F32 => usize::MAX,
        }
    }

    /// 32-bit words of the keys, and of the values, of one head in one block.
    pub const fn words(self, head_size: usize) -> usize {
        let numbers = BLOCK * padded(head_size);
        match self {
            Self::Int8 => numbers / 4 + BLOCK,
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
    /// The first position it sees.
    pub first: usize,
    /// The last position it sees.
    pub last: usize,
    /// Added to the score per position of distance.
    pub slope: f32,
    /// Added to the score of each position; empty: nothing.
    pub bias: &'a [f32],
    /// The first and the last position of other runs that it sees, none after nothing.
    pub also: [Option<(usize, usize)>; RUNS - 1],
    /// A score that takes part in the softmax and has no value.
    pub sink: Option<f32>,
}

impl<'a> Query<'a> {
    /// The query of a position that sees itself and all before it.
    pub const fn at(position: usize, values: &'a [f32]) -> Self {
        let also = [None; RUNS - 1];
        Self { values, position, first: 0, last: position, slope: 0.0, bias: &[], also, sink: None }
    }

    /// The first and the last position of one of its runs: 0 is that from `first` to `last`, others what it also sees.
    #[inline(always)]
    pub(crate) fn sees(&self, run: usize) -> Option<(usize, usize)> {
        match run.checked_sub(1) {
            None => Some((self.first, self.last)),
            Some(other) => self.also[other],
        }
    }

    /// Whether its bias counts in a run that ends with position `last`.
    #[inline(always)]
    pub(crate) fn is_biased(&self, last: usize) -> bool {
        self.bias.len() > last
    }

    /// How many runs of positions it sees.
    pub(crate) fn runs(&self) -> usize {
        1 + self.also.iter().flatten().count()
    }
}

/// Where the cache keeps a head's keys and values.
///
/// In a block of [`BLOCK`] positions, keys lie in panels of [`PANEL`] positions: column by column, the panel's
/// positions side by side. Values lie position by position, [`padded`] columns each. Two f16 share a word, the
/// first in its low half.
///
/// Of eight bits, a word holds four columns of a key, a panel's positions side by side; or four positions of a
/// value's column, sixteen columns side by side, columns before positions. The scales of the positions follow.
///
/// It calls no kernel: one that multiplies in tiles has them while it asks.
pub trait Cache {
    /// The words of the keys and of the values of block `block` (position / [`BLOCK`]).
    fn block(&self, block: usize) -> (&[u32], &[u32]);
}

/// Queries that are taken through a chunk together: with four vectors of keys or values, their sums fill 32
/// registers.
const GROUP: usize = 6;
/// The same with tiles, whose rows they are.
const TILED_GROUP: usize = 16;

/// Numbers a call of [`Function`] works with: for queries taken together the chunk's scores and sums, for
/// [`QUERIES`] what they have gathered and their columns as integers.
pub const fn scratch_size(head_size: usize) -> usize {
    let columns = padded(head_size);
    TILED_GROUP * (CHUNK + columns) + QUERIES * (columns + columns / 4)
}

/// Numbers of a query's part of a chunk: the columns' sums, the maximum, the sum of the weights.
pub const fn part_size(head_size: usize) -> usize {
    padded(head_size) + 2
}

/// Writes the part of a sink, which follows those of all chunks.
pub fn sink_part(sink: f32, part: &mut [f32]) {
    part.fill(0.0);
    if let [.., maximum, sum] = part {
        (*maximum, *sum) = (sink, 1.0);
    }
}

/// How much of a query's keys a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All: the result is the attention's, `head_size` numbers.
    Whole,
    /// Those of the first run in one chunk, without the sink: the result is a part of [`part_size`] numbers for
    /// [`Merge`]. A query may see none.
    Chunk(usize),
}

/// Attends with up to [`QUERIES`] queries; each result goes to `out[i]`. `scratch` has [`scratch_size`]
/// numbers.
pub type Function = fn(&Arguments, &[Query<'_>], &dyn Cache, Span, &mut [f32], &mut [&mut [f32]]);

instantiate!(VECTORS: Function = "attention" attend(
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    span: Span,
    scratch: &mut [f32],
    out: &mut [&mut [f32]]
));

#[cfg(target_arch = "x86_64")]
pub(crate) static LIST: &[Kernel<Function>] = &[amx::KERNEL, VECTORS[0], VECTORS[1], VECTORS[2]];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) static LIST: &[Kernel<Function>] = VECTORS;

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

/// The chunk that holds a position, and the positions of a chunk.
const fn chunk_of(position: usize) -> usize {
    position / CHUNK
}

fn chunk_positions(chunk: usize) -> Range<usize> {
    chunk * CHUNK..(chunk + 1) * CHUNK
}
