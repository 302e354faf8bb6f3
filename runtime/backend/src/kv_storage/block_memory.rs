//! Memory for blocks of equal size.

use crate::block_table::BlockId;
use siskin_format::{Error, ErrorKind, Result};

/// An upper bound of the page size of all supported systems.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

/// The memory of the blocks of one group.
pub(super) struct BlockMemory {
    /// Zeroed memory from the system, which commits a page when it is first written.
    map: memmap2::MmapRaw,
    block_words: usize,
    bytes: usize,
}

impl BlockMemory {
    /// Reserves `count` blocks. Memory that was never written is not committed.
    pub(super) fn new(block_words: usize, count: usize) -> Result<Self> {
        let reject = |_| {
            let bytes = block_words as f64 * count as f64 * 4.0 / f64::from(1 << 20);
            Error::new(
                ErrorKind::Memory,
                "context",
                format!("cannot allocate a KV cache of {bytes:.0} MiB; use a smaller context"),
            )
        };
        let bytes = block_words.checked_mul(count).and_then(|words| words.checked_mul(4));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(()).map_err(reject)?;
        let map = memmap2::MmapMut::map_anon(bytes.max(1)).map_err(|_| reject(()))?;
        // A long context is read end to end for every token: with small pages, TLB misses cost as much as the reads.
        // Best effort: not every system has huge pages.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let map = memmap2::MmapRaw::from(map);
        Ok(Self { map, block_words, bytes })
    }

    /// Returns the reserved bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the words of a block.
    pub(super) fn block_words(&self) -> usize {
        self.block_words
    }

    /// Copies little-endian words into a block; the rest of the block is unchanged.
    pub(super) fn fill(&mut self, block: BlockId, words: &[[u8; 4]]) {
        // SAFETY: `&mut self` excludes all other access.
        let own = unsafe { self.words_mut(block, 0, self.block_words) };
        own.iter_mut().zip(words).for_each(|(own, word)| *own = u32::from_le_bytes(*word));
    }

    /// Returns the memory of free blocks to the system.
    #[cfg_attr(not(unix), expect(unused_variables, reason = "only unix can return pages"))]
    pub(super) fn release(&mut self, free: &[BlockId]) {
        #[cfg(unix)]
        for &block in free {
            let (start, length) = (block as usize * self.block_words * 4, self.block_words * 4);
            if start + length > self.bytes {
                continue;
            }
            // SAFETY: free blocks are not in use, a new owner writes what it reads, and whole released pages read as
            // zeros. The range lies inside the map, and bytes next to it in its first and last page stay: see below.
            let _ = unsafe { self.release_pages(start, length) };
        }
    }

    /// Returns the pages that lie entirely inside a range to the system.
    ///
    /// # Safety
    /// The range must lie inside the map, and the contents of these pages must not be needed.
    #[cfg(unix)]
    unsafe fn release_pages(&self, start: usize, length: usize) -> std::io::Result<()> {
        let (first, end) = (start.next_multiple_of(PAGE), (start + length) / PAGE * PAGE);
        if first >= end {
            return Ok(());
        }
        // SAFETY: the pages lie inside the map, and their contents are not needed (see `# Safety`).
        unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first) }
    }

    /// Copies a block.
    pub(super) fn copy(&mut self, from: BlockId, to: BlockId) {
        let words = self.block_words;
        let (from, to) = (self.start(from, 0, words), self.start(to, 0, words));
        // SAFETY: `start` checks the bounds, `&mut self` gives exclusive access, and `copy` allows overlaps.
        unsafe { std::ptr::copy(from, to, words) };
    }

    /// Returns a pointer to `count` words of a block from `offset` on.
    fn start(&self, block: BlockId, offset: usize, count: usize) -> *mut u32 {
        let start = block as usize * self.block_words + offset;
        assert!(start + count <= self.bytes / 4, "beyond the pool");
        // SAFETY: the words lie inside the map.
        unsafe { self.map.as_mut_ptr().cast::<u32>().add(start) }
    }

    /// Returns `count` words of a block from `offset` on.
    pub(super) fn words(&self, block: BlockId, offset: usize, count: usize) -> &[u32] {
        // SAFETY: `start` checks the bounds, a map begins on a page, and zeros are valid words; `words_mut` requires
        // that no words are written while they are read.
        unsafe { std::slice::from_raw_parts(self.start(block, offset, count), count) }
    }

    /// Returns the same words for writing.
    ///
    /// # Safety
    /// No other thread may access this part while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "workers write disjoint parts of one pool")]
    pub(super) unsafe fn words_mut(&self, block: BlockId, offset: usize, count: usize) -> &mut [u32] {
        // SAFETY: as above, except that no other thread accesses the part while the slice is alive (see `# Safety`).
        unsafe { std::slice::from_raw_parts_mut(self.start(block, offset, count), count) }
    }
}
