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

use std::collections::HashMap;
use std::sync::Arc;

pub use disk::{DiskCacheOptions, DiskPrefixCache};
pub use stored::kv_layout;

use crate::request::CacheSalt;
use siskin_backend::block_table::{BLOCK, SequenceId};
use siskin_format::file::Bytes;
use siskin_format::kv::KvFileWriter;

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
    /// Returns whether it takes a prefix now: it has none with these tokens for the same use, and has room for one more,
    /// or the caller `waits` until it has.
    fn wants(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse, waits: bool) -> bool;

    /// Takes a prefix. Unless the caller `waits`, it returns at once, and may drop the prefix.
    fn write(&self, prefix: PrefixSnapshot, waits: bool);

    /// Returns the longest prefix of `tokens` that it has, unless the cache in memory has as much.
    fn read(&self, salt: CacheSalt, tokens: &[u32]) -> Option<StoredPrefix>;

    /// Waits until it has what it took.
    fn flush(&self);

    /// Adds chains of a prefix that the cache in memory has, up to which it can be used.
    fn add_resident(&self, chains: &[ChainHash]);

    /// Removes them.
    fn remove_resident(&self, chains: &[ChainHash]);

    /// Returns the counters.
    fn stats(&self) -> PrefixStoreStats;
}

/// Counters of a [`PrefixStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixStoreStats {
    /// Prefixes that were written.
    pub written: u64,
    /// Prefixes that were not written: others were still being written, or they are larger than the store.
    pub dropped: u64,
    /// Prefixes whose writing failed, as when the disk is full.
    pub failed: u64,
    /// Prefixes that were read.
    pub read: u64,
    /// Files that were corrupt, and were removed.
    pub corrupt: u64,
}

/// A prefix whose blocks were copied, for a [`PrefixStore`].
pub struct PrefixSnapshot {
    salt: CacheSalt,
    tokens: Vec<u32>,
    reuse: PrefixReuse,
    blocks: KvFileWriter,
}

/// A prefix that a [`PrefixStore`] returned, whose blocks are intact.
pub struct StoredPrefix {
    file: Arc<StoredFile>,
    /// How many of its tokens can be used.
    length: usize,
    reuse: PrefixReuse,
}

