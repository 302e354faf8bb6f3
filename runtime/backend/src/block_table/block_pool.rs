//! The blocks of the layers that keep the same positions: reference counts and the free list.

use super::{BlockCopy, BlockId, NO_BLOCK, no_block};
use siskin_format::Result;
use siskin_graph::AttentionMask;
use siskin_kernels::ops::attention::BLOCK;

/// What a KV cache group stores, and for how long: the layers of a group have the same kind, as in vLLM's hybrid KV cache
/// manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvGroupKind {
    /// Full attention: as long as the sequence.
    Full,
    /// Sliding-window attention: until they leave the window.
    SlidingWindow(SlidingWindow),
    /// Cross-attention: until the next sequence is encoded.
    CrossAttention,
    /// A recurrent state: one block, which every batch replaces. The previous block is the state before the batch.
    RecurrentState,
    /// Until the layer is done with the batch.
    Transient,
}

/// The positions of a sliding window that stay in the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// The number of newest positions.
    pub window: usize,
    /// The number of oldest positions (attention sinks).
    pub sinks: usize,
}

impl KvGroupKind {
    /// Returns the kind of the layers with a mask, in sequences of up to `context` tokens.
    pub(super) fn of(attention_mask: AttentionMask, context: usize) -> Self {
        let sliding = |window: usize, sinks: usize| match window.saturating_add(sinks) < context {
            true => Self::SlidingWindow(SlidingWindow { window, sinks }),
            false => Self::Full,
        };
        match attention_mask {
            AttentionMask::Causal(None) => Self::Full,
            AttentionMask::Causal(Some(window)) => sliding(window, 0),
            AttentionMask::StreamingLlm { window, sinks } => sliding(window, sinks),
            AttentionMask::CausalEncoder(_)
            | AttentionMask::Full
            | AttentionMask::LocalWindow(_)
            | AttentionMask::LongformerLocal(_)
            | AttentionMask::LongformerGlobal
            | AttentionMask::BigBird { .. }
            | AttentionMask::Linformer => Self::Transient,
            AttentionMask::CrossAttention => Self::CrossAttention,
        }
    }

    /// Returns whether the group's blocks grow with the sequence.
    pub(super) fn grows(self) -> bool {
        matches!(self, Self::Full | Self::SlidingWindow(_))
    }

    /// Returns how many blocks a saved sequence of `length` tokens has.
    pub(super) fn blocks_of(self, length: usize) -> usize {
        match self {
            Self::Full | Self::SlidingWindow(_) => length.div_ceil(BLOCK),
            Self::RecurrentState => usize::from(length > 0),
            Self::Transient | Self::CrossAttention => 0,
        }
    }

    /// Returns the first block that the next token of a sequence of `length` tokens attends to, attention sinks aside.
    pub(super) fn first_visible(self, length: usize) -> usize {
        let Self::SlidingWindow(SlidingWindow { window, .. }) = self else { return 0 };
        (length + 1).saturating_sub(window) / BLOCK
    }

    /// Returns whether a sequence of `length` tokens may have dropped block `index`.
    pub(super) fn may_be_evicted(self, index: usize, length: usize) -> bool {
        let Self::SlidingWindow(SlidingWindow { sinks, .. }) = self else { return false };
        (sinks.div_ceil(BLOCK)..self.first_visible(length)).contains(&index)
    }
}

/// Layers that keep the same positions, and the blocks of all sequences.
pub(super) struct BlockPool {
    pub kind: KvGroupKind,
    reference_counts: Vec<u32>,
    free: Vec<BlockId>,
}

impl BlockPool {
    pub(super) fn new(kind: KvGroupKind, count: usize) -> Self {
        let free = (0..u32::try_from(count).unwrap_or(u32::MAX - 1)).rev().collect();
        Self { kind, reference_counts: vec![0; count], free }
    }

    /// Returns the blocks without an owner.
    pub(super) fn free(&self) -> &[BlockId] {
        &self.free
    }

    /// Returns whether a block has an owner.
    pub(super) fn is_allocated(&self, block: BlockId) -> bool {
        self.reference_counts.get(block as usize).is_some_and(|&reference_counts| reference_counts > 0)
    }

