//! The prefix cache: sequences that have ended stay in the KV cache, and requests that begin with the same tokens fork
//! them.
//!
//! A cached prefix is a sequence like any other, so that its blocks are shared by reference count, a tail within a block
//! is copied on write, and sliding windows and recurrent states are those of the sequence. The index maps the hash of
//! each chain of whole blocks to the prefixes that begin with it (as in vLLM); a hit is compared token by token. Memory
//! is reclaimed from the least recently used prefix, last tokens first.

mod disk;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

pub use disk::{DiskCacheOptions, DiskPrefixCache};

use crate::request::CacheSalt;
use siskin_backend::block_table::{BLOCK, SequenceId};
use siskin_format::kv::{KvFileWriter, KvLayout};

/// Prefixes with the same blocks that are compared token by token, the most recent ones first.
const COMPARED: usize = 16;
/// Prefixes that are tried for a request.
const TRIED: usize = 32;

/// The hash of a chain of blocks.
pub type ChainHash = [u8; 16];

/// Appends a block to a chain.
type HashBlock = fn(&ChainHash, &[u32]) -> ChainHash;

/// Keeps prefixes that leave memory. Its functions are called by several threads, also while a pass runs.
pub trait PrefixStore: Send + Sync {
    /// Returns whether it has these tokens, for the same use.
    fn covers(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> bool;

    /// Takes a prefix, which it may lose. Unless `waits`, it must return at once.
    fn write(&self, prefix: PrefixSnapshot, waits: bool);

    /// Returns the longest prefix of `tokens` that it has, unless the cache in memory has as much.
    fn read(&self, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix>;

    /// Waits until it has what it took.
    fn flush(&self);

    /// Returns where the cache in memory lists what it has.
    fn resident(&self) -> Arc<ResidentChains>;

    /// Returns the counters.
    fn stats(&self) -> PrefixStoreStats;
}

/// Counters of a [`PrefixStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixStoreStats {
    /// Files that were written.
    pub written: u64,
    /// Prefixes that were not written: the disk was too slow, or writing failed.
    pub lost: u64,
    /// Prefixes that were read.
    pub read: u64,
    /// Files that could not be used, or only up to a damaged block.
    pub damaged: u64,
}

/// A prefix whose blocks were copied, for a [`PrefixStore`].
pub struct PrefixSnapshot {
    salt: CacheSalt,
    tokens: Vec<u32>,
    reuse: PrefixReuse,
    layout: KvLayout,
    blocks: KvFileWriter,
}

/// A prefix that a [`PrefixStore`] returned, whose blocks are intact.
pub struct StoredPrefix {
    /// A `.siskin-kv` file.
    bytes: Vec<u8>,
    /// How many of its tokens can be used.
    length: usize,
    reuse: PrefixReuse,
}

/// The chains of whole blocks that the cache in memory has.
#[derive(Default)]
pub struct ResidentChains(Mutex<HashSet<ChainHash>>);

/// How the prefix of a sequence can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixReuse {
    /// Any number of its tokens.
    Partial,
    /// All of its tokens or none: the model has recurrent states.
    Whole,
}

/// What to do with a sequence whose memory is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// Remove it.
    Remove(SequenceId),
    /// Keep its first tokens.
    Truncate(SequenceId, usize),
}

struct CachedPrefix<H> {
    handle: H,
    tokens: Vec<u32>,
    /// The hash of the salt, then those of its chains of whole blocks.
    chains: Vec<ChainHash>,
    reuse: PrefixReuse,
    last_used: u64,
}

/// A cached prefix.
pub(crate) struct PrefixEntry<'a> {
    pub(crate) sequence: SequenceId,
    pub(crate) salt: CacheSalt,
    pub(crate) tokens: &'a [u32],
    pub(crate) reuse: PrefixReuse,
}

/// Finds cached prefixes, and decides which of them go. A prefix has a handle: its sequence, or its file.
pub struct PrefixCache<H = SequenceId> {
    prefixes: Vec<Option<CachedPrefix<H>>>,
    index: HashMap<ChainHash, Vec<usize>>,
    /// The keys of the index, for other threads.
    resident: Option<Arc<ResidentChains>>,
    hash: HashBlock,
    clock: u64,
}

impl<H: Copy + PartialEq> Default for PrefixCache<H> {
    fn default() -> Self {
        Self::with_hash(blake3_block)
    }
}

