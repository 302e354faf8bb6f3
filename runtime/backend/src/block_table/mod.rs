//! The block table of a KV cache (PagedAttention, arXiv:2309.06180): which blocks of token positions belong to which
//! sequence. The contents of the blocks belong to an [`Executable`](super::Executable).
//!
//! A group is the layers that keep the same positions: those with full attention, those with a sliding window. Each group
//! has its own blocks, of 64 positions each, and a sequence has one block list per group. Blocks are
//! reference-counted: a fork shares them, and the first sequence to write to a shared block gets a copy (copy on
//! write; see [`BlockTable::make_copies`]). Blocks that have left a sliding window return to the free list.
//!
//! Sequences that are encoded as a whole have groups of their own: layers whose keys and values are dropped after the
//! layer, all in the same blocks, and the cross-attention keys and values, which stay until the next sequence is
//! encoded.

mod block_pool;
mod layout;
mod save;
mod sharing;

use block_pool::BlockPool;
pub use block_pool::{KvGroupKind, SlidingWindow};
pub use layout::KvBudget;
pub use layout::{BlockLayout, KvGroupLayout};
pub use save::{SavedBlock, SavedSequence, SequenceState};
use siskin_format::{Error, ErrorKind, Result};
pub use siskin_kernels::ops::attention::BLOCK;
use siskin_kernels::ops::attention::CacheType;

use crate::BlockStorage;

/// Index of a sequence in the table.
pub type SequenceId = usize;

/// Index of a block in its group.
pub type BlockId = u32;

/// No block: not allocated yet, or dropped from the window.
pub const NO_BLOCK: BlockId = u32::MAX;

/// A block that must be copied before the next pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group of both blocks.
    pub group: usize,
    /// The block to read.
    pub from: BlockId,
    /// The block to write.
    pub to: BlockId,
}

/// The blocks of one sequence, one list per group.
struct Sequence {
    /// Tokens in the growing groups.
    length: usize,
    /// Positions of the encoded sequence.
    encoded_length: usize,
    /// The number of global tokens, which are stored a second time after the sequence.
    global_tokens: usize,
    /// Length of the bidirectional prefix (prefix LM).
    bidirectional_prefix: usize,
    /// Tokens of committed batches: those that the recurrent states have processed.
    committed: usize,
    /// Positions that blocks are reserved for.
    reserved: usize,
    /// Expected length in tokens.
    expected_length: usize,
    blocks: Vec<Vec<u32>>,
}

/// The element types of the KV cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheTypes {
    /// For keys and values that later batches attend to.
    pub persistent: CacheType,
    /// For keys and values that are dropped after their layer.
    pub transient: CacheType,
}

impl CacheTypes {
    /// The same type for all.
    pub fn all(kind: CacheType) -> Self {
        Self { persistent: kind, transient: kind }
    }

    /// Returns the type for a group of layers.
    pub fn of(self, kind: KvGroupKind) -> CacheType {
        if kind == KvGroupKind::Transient { self.transient } else { self.persistent }
    }
}

/// The size of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// The element types.
    pub types: CacheTypes,
    /// The maximum sequence length in positions.
    pub context_length: usize,
    /// The number of sequences that can reach that length at the same time.
    pub max_sequences: usize,
    /// The maximum number of rows in a decoder batch.
    pub max_batch_tokens: usize,
    /// The maximum number of positions in an encoder batch.
    pub encoder_context: usize,
}

/// The blocks of all sequences.
pub struct BlockTable {
    layout: BlockLayout,
    groups: Vec<BlockPool>,
    sequences: Vec<Option<Sequence>>,
    copies: Vec<BlockCopy>,
}

impl BlockTable {
    /// Creates a table without sequences.
    pub fn new(layout: BlockLayout) -> Self {
        let groups: Vec<_> =
            layout.groups.iter().map(|group| BlockPool::new(group.kind, group.block_count)).collect();
        let copies = Vec::with_capacity(groups.len() * layout.options.max_sequences);
        Self { layout, groups, sequences: Vec::new(), copies }
    }

    /// Returns the size of the cache.
    pub fn options(&self) -> &CacheOptions {
        &self.layout.options
    }

    /// Returns the maximum length of a sequence in tokens.
    pub fn context_length(&self) -> usize {
        self.layout.options.context_length
    }

    /// Returns the groups of layers.
    pub fn layout(&self) -> &BlockLayout {
        &self.layout
    }

