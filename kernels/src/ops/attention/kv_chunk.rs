//! The part of the KV cache that a step of attention reads.

use core::ops::Range;

use super::{BLOCK, CHUNK, HeadCache};

/// KV cache blocks per chunk.
pub(super) const BLOCKS: usize = CHUNK / BLOCK;

/// The keys and values of a chunk that at least one query attends to.
pub(super) struct KvChunk<'a> {
    /// Its first position.
    pub start: usize,
    /// Keys and values of its blocks; empty for blocks that no query attends to.
    pub blocks: [(&'a [u32], &'a [u32]); BLOCKS],
    /// For each block, the keys that are read after its values, for prefetching; may be empty.
    pub next: [&'a [u32]; BLOCKS],
}

impl<'a> KvChunk<'a> {
    pub(super) fn new(cache: &'a dyn HeadCache, blocks: Range<usize>) -> Self {
        let first = blocks.start / BLOCKS * BLOCKS;
        let mut all: [(&[u32], &[u32]); BLOCKS] = [(&[], &[]); BLOCKS];
        for block in blocks {
            all[block - first] = cache.block(block);
        }
        Self { start: first * BLOCK, blocks: all, next: [&[]; BLOCKS] }
    }

    /// Returns the keys of a block, and what to prefetch meanwhile, of the same length: the values of that
    /// block.
    pub(super) fn keys(&self, block: usize) -> (&'a [u32], &'a [u32]) {
        self.blocks[block]
    }

    /// Returns the values of a block, and what to prefetch meanwhile.
    pub(super) fn values(&self, block: usize) -> (&'a [u32], &'a [u32]) {
        (self.blocks[block].1, self.next[block])
    }
}

/// Splits `count` queries into groups of at most `max_size`, as evenly as possible.
pub(super) fn groups(count: usize, max_size: usize) -> impl Iterator<Item = Range<usize>> {
    let number = count.div_ceil(max_size).max(1);
    (0..number).map(move |group| group * count / number..(group + 1) * count / number)
}

/// Returns the rows of `Q` queries from `first` on; each has `count` elements.
#[inline(always)]
pub(super) fn query_rows<T, const Q: usize>(rows: &[T], first: usize, count: usize) -> [&[T]; Q] {
    let mut left: [&[T]; Q] = [&[]; Q];
    for (left, row) in left.iter_mut().zip(rows[first * count..].chunks_exact(count)) {
        *left = row;
    }
    assert!(left.iter().all(|left| left.len() == count), "beyond the queries");
    left
}

/// Expands `$body` with the constant `$Q` equal to `$size`, from 1 to [`GROUP`](super::GROUP).
macro_rules! for_size {
    ($size:expr, |$Q:ident| $body:expr) => {{
        macro_rules! case {
            ($number:literal) => {{
                const $Q: usize = $number;
                $body
            }};
        }
        match $size {
            1 => case!(1),
            2 => case!(2),
            3 => case!(3),
            4 => case!(4),
            5 => case!(5),
            _ => case!(6),
        }
    }};
}
pub(super) use for_size;
