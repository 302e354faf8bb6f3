//! Saves a sequence's blocks as words, and restores them.
//!
//! Saved data is untrusted: it is refused if blocks are missing that the sequence would attend to.

use super::{Keep, Kind, KvCache, NONE, Sequence, SequenceId, Window};
use crate::{Error, ErrorKind, Result};
use siskin_kernels::ops::attention::{BLOCK, CacheType};

/// Marks a block that the sequence has dropped.
const ABSENT: u32 = 0;
const PRESENT: u32 = 1;

/// A saved sequence, validated as far as that is possible without a cache.
pub(crate) struct Saved<'a> {
    pub length: usize,
    pub prefix: usize,
    pub expected: usize,
    words: &'a [[u8; 4]],
}

impl<'a> Saved<'a> {
    /// Wraps the saved blocks of a sequence of `length` tokens.
    pub(crate) fn new((length, prefix, expected): (usize, usize, usize), words: &'a [[u8; 4]]) -> Self {
        Self { length, prefix, expected, words }
    }
}

impl Kind {
    /// Returns a hash of the block layout: blocks of another layout are incompatible.
    fn make(&self) -> u32 {
        // Written out, so that no name of a type is a part of a saved session.
        let keep = match self.keep {
            Keep::Growing(None) => "Growing(None)".to_owned(),
            Keep::Growing(Some(Window { recent, first })) => {
                format!("Growing(Some(Window {{ recent: {recent}, first: {first} }}))")
            }
            Keep::Passing => "Passing".to_owned(),
            Keep::Memory => "Memory".to_owned(),
            Keep::State => "State".to_owned(),
        };
        let cached = match self.cached {
            CacheType::F32 => "F32",
            CacheType::F16 => "F16",
            CacheType::Int8 => "Int8",
        };
        let text = format!("{keep} {cached} {}", self.pool.block_words());
        let hash = blake3::hash(text.as_bytes());
        u32::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1], hash.as_bytes()[2], hash.as_bytes()[3]])
    }

    /// Returns whether a sequence of `length` tokens may have dropped block `index`.
    fn may_lack(&self, index: usize, length: usize) -> bool {
        let Keep::Growing(Some(Window { recent, first })) = self.keep else { return false };
        index >= first.div_ceil(BLOCK) && index < (length + 1).saturating_sub(recent) / BLOCK
    }

    /// Returns how many blocks a sequence of `length` tokens has.
    fn blocks_of(&self, length: usize) -> usize {
        match self.keep {
            Keep::Growing(_) => length.div_ceil(BLOCK),
            Keep::State => usize::from(length > 0),
            Keep::Passing | Keep::Memory => 0,
        }
    }
}

impl KvCache {
    /// Appends the blocks of a sequence: for each kind its layout hash, the number of blocks, the blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for sequences with an encoded input.
    pub(crate) fn save(&self, id: SequenceId, out: &mut Vec<u8>) -> Result<(usize, usize)> {
        let sequence = self.sequence(id)?;
        if sequence.text > 0 {
            return Err(Error::unsupported("session", "sessions with an encoded input cannot be saved"));
        }
        for (kind, blocks) in self.kinds.iter().zip(&sequence.blocks) {
            out.extend(kind.make().to_le_bytes());
            out.extend((blocks.len() as u32).to_le_bytes());
            for &block in blocks {
                let there = block != NONE;
                out.extend(if there { PRESENT } else { ABSENT }.to_le_bytes());
                if there {
                    let words = kind.pool.words(block, 0, kind.pool.block_words());
                    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                }
            }
        }
        Ok((sequence.prefix, sequence.expected))
    }

    /// Validates a saved sequence against this cache.
    pub(crate) fn check(&self, saved: &Saved<'_>) -> Result<()> {
        if saved.length > self.options.context {
            let message = format!(
                "{} tokens do not fit into the context of {}; open a larger one",
                saved.length, self.options.context
            );
            return Err(Error::new(ErrorKind::TooLong, "saved.tokens", message));
        }
        if saved.prefix > saved.length {
            return Err(Error::corrupt("saved.prefix", "longer than the sequence"));
        }
        self.walk(saved, &mut |_, _, _| ())
    }

    /// Calls `each` for every saved block with its kind, whether it is present, and its words.
    fn walk<'a>(&self, saved: &Saved<'a>, each: &mut dyn FnMut(usize, bool, &'a [[u8; 4]])) -> Result<()> {
        let mut rest = saved.words;
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at_checked(count)?;
            rest = left;
            Some(taken)
        };
        let cut = || Error::corrupt("saved.cache", "truncated");
        for (index, kind) in self.kinds.iter().enumerate() {
            let &[make, count] = take(2).ok_or_else(cut)? else { return Err(cut()) };
            if u32::from_le_bytes(make) != kind.make() {
                let message = "was saved with another cache type, window or context; open a session like it";
                return Err(Error::new(ErrorKind::Unsupported, "saved.cache", message));
            }
            if u32::from_le_bytes(count) as usize != kind.blocks_of(saved.length) {
                return Err(Error::corrupt(
                    "saved.cache",
                    "the number of blocks does not match the number of tokens",
                ));
            }
            for block in 0..kind.blocks_of(saved.length) {
                let there = take(1).ok_or_else(cut)? == [PRESENT.to_le_bytes()];
                if !there && !kind.may_lack(block, saved.length) {
                    return Err(Error::corrupt("saved.cache", "lacks a block that its tokens attend to"));
                }
                let words = if there { kind.pool.block_words() } else { 0 };
                each(index, there, take(words).ok_or_else(cut)?);
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::corrupt("saved.cache", "has trailing bytes")) }
    }

    /// Restores a saved sequence as a new one.
    pub(crate) fn restore(&mut self, saved: &Saved<'_>) -> Result<SequenceId> {
        self.check(saved)?;
        let mut found = Vec::new();
        self.walk(saved, &mut |kind, there, words| found.push((kind, there, words)))?;
        let mut blocks: Vec<Vec<u32>> =
            self.kinds.iter().map(|_| Vec::with_capacity(self.most_blocks())).collect();
        let mut failed = None;
        for (kind, there, words) in found {
            let block = match there {
                false => Ok(NONE),
                true => self.kinds[kind].pool.take(),
            };
            match block {
                Ok(block) => {
                    blocks[kind].push(block);
                    if there {
                        self.kinds[kind].pool.fill(block, words);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        let sequence = Sequence {
            length: saved.length,
            text: 0,
            marked: 0,
            prefix: saved.prefix,
            stated: saved.length,
            expected: saved.expected,
            blocks,
        };
        let id = self.place(sequence);
        match failed {
            None => Ok(id),
            Some(error) => {
                self.remove(id);
                Err(error)
            }
        }
    }

    /// Returns the memory of free blocks to the system, which provides it again when they are written.
    pub(crate) fn trim(&mut self) {
        self.kinds.iter_mut().for_each(|kind| kind.pool.trim());
    }
}