impl<H: Copy + PartialEq> PrefixCache<H> {
    fn with_hash(hash: HashBlock) -> Self {
        Self { prefixes: Vec::new(), index: HashMap::new(), resident: None, hash, clock: 0 }
    }

    /// Lists the chains of its prefixes in `resident`, too.
    pub(crate) fn listed_in(resident: Option<Arc<ResidentChains>>) -> Self {
        Self { resident, ..Self::default() }
    }

    /// Returns the number of cached prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.iter().flatten().count()
    }

    /// Returns whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `fork` with the handles of prefixes that begin as `tokens` do and the common length, the longest first, until
    /// it returns a value. At least one token remains for the caller to process.
    pub fn find<T>(
        &mut self,
        salt: CacheSalt,
        tokens: &[u32],
        mut fork: impl FnMut(H, usize) -> Option<T>,
    ) -> Option<(T, usize)> {
        let limit = tokens.len().saturating_sub(1);
        let chains = self.chains(salt, &tokens[..limit]);
        let mut tried = Vec::new();
        // A deeper chain has a longer common prefix, as long as hashes do not collide.
        for chain in chains.iter().rev() {
            let Some(slots) = self.index.get(chain) else { continue };
            let mut hits: Vec<_> = slots
                .iter()
                .rev()
                .filter(|slot| !tried.contains(*slot))
                .take(COMPARED)
                .filter_map(|&slot| Some((self.common(slot, salt, &tokens[..limit])?, slot)))
                .collect();
            hits.sort_unstable_by_key(|(length, slot)| std::cmp::Reverse((*length, *slot)));
            for (length, slot) in hits {
                if tried.len() == TRIED {
                    return None;
                }
                tried.push(slot);
                let Some(prefix) = self.prefixes[slot].as_mut() else { continue };
                if let Some(found) = fork(prefix.handle, length) {
                    self.clock += 1;
                    prefix.last_used = self.clock;
                    return Some((found, length));
                }
            }
        }
        None
    }

    /// Returns whether a prefix has these tokens, and can be used in the same way.
    pub(crate) fn covers(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> bool {
        self.with_salt(salt, reuse).any(|(_, prefix)| reuse.covers(&prefix.tokens, tokens))
    }

    /// Adds the prefix of some tokens. Returns handles that are no longer needed, because another prefix has all of
    /// their tokens; this may be the one that was added.
    pub fn insert(&mut self, salt: CacheSalt, tokens: &[u32], handle: H, reuse: PrefixReuse) -> Vec<H> {
        if tokens.is_empty() {
            return vec![handle];
        }
        let covering =
            |(slot, prefix): (usize, &CachedPrefix<H>)| reuse.covers(&prefix.tokens, tokens).then_some(slot);
        let covering = self.with_salt(salt, reuse).find_map(covering);
        if let Some(slot) = covering {
            self.clock += 1;
            self.prefixes[slot].as_mut().into_iter().for_each(|prefix| prefix.last_used = self.clock);
            return vec![handle];
        }
        let covered = self.with_salt(salt, reuse).filter(|(_, prefix)| reuse.covers(tokens, &prefix.tokens));
        let superfluous: Vec<_> = covered.map(|(slot, _)| slot).collect();
        let covered = superfluous.into_iter().filter_map(|slot| self.remove(slot)).collect();
        let chains = self.chains(salt, tokens);
        self.clock += 1;
        let slot = self.prefixes.iter().position(Option::is_none).unwrap_or(self.prefixes.len());
        if slot == self.prefixes.len() {
            self.prefixes.push(None);
        }
        for chain in &chains {
            self.index.entry(*chain).or_default().push(slot);
            self.resident.iter().for_each(|resident| resident.insert(*chain));
        }
        let tokens = tokens.to_vec();
        self.prefixes[slot] = Some(CachedPrefix { handle, tokens, chains, reuse, last_used: self.clock });
        covered
    }

    /// Returns the prefixes with a salt that can be used in one way, with their slots.
    fn with_salt(
        &self,
        salt: CacheSalt,
        reuse: PrefixReuse,
    ) -> impl Iterator<Item = (usize, &CachedPrefix<H>)> {
        let slots = self.index.get(&salt.0).into_iter().flatten();
        let prefixes = slots.filter_map(|&slot| Some((slot, self.prefixes[slot].as_ref()?)));
        prefixes.filter(move |(_, prefix)| prefix.reuse == reuse && prefix.chains[0] == salt.0)
    }

    /// Removes a prefix that cannot be used.
    pub fn discard(&mut self, handle: H) {
        let holds =
            |prefix: &Option<CachedPrefix<H>>| prefix.as_ref().is_some_and(|prefix| prefix.handle == handle);
        if let Some(slot) = self.prefixes.iter().position(holds) {
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: usize) -> Option<H> {
        let prefix = self.prefixes[slot].take()?;
        prefix.chains.iter().for_each(|chain| self.forget(chain, slot));
        Some(prefix.handle)
    }

    fn forget(&mut self, chain: &ChainHash, slot: usize) {
        if let Some(slots) = self.index.get_mut(chain) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.index.remove(chain);
                self.resident.iter().for_each(|resident| resident.remove(chain));
            }
        }
    }

    /// Returns how many tokens of a prefix can be used for `tokens`, if any.
    fn common(&self, slot: usize, salt: CacheSalt, tokens: &[u32]) -> Option<usize> {
        let prefix = self.prefixes[slot].as_ref()?;
        if prefix.chains[0] != salt.0 {
            return None;
        }
        let common = prefix.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        match prefix.reuse {
            PrefixReuse::Partial => (common > 0).then_some(common),
            PrefixReuse::Whole => (common == prefix.tokens.len()).then_some(common),
        }
    }

    /// Returns the hash of the salt, then those of the chains of whole blocks.
    fn chains(&self, salt: CacheSalt, tokens: &[u32]) -> Vec<ChainHash> {
        let mut chains = Vec::with_capacity(tokens.len() / BLOCK + 1);
        let mut chain = salt.0;
        chains.push(chain);
        for block in tokens.as_chunks::<BLOCK>().0 {
            chain = (self.hash)(&chain, block);
            chains.push(chain);
        }
        chains
    }
}

