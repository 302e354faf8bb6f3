//! Equal blocks of words, counted by their users.

use std::cell::UnsafeCell;

use crate::{Error, ErrorKind, Result};

/// Blocks of one size. A block's words may be written by whoever alone uses it.
pub(super) struct Pool {
    words: Box<[UnsafeCell<u32>]>,
    block_words: usize,
    users: Vec<u32>,
    free: Vec<u32>,
}

// SAFETY: words are written only through `words_mut`, whose callers promise to be alone with the part.
unsafe impl Sync for Pool {}

impl Pool {
    /// `count` free blocks. Memory that nobody has written stays the system's.
    pub(super) fn new(block_words: usize, count: usize) -> Result<Self> {
        let refuse = |_| {
            let bytes = block_words as f64 * count as f64 * 4.0 / f64::from(1 << 20);
            Error::new(ErrorKind::Memory, "context", format!("a cache of {bytes:.0} MiB is not to be had"))
        };
        let total = block_words.checked_mul(count).ok_or(()).map_err(refuse)?;
        let mut words: Vec<u32> = Vec::new();
        words.try_reserve_exact(total).map_err(|_| refuse(()))?;
        drop(words);
        let zeros = vec![0_u32; total].into_boxed_slice();
        // SAFETY: `UnsafeCell<u32>` has the layout of `u32`.
        let words = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<u32>]) };
        let free = (0..u32::try_from(count).unwrap_or(u32::MAX - 1)).rev().collect();
        Ok(Self { words, block_words, users: vec![0; count], free })
    }

    /// Bytes that are reserved.
    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 4
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
        let (from, to) = (block as usize * self.block_words, copy as usize * self.block_words);
        for word in 0..self.block_words {
            *self.words[to + word].get_mut() = *self.words[from + word].get_mut();
        }
        self.users[block as usize] -= 1;
        Ok(copy)
    }

    /// `count` words of a block from `offset` on.
    pub(super) fn words(&self, block: u32, offset: usize, count: usize) -> &[u32] {
        let part = &self.words[block as usize * self.block_words + offset..][..count];
        // SAFETY: the part is inside the pool; `words_mut`'s callers promise that nobody writes what is read.
        unsafe { std::slice::from_raw_parts(part.as_ptr().cast(), count) }
    }

    /// The same for writing.
    ///
    /// # Safety
    /// Nobody else may use this part meanwhile.
    #[expect(clippy::mut_from_ref, reason = "workers write disjoint parts of one pool")]
    pub(super) unsafe fn words_mut(&self, block: u32, offset: usize, count: usize) -> &mut [u32] {
        let part = &self.words[block as usize * self.block_words + offset..][..count];
        // SAFETY: the part is inside the pool and in cells; the caller promises to be alone with it.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(part.as_ptr()), count) }
    }
}
