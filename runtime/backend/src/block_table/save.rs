//! Saves a sequence's blocks as words, and restores them.
//!
//! Saved data is untrusted: it is rejected if blocks are missing that the sequence would attend to.

use super::{BlockId, BlockTable, KvGroupKind, NO_BLOCK, Sequence, SequenceId, SlidingWindow};
use crate::BlockStorage;
use siskin_format::{Error, ErrorKind, Result};

/// Marks a block that the sequence has dropped.
const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// A saved sequence, validated as far as that is possible without a cache.
pub struct SavedSequence<'a> {
    /// The number of tokens.
    pub length: usize,
    /// The number of tokens that attend to each other bidirectionally.
    pub bidirectional_prefix: usize,
    /// The expected length in tokens.
    pub expected_length: usize,
    words: &'a [[u8; 4]],
}

impl<'a> SavedSequence<'a> {
    /// Wraps the saved blocks of a sequence of `length` tokens.
    pub fn new((length, prefix, expected_length): (usize, usize, usize), words: &'a [[u8; 4]]) -> Self {
        Self { length, bidirectional_prefix: prefix, expected_length, words }
    }
}

/// A block of a saved sequence.
struct SavedBlock<'a> {
    group: usize,
    /// The contents; `None` if the sequence had dropped the block.
    words: Option<&'a [[u8; 4]]>,
}

/// Returns a hash of the layout of a group's blocks: blocks of another layout are incompatible.
fn layout_hash(kind: KvGroupKind, format: &str) -> u32 {
    // These texts are a part of the format of saved sessions, and never change.
    let kind = match kind {
        KvGroupKind::Full => "Growing(None)".to_owned(),
        KvGroupKind::SlidingWindow(SlidingWindow { window, sinks }) => {
            format!("Growing(Some(Window {{ recent: {window}, first: {sinks} }}))")
        }
        KvGroupKind::Transient => "Passing".to_owned(),
        KvGroupKind::CrossAttention => "Memory".to_owned(),
        KvGroupKind::RecurrentState => "State".to_owned(),
    };
    let hash = blake3::hash(format!("{kind} {format}").as_bytes());
    u32::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1], hash.as_bytes()[2], hash.as_bytes()[3]])
}

impl BlockTable {
    /// Appends the blocks of a sequence, whose contents are in `storage`: for each group its layout hash, the number of
    /// blocks, the blocks. Returns the prefix length and the expected length.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for sequences with an encoded input.
    pub fn save(
        &self,
        id: SequenceId,
        storage: &dyn BlockStorage,
        out: &mut Vec<u8>,
    ) -> Result<(usize, usize)> {
        let sequence = self.sequence(id)?;
        if sequence.encoded_length > 0 {
            return Err(Error::unsupported("session", "sessions with an encoded input cannot be saved"));
        }
        for (number, (group, blocks)) in self.groups.iter().zip(&sequence.blocks).enumerate() {
            let format = storage.format(number)?;
            out.extend(layout_hash(group.kind, &format.name).to_le_bytes());
            let count = group.kind.blocks_of(sequence.length);
            out.extend((count as u32).to_le_bytes());
            for &block in &blocks[..count] {
                out.extend(if block == NO_BLOCK { ABSENT } else { PRESENT }.to_le_bytes());
                if block != NO_BLOCK {
                    storage.export(number, block, out)?;
                }
            }
        }
        Ok((sequence.bidirectional_prefix, sequence.expected_length))
    }

    /// Validates a saved sequence against this table.
    pub fn check(&self, saved: &SavedSequence<'_>, storage: &dyn BlockStorage) -> Result<()> {
        self.saved_blocks(saved, storage).map(drop)
    }

    /// Validates a saved sequence, and returns its blocks, group by group.
    fn saved_blocks<'a>(
        &self,
        saved: &SavedSequence<'a>,
        storage: &dyn BlockStorage,
    ) -> Result<Vec<SavedBlock<'a>>> {
        let context = self.layout.options.context_length;
        if saved.length > context {
            let message = format!(
                "{} tokens exceed the context length of {context}; use a larger context",
                saved.length
            );
            return Err(Error::new(ErrorKind::TooLong, "saved.tokens", message));
        }
        if saved.bidirectional_prefix > saved.length {
            return Err(Error::corrupt("saved.prefix", "longer than the sequence"));
        }
        let mut rest = saved.words;
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at_checked(count)?;
            rest = left;
            Some(taken)
        };
        let cut = || Error::corrupt("saved.cache", "truncated");
        let mut found = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let format = storage.format(number)?;
            let &[hash, count] = take(2).ok_or_else(cut)? else { return Err(cut()) };
            if u32::from_le_bytes(hash) != layout_hash(group.kind, &format.name) {
                let message = "saved with a different cache type, window or context; use the same options";
                return Err(Error::new(ErrorKind::Unsupported, "saved.cache", message));
            }
            if u32::from_le_bytes(count) as usize != group.kind.blocks_of(saved.length) {
                let message = "the number of blocks does not match the number of tokens";
                return Err(Error::corrupt("saved.cache", message));
            }
            for index in 0..group.kind.blocks_of(saved.length) {
                let is_present = take(1).ok_or_else(cut)? == [PRESENT.to_le_bytes()];
                if !is_present && !group.kind.may_be_evicted(index, saved.length) {
                    return Err(Error::corrupt("saved.cache", "lacks a block that its tokens attend to"));
                }
                let words = is_present.then(|| take(format.words).ok_or_else(cut)).transpose()?;
                found.push(SavedBlock { group: number, words });
            }
        }
        if rest.is_empty() { Ok(found) } else { Err(Error::corrupt("saved.cache", "trailing bytes")) }
    }

    /// Restores a saved sequence as a new one, with the contents of its blocks in `storage`.
    pub fn restore(
        &mut self,
        saved: &SavedSequence<'_>,
        storage: &mut dyn BlockStorage,
    ) -> Result<SequenceId> {
        let found = self.saved_blocks(saved, storage)?;
        let mut blocks = self.empty_lists();
        let mut restore = |saved: &SavedBlock<'_>| {
            let list: &mut Vec<BlockId> = &mut blocks[saved.group];
            let Some(words) = saved.words else {
                list.push(NO_BLOCK);
                return Ok(());
            };
            let block = self.groups[saved.group].allocate()?;
            list.push(block);
            storage.import(saved.group, block, words)
        };
        let outcome = found.iter().try_for_each(&mut restore);
        let id = self.place(Sequence {
            length: saved.length,
            encoded_length: 0,
            global_tokens: 0,
            bidirectional_prefix: saved.bidirectional_prefix,
            committed: saved.length,
            reserved: 0,
            expected_length: saved.expected_length,
            blocks,
        });
        if outcome.is_err() {
            self.remove(id);
        }
        outcome.map(|()| id)
    }
}
