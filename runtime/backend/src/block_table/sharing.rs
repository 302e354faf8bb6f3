//! Sequences that share blocks: forks, and the copies that are made before a shared block is written.

use super::{BLOCK, BlockCopy, BlockId, BlockTable, KvGroupKind, NO_BLOCK, Sequence, SequenceId, too_long};
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
            let is_shared_whole = group.kind == KvGroupKind::CrossAttention;
            let shared =
                if is_shared_whole { list.len() } else { group.kind.blocks_of(length).min(list.len()) };
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
    /// If the sequence has tokens, or if a list does not have the blocks that these tokens need, each with committed
    /// tokens of another sequence: blocks that it has only reserved are rejected.
    pub fn attach(&mut self, id: SequenceId, length: usize, lists: &[&[BlockId]]) -> Result<()> {
        if self.sequence(id)?.length > 0 {
            let message = "the sequence has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "sequence", message));
        }
        if length > self.layout.options.context_length {
            return Err(too_long(length, self.layout.options.context_length));
        }
        let fits = |(group, list): (usize, &&[BlockId])| self.is_held(group, list, length);
        if lists.len() != self.groups.len() || !lists.iter().enumerate().all(fits) {
            let message = format!("not the blocks of a sequence of {length} tokens");
            return Err(Error::argument("blocks", message));
        }
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return Ok(()) };
        for ((group, blocks), list) in self.groups.iter_mut().zip(&mut sequence.blocks).zip(lists) {
            if group.kind.grows() || group.kind == KvGroupKind::RecurrentState {
                list.iter().filter(|&&block| block != NO_BLOCK).for_each(|&block| group.share(block));
                group.truncate(blocks, 0);
                blocks.extend_from_slice(list);
            }
        }
        sequence.reserved = 0;
        (sequence.length, sequence.committed) = (length, length);
        Ok(())
    }

    /// Returns whether each group has free blocks for `tokens` more tokens of a sequence, or is free.
    pub fn has_room(&self, tokens: usize) -> bool {
        self.layout.groups.iter().zip(&self.groups).all(|(layout, pool)| {
            let needed = match pool.kind {
                // One more, for a copy of a shared block.
                KvGroupKind::Full | KvGroupKind::SlidingWindow(_) => tokens.div_ceil(BLOCK) + 1,
                // The states before and after a batch.
                KvGroupKind::RecurrentState => 2,
                KvGroupKind::CrossAttention | KvGroupKind::Transient => 0,
            };
            pool.free().len() >= needed.min(layout.block_count)
        })
    }

    /// Returns the number of blocks of all groups, and how many of them are free.
    pub fn block_counts(&self) -> (usize, usize) {
        let counts = self.layout.groups.iter().zip(&self.groups);
        counts
            .fold((0, 0), |(all, free), (layout, pool)| (all + layout.block_count, free + pool.free().len()))
    }

    /// Returns how many blocks of the groups with full attention would be free without the sequences `ids`: the smallest
    /// number of a group.
    pub fn free_blocks_without(&self, ids: &[SequenceId]) -> usize {
        let full = self.layout.groups.iter().enumerate().filter(|(_, group)| group.kind == KvGroupKind::Full);
        let free = full.map(|(index, group)| {
            let holders = self.sequences.iter().enumerate().filter(|(id, _)| !ids.contains(id));
            let lists = holders.filter_map(|(_, sequence)| sequence.as_ref()?.blocks.get(index));
            let mut held: Vec<BlockId> =
                lists.flatten().copied().filter(|&block| block != NO_BLOCK).collect();
            held.sort_unstable();
            held.dedup();
            group.block_count.saturating_sub(held.len())
        });
        free.min().unwrap_or(usize::MAX)
    }

    /// Returns whether a list has the blocks of `length` tokens in a group, each with tokens of a sequence.
    fn is_held(&self, group: usize, list: &[BlockId], length: usize) -> bool {
        let kind = self.groups[group].kind;
        let is_held = |index: usize, block: BlockId| {
            let mut holders = self.sequences.iter().flatten().filter(|sequence| {
                if kind == KvGroupKind::RecurrentState {
                    return sequence.committed == length;
                }
                sequence.committed >= length.min((index + 1) * BLOCK)
            });
            holders.any(|sequence| sequence.blocks[group].get(index) == Some(&block))
        };
        list.len() == kind.blocks_of(length)
            && list.iter().enumerate().all(|(index, &block)| match block {
                NO_BLOCK => kind.may_be_evicted(index, length),
                block => is_held(index, block),
            })
    }

    /// Calls `copy` with each copy that is due since the last call, which must be before any block is written. If one
    /// fails, it and those after it are undone: their sequences share the blocks again.
    pub fn make_copies(&mut self, mut copy: impl FnMut(BlockCopy) -> Result<()>) -> Result<()> {
        let mut copies = std::mem::take(&mut self.copies);
        let failed = copies.iter().enumerate().find_map(|(index, due)| Some((index, copy(*due).err()?)));
        if let Some((first, _)) = &failed {
            // Backwards: a later copy may be into a block that an earlier one is from, if it has been freed since.
            copies.drain(*first..).rev().for_each(|due| self.undo_copy(due));
        }
        copies.clear();
        self.copies = copies;
        failed.map_or(Ok(()), |(_, error)| Err(error))
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