    /// Creates an empty sequence.
    pub fn create(&mut self) -> SequenceId {
        let blocks = self.empty_lists();
        self.place(Sequence {
            length: 0,
            encoded_length: 0,
            global_tokens: 0,
            bidirectional_prefix: 0,
            committed: 0,
            reserved: 0,
            expected_length: 0,
            blocks,
        })
    }

    /// Returns the blocks of a sequence in a group, [`NO_BLOCK`] for those that have left a sliding window.
    pub fn blocks(&self, id: SequenceId, group: usize) -> Option<&[BlockId]> {
        Some(self.sequences.get(id)?.as_ref()?.blocks.get(group)?)
    }

    /// Returns the blocks of a group that no sequence uses.
    pub fn free_blocks(&self, group: usize) -> &[BlockId] {
        self.groups.get(group).map_or(&[], BlockPool::free)
    }

    /// Returns the memory of free blocks to the system.
    pub(crate) fn release_free(&self, storage: &mut dyn BlockStorage) {
        self.groups.iter().enumerate().for_each(|(group, pool)| storage.release(group, pool.free()));
    }

    /// Returns the maximum number of blocks of one group per sequence.
    fn max_blocks(&self) -> usize {
        let CacheOptions { context_length, encoder_context, .. } = self.layout.options;
        context_length.max(encoder_context).div_ceil(BLOCK).max(2)
    }

    fn empty_lists(&self) -> Vec<Vec<BlockId>> {
        self.groups.iter().map(|_| Vec::with_capacity(self.max_blocks())).collect()
    }

    fn place(&mut self, sequence: Sequence) -> SequenceId {
        match self.sequences.iter().position(Option::is_none) {
            Some(free) => {
                self.sequences[free] = Some(sequence);
                free
            }
            None => {
                self.sequences.push(Some(sequence));
                self.sequences.len() - 1
            }
        }
    }

    /// Frees a sequence and its blocks.
    pub fn remove(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id).and_then(Option::take) {
            for (group, blocks) in self.groups.iter_mut().zip(sequence.blocks) {
                blocks.into_iter().filter(|&block| block != NO_BLOCK).for_each(|block| group.release(block));
            }
        }
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence> {
        self.sequences.get(id).and_then(Option::as_ref).ok_or_else(|| no_sequence(id))
    }

