//! Sequences that share blocks: forks, and the copies that are made before a shared block is written.

use super::block_pool::BlockPool;
use super::{BlockCopy, BlockId, BlockTable, KvGroupKind, NO_BLOCK, Sequence, SequenceId, no_sequence, too_long};
use siskin_format::{Error, ErrorKind, Result};

impl BlockTable {
    /// Forks the first `length` tokens of a sequence, and its encoded input.
    pub fn fork_at(&mut self, of: SequenceId, length: usize) -> Result<SequenceId> {
        let source = self.sequence(of)?;
        source.check_length(&self.groups, length)?;
        let expected_length = if length == source.length { source.expected_length } else { 0 };
        let mut blocks = self.empty_lists();
        for ((group, fork), list) in self.groups.iter().zip(&mut blocks).zip(&source.blocks) {
            // Others are reserved for this sequence alone.
            let shared = match group.kind {
                KvGroupKind::CrossAttention => list.len(),
                kind => kind.blocks_of(length).min(list.len()),
            };
            fork.extend_from_slice(&list[..shared]);
        }
        let fork = Sequence { length, expected_length, committed: length, reserved: 0, blocks, ..*source };
        for (group, blocks) in self.groups.iter_mut().zip(&fork.blocks) {
            blocks.iter().filter(|&&block| block != NO_BLOCK).for_each(|&block| group.share(block));
        }
        Ok(self.place(fork))
    }

    /// Makes the blocks of other sequences, one list per group, the first `length` tokens of an empty sequence.
    ///
    /// # Errors
    /// If the sequence has tokens, or if a list does not have the blocks, all in use, that these tokens need.
    pub fn attach(&mut self, id: SequenceId, length: usize, lists: &[&[BlockId]]) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if sequence.length > 0 {
            let message = "the sequence has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "sequence", message));
        }
        if length > self.layout.options.context_length {
            return Err(too_long(length, self.layout.options.context_length));
        }
        let fits = |group: &BlockPool, list: &[BlockId]| {
            list.len() == group.kind.blocks_of(length)
                && list.iter().enumerate().all(|(index, &block)| match block {
                    NO_BLOCK => group.kind.may_be_evicted(index, length),
                    block => group.is_allocated(block),
                })
        };
        if lists.len() != self.groups.len()
            || !self.groups.iter().zip(lists).all(|(group, list)| fits(group, list))
        {
            let message = format!("are not those of a sequence of {length} tokens");
            return Err(Error::argument("blocks", message));
        }
        for ((group, blocks), list) in self.groups.iter_mut().zip(&mut sequence.blocks).zip(lists) {
            if group.kind.grows() || group.kind == KvGroupKind::RecurrentState {
                // Shared first: the sequence may have reserved them itself.
                list.iter().filter(|&&block| block != NO_BLOCK).for_each(|&block| group.share(block));
                group.truncate(blocks, 0);
                blocks.extend_from_slice(list);
            }
        }
        sequence.reserved = 0;
        (sequence.length, sequence.committed) = (length, length);
        Ok(())
    }

    /// Calls `copy` with each copy that is due since the last call, which must be before any block is written. If one
    /// fails, it and those after it are undone: their sequences share the blocks again.
    pub fn make_copies(&mut self, mut copy: impl FnMut(BlockCopy) -> Result<()>) -> Result<()> {
        let mut copies = std::mem::take(&mut self.copies);
        let mut outcome = Ok(());
        for due in copies.drain(..) {
            if outcome.is_ok() {
                outcome = copy(due);
            }
            if outcome.is_err() {
                self.undo_copy(due);
            }
        }
        self.copies = copies;
        outcome
    }

    /// Returns the block that was to be copied to the sequence that has the copy.
    fn undo_copy(&mut self, BlockCopy { group, from, to }: BlockCopy) {
        let mut blocks = self.sequences.iter_mut().flatten().flat_map(|sequence| &mut sequence.blocks[group]);
        if let Some(block) = blocks.find(|block| **block == to) {
            *block = from;
            self.groups[group].take_back(from);
            self.groups[group].release(to);
        }
    }
}