/// A `.siskin-kv` file.
struct StoredFile {
    bytes: Bytes,
    /// The number of tokens whose blocks are intact.
    verified: usize,
}

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
    /// A store that lists which chains are there, and whether prefixes can be cut anywhere.
    listed_in: Option<(Arc<dyn PrefixStore>, bool)>,
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
        Self { prefixes: Vec::new(), index: HashMap::new(), listed_in: None, hash, clock: 0 }
    }

    /// Lists the chains of its prefixes in `store`: all of them if prefixes can be cut anywhere, or else the last one of
    /// each.
    pub(crate) fn listed_in(store: Option<Arc<dyn PrefixStore>>, can_cut: bool) -> Self {
        Self { listed_in: store.map(|store| (store, can_cut)), ..Self::default() }
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

    /// Returns the prefix that makes one with these tokens superfluous, if any.
    pub(crate) fn covering(&self, salt: CacheSalt, tokens: &[u32], reuse: PrefixReuse) -> Option<H> {
        let slot = self.covering_slot(&self.chains(salt, tokens), tokens, reuse)?;
        self.prefixes[slot].as_ref().map(|prefix| prefix.handle)
    }

    fn covering_slot(&self, chains: &[ChainHash], tokens: &[u32], reuse: PrefixReuse) -> Option<usize> {
        self.with_chain(chains, chains.len() - 1).find_map(|(slot, prefix)| {
            (prefix.reuse == reuse && reuse.covers(&prefix.tokens, tokens)).then_some(slot)
        })
    }

    /// Returns the prefixes that have the chain at `depth`, and the same salt.
    fn with_chain<'a>(
        &'a self,
        chains: &'a [ChainHash],
        depth: usize,
    ) -> impl Iterator<Item = (usize, &'a CachedPrefix<H>)> {
        let slots = self.index.get(&chains[depth]).into_iter().flatten();
        let prefixes = slots.filter_map(|&slot| Some((slot, self.prefixes[slot].as_ref()?)));
        prefixes.filter(|(_, prefix)| prefix.chains[0] == chains[0])
    }

    /// Adds the prefix of some tokens. Returns handles that are no longer needed, because another prefix has all of
    /// their tokens; this may be the one that was added.
    pub fn insert(&mut self, salt: CacheSalt, tokens: &[u32], handle: H, reuse: PrefixReuse) -> Vec<H> {
        if tokens.is_empty() {
            return vec![handle];
        }
        let chains = self.chains(salt, tokens);
        if let Some(slot) = self.covering_slot(&chains, tokens, reuse) {
            self.clock += 1;
            self.prefixes[slot].as_mut().into_iter().for_each(|prefix| prefix.last_used = self.clock);
            return vec![handle];
        }
        let is_covered = |depth: usize, prefix: &CachedPrefix<H>| {
            prefix.chains.len() == depth + 1 && prefix.reuse == reuse && reuse.covers(tokens, &prefix.tokens)
        };
        let at_depth = |depth: usize| {
            let there = self.with_chain(&chains, depth);
            there.filter(move |(_, prefix)| is_covered(depth, prefix)).map(|(slot, _)| slot)
        };
        let superfluous: Vec<usize> = (0..chains.len()).flat_map(at_depth).collect();
        let covered = superfluous.into_iter().filter_map(|slot| self.remove(slot)).collect();
        self.clock += 1;
        let slot = self.prefixes.iter().position(Option::is_none).unwrap_or(self.prefixes.len());
        if slot == self.prefixes.len() {
            self.prefixes.push(None);
        }
        chains.iter().for_each(|chain| self.index.entry(*chain).or_default().push(slot));
        let tokens = tokens.to_vec();
        let prefix = CachedPrefix { handle, tokens, chains, reuse, last_used: self.clock };
        self.list(&prefix, |store, chains| store.add_resident(chains));
        self.prefixes[slot] = Some(prefix);
        covered
    }

    /// Calls `change` with the chains of a prefix that are listed.
    fn list(&self, prefix: &CachedPrefix<H>, change: fn(&dyn PrefixStore, &[ChainHash])) {
        if let Some((store, can_cut)) = &self.listed_in {
            let first = if *can_cut { 0 } else { prefix.chains.len() - 1 };
            change(&**store, &prefix.chains[first..]);
        }
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
        self.list(&prefix, |store, chains| store.remove_resident(chains));
        prefix.chains.iter().for_each(|chain| self.forget(chain, slot));
        Some(prefix.handle)
    }

    fn forget(&mut self, chain: &ChainHash, slot: usize) {
        if let Some(slots) = self.index.get_mut(chain) {
            slots.retain(|other| *other != slot);
            if slots.is_empty() {
                self.index.remove(chain);
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

    /// Returns the sequences of all prefixes.
    pub(crate) fn sequences(&self) -> impl Iterator<Item = SequenceId> {
        self.prefixes.iter().flatten().map(|prefix| prefix.handle)
    }

    /// Returns all prefixes, the most recently used first.
    pub(crate) fn most_recent_first(&self) -> impl Iterator<Item = PrefixEntry<'_>> {
        let mut before = u64::MAX;
        std::iter::from_fn(move || {
            let older = self.prefixes.iter().flatten().filter(|prefix| prefix.last_used < before);
            let prefix = older.max_by_key(|prefix| prefix.last_used)?;
            before = prefix.last_used;
            Some(prefix.entry())
        })
    }

    /// Takes memory from the least recently used prefix: the last quarter of its blocks, or all of it if it is short or
    /// can only be used whole.
    pub fn reclaim(&mut self) -> Option<Reclaimed> {
        let slot = self.oldest_slot()?;
        let prefix = self.prefixes[slot].as_ref()?;
        let blocks = prefix.tokens.len().div_ceil(BLOCK);
        let kept = (blocks - blocks.div_ceil(4)) * BLOCK;
        if prefix.reuse == PrefixReuse::Whole || kept == 0 {
            return self.remove(slot).map(Reclaimed::Remove);
        }
        let mut prefix = self.prefixes[slot].take()?;
        self.list(&prefix, |store, chains| store.remove_resident(chains));
        prefix.tokens.truncate(kept);
        let dropped = prefix.chains.split_off(kept / BLOCK + 1);
        dropped.iter().for_each(|chain| self.forget(chain, slot));
        self.list(&prefix, |store, chains| store.add_resident(chains));
        let sequence = prefix.handle;
        self.prefixes[slot] = Some(prefix);
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
