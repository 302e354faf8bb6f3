//! Equal blocks of words, counted by their users.

use crate::{Error, ErrorKind, Result};

/// Pages are no larger than this on any system that we know of.
#[cfg(unix)]
const PAGE: usize = 64 << 10;

/// Blocks of one size. A block's words may be written by whoever alone uses it.
pub(super) struct Pool {
    /// Zeros from the system, which takes memory for a page when it is first written.
    map: memmap2::MmapRaw,
    block_words: usize,
    bytes: usize,
    users: Vec<u32>,
    free: Vec<u32>,
}

impl Pool {
    /// `count` free blocks. Memory that nobody has written stays the system's.
    pub(super) fn new(block_words: usize, count: usize) -> Result<Self> {
        let refuse = |_| {
            let bytes = block_words as f64 * count as f64 * 4.0 / f64::from(1 << 20);
            Error::new(ErrorKind::Memory, "context", format!("a cache of {bytes:.0} MiB is not to be had"))
        };
        let bytes = block_words.checked_mul(count).and_then(|words| words.checked_mul(4));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or(()).map_err(refuse)?;
        let map = memmap2::MmapMut::map_anon(bytes.max(1)).map_err(|_| refuse(()))?;
        // A long context is read end to end for every token: with small pages, finding them costs as much as
        // reading them. Where the system has no large ones, small ones do.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let map = memmap2::MmapRaw::from(map);
        let free = (0..u32::try_from(count).unwrap_or(u32::MAX - 1)).rev().collect();
        Ok(Self { map, block_words, bytes, users: vec![0; count], free })
    }

    /// Bytes that are reserved.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Words of a block.
    pub(super) fn block_words(&self) -> usize {
        self.block_words
    }

    /// Puts little-endian words into a block that one user has; those that are not given stay.
    pub(super) fn fill(&mut self, block: u32, words: &[[u8; 4]]) {
        // SAFETY: `&mut self` keeps everybody else away.
        let own = unsafe { self.words_mut(block, 0, self.block_words) };
        own.iter_mut().zip(words).for_each(|(own, word)| *own = u32::from_le_bytes(*word));
    }

    /// Gives the memory of free blocks back to the system.
    pub(super) fn trim(&mut self) {
        #[cfg(unix)]
        for &block in &self.free {
            let (start, length) = (block as usize * self.block_words * 4, self.block_words * 4);
            // SAFETY: nobody uses a free block: who takes it again writes what it reads, and whole pages that are
            // given back read as zeros. The range lies inside the map, whose neighbours in a page stay: see below.
            let _ = unsafe { self.release_pages(start, length) };
        }
    }

    /// Gives the pages that lie whole inside a range back to the system.
    ///
    /// # Safety
    /// Nobody may need what is in them.
    #[cfg(unix)]
    unsafe fn release_pages(&self, start: usize, length: usize) -> std::io::Result<()> {
        let (first, end) = (start.next_multiple_of(PAGE), (start + length) / PAGE * PAGE);
        if first >= end {
            return Ok(());
        }
        // SAFETY: the caller's promise; the range is inside the map and of whole pages.
        unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, end - first) }
    }

    /// A block for one user.
    pub(super) fn take(&mut self) -> Result<u32> {
        let block = self.free.pop().ok_or_else(|| {
            Error::new(
                ErrorKind::Memory,
                "cache",
                "every block is in use; end a sequence or open a larger context",
            )
        })?;
        self.users[block as usize] = 1;
        Ok(block)
    }

    /// One more user.
    pub(super) fn share(&mut self, block: u32) {
        self.users[block as usize] += 1;
    }

    /// One user less.
    pub(super) fn release(&mut self, block: u32) {
        let users = &mut self.users[block as usize];
        *users -= 1;
        if *users == 0 {
            self.free.push(block);
        }
    }

    /// The block itself where it has one user, otherwise a copy of it for this user.
    pub(super) fn own(&mut self, block: u32) -> Result<u32> {
        if self.users.get(block as usize).is_none_or(|&users| users <= 1) {
            return Ok(block);
        }
        let copy = self.take()?;
        let (from, to) = (self.start(block, 0, self.block_words), self.start(copy, 0, self.block_words));
        // SAFETY: two blocks of the pool, which `&mut self` keeps everybody else from.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.block_words) };
        self.users[block as usize] -= 1;
        Ok(copy)
    }

    /// A pointer to `count` words of a block from `offset` on.
    fn start(&self, block: u32, offset: usize, count: usize) -> *mut u32 {
        let start = block as usize * self.block_words + offset;
        assert!(start + count <= self.bytes / 4, "beyond the pool");
        // SAFETY: the words lie inside the map.
        unsafe { self.map.as_mut_ptr().cast::<u32>().add(start) }
    }

    /// `count` words of a block from `offset` on.
    pub(super) fn words(&self, block: u32, offset: usize, count: usize) -> &[u32] {
        // SAFETY: `start` checks the bounds, a map begins on a page, and zeros are words; `words_mut`'s callers
        // promise that nobody writes what is read.
        unsafe { std::slice::from_raw_parts(self.start(block, offset, count), count) }
    }

    /// The same for writing.
    ///
    /// # Safety
    /// Nobody else may use this part meanwhile.
    #[expect(clippy::mut_from_ref, reason = "workers write disjoint parts of one pool")]
    pub(super) unsafe fn words_mut(&self, block: u32, offset: usize, count: usize) -> &mut [u32] {
        // SAFETY: as above; the caller promises to be alone with the part.
        unsafe { std::slice::from_raw_parts_mut(self.start(block, offset, count), count) }
    }
}