impl PrefixCache {
    /// Returns the slot of the least recently used prefix.
    fn oldest_slot(&self) -> Option<usize> {
        let used = |slot: &usize| self.prefixes[*slot].as_ref().map(|prefix| prefix.last_used);
        (0..self.prefixes.len()).filter(|slot| used(slot).is_some()).min_by_key(used)
    }

    /// Returns the prefix from which [`reclaim`](Self::reclaim) takes memory.
    pub(crate) fn oldest(&self) -> Option<PrefixEntry<'_>> {
        self.prefixes[self.oldest_slot()?].as_ref().map(CachedPrefix::entry)
    }

    /// Returns all prefixes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PrefixEntry<'_>> {
        self.prefixes.iter().flatten().map(CachedPrefix::entry)
    }

    /// Takes memory from the least recently used prefix: the last quarter of its blocks, or all of it if it is short or
    /// can only be used whole.
    pub fn reclaim(&mut self) -> Option<Reclaimed> {
        let slot = self.oldest_slot()?;
        let prefix = self.prefixes[slot].as_mut()?;
        let blocks = prefix.tokens.len().div_ceil(BLOCK);
        let kept = (blocks - blocks.div_ceil(4)) * BLOCK;
        if prefix.reuse == PrefixReuse::Whole || kept == 0 {
            return self.remove(slot).map(Reclaimed::Remove);
        }
        prefix.tokens.truncate(kept);
        let sequence = prefix.handle;
        let dropped = prefix.chains.split_off(kept / BLOCK + 1);
        dropped.iter().for_each(|chain| self.forget(chain, slot));
        Some(Reclaimed::Truncate(sequence, kept))
    }

    /// Removes all prefixes and returns their sequences.
    pub fn clear(&mut self) -> Vec<SequenceId> {
        (0..self.prefixes.len()).filter_map(|slot| self.remove(slot)).collect()
    }
}

impl CachedPrefix<SequenceId> {
    fn entry(&self) -> PrefixEntry<'_> {
        let Self { handle, tokens, chains, reuse, .. } = self;
        PrefixEntry { sequence: *handle, salt: CacheSalt(chains[0]), tokens, reuse: *reuse }
    }
}

impl PrefixReuse {
    /// Returns whether a prefix `whole` makes one of `part` superfluous.
    fn covers(self, whole: &[u32], part: &[u32]) -> bool {
        match self {
            Self::Partial => whole.starts_with(part),
            Self::Whole => whole == part,
        }
    }
}

fn blake3_block(chain: &ChainHash, tokens: &[u32]) -> ChainHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(chain);
    let mut bytes = [0; 4 * BLOCK];
    for (bytes, token) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
    }
    hasher.update(&bytes);
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    hash
}