    /// Returns the number of tokens in a sequence.
    pub fn length(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.length)
    }

    /// Returns the length of the encoded sequence in positions.
    pub fn encoded_length(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.encoded_length)
    }

    /// Returns the number of global tokens of the encoded sequence.
    pub fn global_tokens(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.global_tokens)
    }

    /// Returns the length of a sequence's bidirectional prefix (prefix LM).
    pub fn bidirectional_prefix(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.bidirectional_prefix)
    }

    /// Returns the expected length of a sequence.
    pub fn expected_length(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.expected_length)
    }

    /// Sets the expected length of a sequence.
    pub fn set_expected_length(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        sequence.expected_length = length;
        Ok(())
    }

    /// Makes the first `count` tokens of an empty sequence attend to each other bidirectionally.
    pub fn set_bidirectional_prefix(&mut self, id: SequenceId, count: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if sequence.length > 0 {
            let message = "the sequence has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "prefix", message));
        }
        sequence.bidirectional_prefix = count;
        Ok(())
    }

    /// Allocates blocks to encode a sequence of `count` positions, of which `global_tokens` are global tokens, plus one
    /// unattended position if it was padded; drops the previously encoded sequence.
    pub fn begin_encoding(
        &mut self,
        id: SequenceId,
        count: usize,
        global_tokens: usize,
        padded: bool,
    ) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        (sequence.encoded_length, sequence.global_tokens) = (0, 0);
        let projected = self.layout.projected;
        let groups = self.groups.iter_mut().zip(&mut sequence.blocks);
        for (group, blocks) in groups.filter(|(group, _)| !group.kind.grows()) {
            let is_transient = group.kind == KvGroupKind::Transient;
            if group.kind == KvGroupKind::RecurrentState && sequence.length > 0 {
                let message = "the sequence has tokens already; reset it first";
                return Err(Error::new(ErrorKind::State, "sequence", message));
            }
            group.truncate(blocks, 0);
            if group.kind == KvGroupKind::RecurrentState {
                blocks.extend([NO_BLOCK, group.allocate()?]);
                continue;
            }
            let count = if is_transient { count.max(projected) } else { count };
            let behind = if is_transient { global_tokens } else { 0 } + usize::from(padded);
            if let Err(error) = group.extend(blocks, 0, count + behind) {
                group.truncate(blocks, 0);
                return Err(error);
            }
        }
        (sequence.encoded_length, sequence.global_tokens) = (count, global_tokens);
        Ok(())
    }

    /// Frees the blocks that were only needed while encoding.
    pub fn end_encoding(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (group, blocks) in self.groups.iter_mut().zip(&mut sequence.blocks) {
            let is_done = match group.kind {
                KvGroupKind::Transient => true,
                KvGroupKind::RecurrentState => sequence.length == 0,
                KvGroupKind::Full | KvGroupKind::SlidingWindow(_) | KvGroupKind::CrossAttention => false,
            };
            if is_done {
                group.truncate(blocks, 0);
            }
        }
    }

    /// Drops all but the first `length` tokens.
    pub fn truncate(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        sequence.check_length(&self.groups, length)?;
        (sequence.reserved, sequence.expected_length) = (0, 0);
        if length == 0 {
            sequence.bidirectional_prefix = 0;
        }
        sequence.set_length(&mut self.groups, length);
        Ok(())
    }

    /// Takes back what the last batch added after the first `length` tokens. Reserved blocks and the expected length stay.
    pub fn roll_back(&mut self, id: SequenceId, length: usize) {
        if let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut)
            && sequence.length > length
        {
            sequence.set_length(&mut self.groups, length);
        }
    }

    /// Allocates `count` more positions: drops blocks that have left windows, replaces a shared block by a copy before
    /// it is written, allocates new blocks. On an error the sequence is unchanged except for dropped blocks.
    pub fn extend(&mut self, id: SequenceId, count: usize) -> Result<()> {
        let sequence = self.sequence(id)?;
        if sequence.length.saturating_add(count) <= self.layout.options.context_length {
            sequence.check_prefix(count)?;
        }
        self.allocate(id, count, count)?;
        if let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) {
            sequence.length += count;
        }
        Ok(())
    }

    /// Reserves blocks for `count` more positions, which other sequences cannot take: unless the sequence is forked,
    /// [`BlockTable::extend`] by as many or fewer cannot fail for lack of blocks. Layers with a sliding window get those
    /// of one batch, since their blocks are freed as the window moves on. On an error the sequence is unchanged
    /// except for dropped blocks.
    pub fn reserve(&mut self, id: SequenceId, count: usize) -> Result<()> {
        self.allocate(id, count, self.layout.options.max_batch_tokens)?;
        if let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) {
            sequence.reserved = sequence.reserved.max(sequence.length + count);
        }
        Ok(())
    }

    /// Returns the number of positions of a sequence for which blocks are reserved.
    pub(crate) fn reserved(&self, id: SequenceId) -> usize {
        self.sequences.get(id).and_then(Option::as_ref).map_or(0, |sequence| sequence.reserved)
    }

    /// Returns the blocks that are reserved for a sequence beyond its tokens and `reserved` positions.
    pub(crate) fn unreserve(&mut self, id: SequenceId, reserved: usize) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        sequence.reserved = reserved;
        let kept = sequence.length.max(reserved);
        sequence.grown(&mut self.groups).for_each(|(_, group, blocks)| group.truncate(blocks, kept));
    }

    /// Makes the blocks of the next `count` positions writable; in layers with a sliding window, of at most
    /// `max_windowed`.
    fn allocate(&mut self, id: SequenceId, count: usize, max_windowed: usize) -> Result<()> {
        let context = self.layout.options.context_length;
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        let length = sequence.length;
        let end = length.saturating_add(count);
        if end > context {
            return Err(too_long(end, context));
        }
        // Earlier entries of this batch still attend to what only committed tokens can drop.
        let committed = length.min(sequence.committed);
        for (group, blocks) in self.groups.iter_mut().zip(&mut sequence.blocks) {
            match group.kind {
                KvGroupKind::RecurrentState => group.begin_states(blocks)?,
                KvGroupKind::Full | KvGroupKind::SlidingWindow(_) => {
                    group.evict_outside_window(blocks, committed)
                }
                KvGroupKind::Transient | KvGroupKind::CrossAttention => {}
            }
        }
        let copies = &mut self.copies;
        let reserved = sequence.grown(&mut self.groups).try_for_each(|(number, group, blocks)| {
            let end = if group.kind == KvGroupKind::Full { end } else { end.min(length + max_windowed) };
            let copied = group.extend(blocks, length, end)?;
            copies.extend(copied.map(|copied| BlockCopy::new(number, copied)));
            Ok(())
        });
        if reserved.is_err() {
            // No block beyond the length stays that another sequence could share.
            let kept = length.max(sequence.reserved);
            sequence.grown(&mut self.groups).for_each(|(_, group, blocks)| group.truncate(blocks, kept));
        }
        reserved
    }

    /// Commits the states that a batch computed for a sequence.
    pub fn commit(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (group, blocks) in self.groups.iter_mut().zip(&mut sequence.blocks) {
            if group.kind == KvGroupKind::RecurrentState {
                group.commit_states(blocks);
            }
        }
        sequence.committed = sequence.length;
    }
}

