//! Saves a sequence's blocks to a `.siskin-kv` file, and restores them.
//!
//! Saved data is untrusted: it is rejected if blocks are missing that the sequence would attend to.

use super::{BLOCK, BlockId, BlockTable, KvGroupKind, NO_BLOCK, Sequence, SequenceId, SlidingWindow};
use crate::BlockStorage;
use siskin_format::kv::{KvFile, KvFileWriter, KvGroup, KvLayout, KvPositions};
use siskin_format::{Error, ErrorKind, Result};

/// What a saved sequence has beside its tokens and blocks.
pub struct SequenceState {
    /// The number of tokens that attend to each other bidirectionally.
    pub bidirectional_prefix: usize,
    /// The expected length in tokens.
    pub expected_length: usize,
    /// The layout of its blocks.
    pub layout: KvLayout,
}

/// A saved sequence.
pub struct SavedSequence<'a> {
    /// The number of tokens that attend to each other bidirectionally.
    pub bidirectional_prefix: usize,
    /// The expected length in tokens.
    pub expected_length: usize,
    /// How many of its tokens are restored; all, if the model has recurrent states.
    pub length: usize,
    /// Its tokens and blocks.
    pub file: &'a KvFile<'a>,
}

impl SavedSequence<'_> {
    fn restored_length(&self) -> usize {
        self.length.min(self.file.tokens.len())
    }
}

/// A block of a saved sequence.
pub struct SavedBlock<'a> {
    group: usize,
    /// The contents; `None` if the sequence had dropped the block.
    words: Option<&'a [[u8; 4]]>,
}

fn number(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::unsupported("session", "too long to be saved"))
}

/// Returns which positions a group keeps.
fn positions(kind: KvGroupKind) -> Result<KvPositions> {
    Ok(match kind {
        KvGroupKind::Full => KvPositions::Full,
        KvGroupKind::SlidingWindow(SlidingWindow { window, sinks }) => {
            KvPositions::SlidingWindow { window: number(window)?, sinks: number(sinks)? }
        }
        KvGroupKind::Transient => KvPositions::Transient,
        KvGroupKind::CrossAttention => KvPositions::CrossAttention,
        KvGroupKind::RecurrentState => KvPositions::RecurrentState,
    })
}

impl BlockTable {
    /// Returns the layout of the blocks in `storage`.
    fn kv_layout(&self, storage: &dyn BlockStorage) -> Result<KvLayout> {
        let group = |(index, group): (usize, &super::BlockPool)| {
            let format = storage.format(index)?;
            let (positions, block_words) = (positions(group.kind)?, number(format.words)?);
            Ok(KvGroup { positions, block_words, block_format: format.name })
        };
        let groups = self.groups.iter().enumerate().map(group).collect::<Result<_>>()?;
        Ok(KvLayout { block_positions: BLOCK as u32, groups })
    }

    /// Appends the blocks of a sequence, whose contents are in `storage`. Returns the rest of its state.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for sequences with an encoded input.
    pub fn save(
        &self,
        id: SequenceId,
        storage: &dyn BlockStorage,
        out: &mut KvFileWriter,
    ) -> Result<SequenceState> {
        let sequence = self.sequence(id)?;
        if sequence.encoded_length > 0 {
            return Err(Error::unsupported("session", "sessions with an encoded input cannot be saved"));
        }
        for (number, (group, blocks)) in self.groups.iter().zip(&sequence.blocks).enumerate() {
            for (index, &block) in blocks[..group.kind.blocks_of(sequence.length)].iter().enumerate() {
                if block != NO_BLOCK {
                    out.block(number, index, |out| storage.export(number, block, out))?;
                }
            }
        }
        let Sequence { bidirectional_prefix, expected_length, .. } = *sequence;
        Ok(SequenceState { bidirectional_prefix, expected_length, layout: self.kv_layout(storage)? })
    }

    /// Validates a saved sequence against this table, and returns its blocks, group by group.
    pub fn saved_blocks<'a>(
        &self,
        saved: &SavedSequence<'a>,
        storage: &dyn BlockStorage,
    ) -> Result<Vec<SavedBlock<'a>>> {
        let (context, length) = (self.layout.options.context_length, saved.restored_length());
        if length > context {
            let message =
                format!("{length} tokens exceed the context length of {context}; use a larger context");
            return Err(Error::new(ErrorKind::TooLong, "saved.tokens", message));
        }
        if saved.bidirectional_prefix > length {
            return Err(Error::corrupt("saved.prefix", "longer than the sequence"));
        }
        check_layout(&saved.file.layout, &self.kv_layout(storage)?)?;
        let mut found = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let count = group.kind.blocks_of(length);
            let all = group.kind.blocks_of(saved.file.tokens.len());
            if saved.file.block_numbers(number).any(|index| index >= all) {
                return Err(Error::corrupt("saved.blocks", "more blocks than the tokens have"));
            }
            for index in 0..count {
                let words = saved.file.block(number, index)?;
                if words.is_none() && !group.kind.may_be_evicted(index, length) {
                    let message =
                        format!("lacks block {index} of group {number}, which its tokens attend to");
                    return Err(Error::corrupt("saved.blocks", message));
                }
                found.push(SavedBlock { group: number, words });
            }
        }
        Ok(found)
    }

    /// Restores a saved sequence as a new one, with the contents of its blocks, which
    /// [`saved_blocks`](Self::saved_blocks) returned, in `storage`.
    pub fn restore(
        &mut self,
        saved: &SavedSequence<'_>,
        found: &[SavedBlock<'_>],
        storage: &mut dyn BlockStorage,
    ) -> Result<SequenceId> {
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
        let length = saved.restored_length();
        let id = self.place(Sequence {
            length,
            encoded_length: 0,
            global_tokens: 0,
            bidirectional_prefix: saved.bidirectional_prefix,
            committed: length,
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

/// Rejects blocks that this session cannot read, and names the difference.
fn check_layout(saved: &KvLayout, own: &KvLayout) -> Result<()> {
    let fail = |what: String| Err(Error::unsupported("saved.layout", what));
    if saved.block_positions != own.block_positions || saved.groups.len() != own.groups.len() {
        return fail("blocks of another length, or for other layers; save the session again".to_owned());
    }
    match saved.groups.iter().zip(&own.groups).find(|(saved, own)| saved != own) {
        None => Ok(()),
        Some((saved, own)) => fail(format!(
            "keeps {saved}, and this session {own}; use the same cache type, window and context"
        )),
    }
}
