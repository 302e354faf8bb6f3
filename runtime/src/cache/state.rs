//! Recurrent states of constant size: one block per sequence, which every batch replaces.
//!
//! While a batch runs, a sequence has its block from before the batch, which is read-only, and a new one: a batch that
//! fails keeps the old one, and forks share a block that is never written again.

use super::block_pool::Pool;
use super::{Keep, Kind, KvCache, NONE, SequenceId};
use crate::Result;

impl Kind {
    /// Allocates the block for the new states, once per batch.
    pub(super) fn renew(&mut self, blocks: &mut Vec<u32>) -> Result<()> {
        if blocks.is_empty() {
            blocks.push(NONE);
        }
        if blocks.len() == 1 {
            blocks.push(self.pool.take()?);
        }
        Ok(())
    }

    /// Commits a batch: frees the old states.
    pub(super) fn settle(&mut self, blocks: &mut Vec<u32>) {
        if blocks.len() == 2 {
            let before = blocks.remove(0);
            if before != NONE {
                self.pool.release(before);
            }
        }
    }

    /// Rolls a failed batch back: frees the new states, and also the old ones if `length` is zero.
    pub(super) fn undo(&mut self, blocks: &mut Vec<u32>, length: usize) {
        let kept = usize::from(length > 0);
        while blocks.len() > kept {
            if let Some(block) = blocks.pop().filter(|&block| block != NONE) {
                self.pool.release(block);
            }
        }
    }
}

impl KvCache {
    /// Returns a state of a sequence while a batch runs.
    pub(crate) fn state(&self, state: usize, id: SequenceId) -> Option<StateView<'_>> {
        let kind = self.kinds.iter().position(|kind| kind.keep == Keep::State)?;
        let blocks = self.sequences.get(id)?.as_ref()?.blocks.get(kind)?;
        let &[before, now] = blocks.as_slice() else { return None };
        let before = Some(before).filter(|&block| block != NONE);
        Some(StateView { pool: &self.kinds[kind].pool, before, now, offset: *self.states.get(state)? })
    }
}

/// A recurrent state of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct StateView<'a> {
    pool: &'a Pool,
    before: Option<u32>,
    now: u32,
    offset: usize,
}

impl StateView<'_> {
    /// Returns the new values `start..start + count`, initialized from the old ones, or with zeros if there are none.
    ///
    /// # Safety
    /// No other thread may access these values while the slice is alive.
    #[expect(clippy::mut_from_ref, reason = "workers write disjoint parts of one state")]
    pub(crate) unsafe fn begin(&self, start: usize, count: usize) -> &mut [f32] {
        // SAFETY: no other thread accesses these values while the slice is alive (see `# Safety`).
        let words = unsafe { self.pool.words_mut(self.now, self.offset + start, count) };
        match self.before {
            Some(before) => words.copy_from_slice(self.pool.words(before, self.offset + start, count)),
            None => words.fill(0),
        }
        // SAFETY: f32 and u32 have the same size and alignment, and all bits are valid for both.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), count) }
    }
}