impl Sequence {
    /// Frees the blocks of all but the first `length` tokens that are not reserved, and rolls states back.
    fn set_length(&mut self, groups: &mut [BlockPool], length: usize) {
        let kept = length.max(self.reserved);
        self.grown(groups).for_each(|(_, group, blocks)| group.truncate(blocks, kept));
        (self.length, self.committed) = (length, length);
        for (group, blocks) in groups.iter_mut().zip(&mut self.blocks) {
            if group.kind == KvGroupKind::RecurrentState {
                group.roll_back_states(blocks, length);
            }
        }
    }

    /// Checks that all but the first `length` tokens can be dropped.
    fn check_length(&self, groups: &[BlockPool], length: usize) -> Result<()> {
        if length > self.length {
            let message = format!("the sequence has only {} tokens", self.length);
            return Err(Error::argument("length", message));
        }
        if length == 0 {
            return Ok(());
        }
        if length < self.bidirectional_prefix.min(self.length) {
            return Err(within_bidirectional_prefix());
        }
        for (group, blocks) in groups.iter().zip(&self.blocks) {
            if group.kind == KvGroupKind::RecurrentState && length != self.committed {
                let message = "recurrent states cannot be rewound; reset and prefill again";
                return Err(Error::new(ErrorKind::State, "length", message));
            }
            let visible = group.kind.first_visible(length)..length.div_ceil(BLOCK);
            if group.kind.grows() && blocks.get(visible).is_some_and(|visible| visible.contains(&NO_BLOCK)) {
                let message =
                    "a sliding window has already dropped the tokens before it; reset and prefill again";
                return Err(Error::new(ErrorKind::State, "length", message));
            }
        }
        Ok(())
    }

    /// Checks that `count` more tokens do not split the bidirectional prefix.
    fn check_prefix(&self, count: usize) -> Result<()> {
        if self.length < self.bidirectional_prefix && (self.length > 0 || count < self.bidirectional_prefix) {
            let message = format!(
                "the prefix of {} tokens must be in one batch; use a larger batch",
                self.bidirectional_prefix
            );
            return Err(Error::argument("tokens", message));
        }
        Ok(())
    }

    /// Iterates over the block lists that grow with the sequence, with the numbers of their groups.
    fn grown<'a>(
        &'a mut self,
        groups: &'a mut [BlockPool],
    ) -> impl Iterator<Item = (usize, &'a mut BlockPool, &'a mut Vec<BlockId>)> {
        let lists = groups.iter_mut().zip(&mut self.blocks).enumerate();
        lists
            .map(|(number, (group, blocks))| (number, group, blocks))
            .filter(|(_, group, _)| group.kind.grows())
    }
}

/// Returns the error of a length that would cut a bidirectional prefix.
pub fn within_bidirectional_prefix() -> Error {
    let message = "within the prefix, whose tokens attend to each other; reset and prefill again";
    Error::new(ErrorKind::State, "length", message)
}

fn no_sequence(id: SequenceId) -> Error {
    Error::argument("sequence", format!("there is no sequence {id}"))
}

fn no_block() -> Error {
    let message = "every block is in use; end a sequence or open a larger context";
    Error::new(ErrorKind::Memory, "cache", message)
}

fn too_long(end: usize, context: usize) -> Error {
    let message = format!(
        "{end} tokens exceed the context length of {context}; shorten the input, or use a larger context if the model has one"
    );
    Error::new(ErrorKind::TooLong, "tokens", message)
}