    /// Allocates a block with one owner.
    pub(super) fn allocate(&mut self) -> Result<BlockId> {
        let block = self.free.pop().ok_or_else(no_block)?;
        self.reference_counts[block as usize] = 1;
        Ok(block)
    }

    /// Increments the reference count.
    pub(super) fn share(&mut self, block: BlockId) {
        self.reference_counts[block as usize] += 1;
    }

    /// Increments the reference count of a block that may have been freed since, but was not written.
    pub(super) fn take_back(&mut self, block: BlockId) {
        if !self.is_allocated(block) {
            self.free.retain(|&free| free != block);
        }
        self.share(block);
    }

    /// Decrements the reference count; at zero the block is free.
    pub(super) fn release(&mut self, block: BlockId) {
        let reference_counts = &mut self.reference_counts[block as usize];
        *reference_counts -= 1;
        if *reference_counts == 0 {
            self.free.push(block);
        }
    }

    /// Frees the blocks that no future token of a sequence of `length` tokens attends to.
    pub(super) fn evict_outside_window(&mut self, blocks: &mut [BlockId], length: usize) {
        let KvGroupKind::SlidingWindow(SlidingWindow { sinks, .. }) = self.kind else { return };
        let dropped = blocks.iter_mut().take(self.kind.first_visible(length)).skip(sinks.div_ceil(BLOCK));
        for block in dropped.filter(|block| **block != NO_BLOCK) {
            self.release(*block);
            *block = NO_BLOCK;
        }
    }

    /// Makes the blocks of positions `length..end` writable for one sequence: allocates a copy of a shared block (copy
    /// on write), and new blocks. Returns which block must be copied to which.
    pub(super) fn extend(
        &mut self,
        blocks: &mut Vec<BlockId>,
        length: usize,
        end: usize,
    ) -> Result<Option<(BlockId, BlockId)>> {
        let mut copied = None;
        if let Some(last) = blocks.get_mut(length / BLOCK)
            && self.reference_counts.get(*last as usize).is_some_and(|&reference_counts| reference_counts > 1)
        {
            let copy = self.allocate()?;
            self.release(*last);
            copied = Some((*last, copy));
            *last = copy;
        }
        while blocks.len() < end.div_ceil(BLOCK) {
            match self.allocate() {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    if let Some((shared, copy)) = copied {
                        // No one has written the copy: the shared block is taken back.
                        self.release(copy);
                        self.share(shared);
                        blocks[length / BLOCK] = shared;
                    }
                    return Err(error);
                }
            }
        }
        Ok(copied)
    }

    /// Frees the blocks after the first `length` tokens.
    pub(super) fn truncate(&mut self, blocks: &mut Vec<BlockId>, length: usize) {
        for block in blocks.drain(length.div_ceil(BLOCK).min(blocks.len())..) {
            if block != NO_BLOCK {
                self.release(block);
            }
        }
    }
}

/// Recurrent states. While a batch runs, a sequence has its block from before the batch, which is read-only, and a new
/// one: a batch that fails keeps the old one, and forks share a block that is never written again.
impl BlockPool {
    /// Allocates the block for the new states, once per batch.
    pub(super) fn begin_states(&mut self, blocks: &mut Vec<BlockId>) -> Result<()> {
        if blocks.is_empty() {
            blocks.push(NO_BLOCK);
        }
        if blocks.len() == 1 {
            blocks.push(self.allocate()?);
        }
        Ok(())
    }

    /// Commits a batch: frees the old states.
    pub(super) fn commit_states(&mut self, blocks: &mut Vec<BlockId>) {
        if blocks.len() == 2 {
            let before = blocks.remove(0);
            if before != NO_BLOCK {
                self.release(before);
            }
        }
    }

    /// Rolls a failed batch back: frees the new states, and also the old ones if `length` is zero.
    pub(super) fn roll_back_states(&mut self, blocks: &mut Vec<BlockId>, length: usize) {
        let kept = usize::from(length > 0);
        while blocks.len() > kept {
            if let Some(block) = blocks.pop().filter(|&block| block != NO_BLOCK) {
                self.release(block);
            }
        }
    }
}

impl BlockCopy {
    pub(super) fn new(group: usize, (from, to): (BlockId, BlockId)) -> Self {
        Self { group, from, to }
    }
}
