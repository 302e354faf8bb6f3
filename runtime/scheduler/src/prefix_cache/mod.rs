//! The prefix cache: sequences that have ended stay in the KV cache, and requests that begin with the same tokens fork
//! them.
//!
//! A cached prefix is a sequence like any other, so that its blocks are shared by reference count, a tail within a block
//! is copied on write, and sliding windows and recurrent states are those of the sequence. The index maps the hash of
//! each chain of whole blocks to the prefixes that begin with it (as in vLLM); a hit is compared token by token. Memory
//! is reclaimed from the least recently used prefix, last tokens first.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::request::CacheSalt;
use siskin_backend::block_table::{BLOCK, SequenceId};

/// Prefixes with the same blocks that are compared token by token, the most recent ones first.
const COMPARED: usize = 16;
/// Prefixes that are tried for a request.
const TRIED: usize = 32;

/// The hash of a chain of blocks.
type ChainHash = [u8; 16];

/// Appends a block to a chain.
type HashBlock = fn(&ChainHash, &[u32]) -> ChainHash;

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

struct CachedPrefix {
    sequence: SequenceId,
    tokens: Vec<u32>,
    /// The hash of the salt, then those of its chains of whole blocks.
    chains: Vec<ChainHash>,
    reuse: PrefixReuse,
    last_used: u64,
}

/// Finds cached prefixes, and decides which of them go.
pub struct PrefixCache {
    prefixes: Vec<Option<CachedPrefix>>,
    index: HashMap<ChainHash, Vec<usize>>,
    hash: HashBlock,
    clock: u64,
}

impl Default for PrefixCache {
    fn default() -> Self {
        Self::with_hash(blake3_block)
    }
}

impl PrefixCache {
    fn with_hash(hash: HashBlock) -> Self {
        Self { prefixes: Vec::new(), index: HashMap::new(), hash, clock: 0 }
    }

    /// Returns the number of cached prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.iter().flatten().count()
    }

    /// Returns whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `fork` with sequences that begin as `tokens` do and the common length, the longest first, until it returns a
    /// value. At least one token remains for the caller to process.
    pub fn find<T>(
        &mut self,
        salt: CacheSalt,
        tokens: &[u32],
        mut fork: impl FnMut(SequenceId, usize) -> Option<T>,
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
                if let Some(found) = fork(prefix.sequence, length) {
                    self.clock += 1;
                    prefix.last_used = self.clock;
                    return Some((found, length));
                }
            }
        }
        None
    }

    /// Adds the sequence of some tokens. Returns sequences that are no longer needed, because another one has all of
    /// their tokens; this may be the one that was added.
    pub fn insert(
        &mut self,
        salt: CacheSalt,
        tokens: &[u32],
        sequence: SequenceId,
        reuse: PrefixReuse,
    ) -> Vec<SequenceId> {
        if tokens.is_empty() {
            return vec![sequence];
        }
        let chains = self.chains(salt, tokens);
        let mut covered = Vec::new();
        for slot in self.index.get(&chains[0]).cloned().unwrap_or_default() {
            let Some(prefix) = &self.prefixes[slot] else { continue };
            let covers = |whole: &[u32], part: &[u32]| match reuse {
                PrefixReuse::Partial => whole.starts_with(part),
                PrefixReuse::Whole => whole == part,
            };
            if prefix.reuse != reuse || prefix.chains[0] != chains[0] {
                continue;
            }
            if covers(&prefix.tokens, tokens) {
                self.clock += 1;
                self.prefixes[slot].as_mut().into_iter().for_each(|prefix| prefix.last_used = self.clock);
                covered.push(sequence);
                return covered;
            }
            if covers(tokens, &prefix.tokens) {
                covered.extend(self.remove(slot));
            }
        }
        self.clock += 1;
        let slot = self.prefixes.iter().position(Option::is_none).unwrap_or(self.prefixes.len());
        if slot == self.prefixes.len() {
            self.prefixes.push(None);
        }
        chains.iter().for_each(|chain| self.index.entry(*chain).or_default().push(slot));
        let tokens = tokens.to_vec();
        self.prefixes[slot] = Some(CachedPrefix { sequence, tokens, chains, reuse, last_used: self.clock });
        covered
    }

    /// Takes memory from the least recently used prefix: the last quarter of its blocks, or all of it if it is short or
    /// can only be used whole.
    pub fn reclaim(&mut self) -> Option<Reclaimed> {
        let used = |slot: &usize| self.prefixes[*slot].as_ref().map(|prefix| prefix.last_used);
        let slot = (0..self.prefixes.len()).filter(|slot| used(slot).is_some()).min_by_key(used)?;
        let prefix = self.prefixes[slot].as_mut()?;
        let blocks = prefix.tokens.len().div_ceil(BLOCK);
        let kept = (blocks - blocks.div_ceil(4)) * BLOCK;
        if prefix.reuse == PrefixReuse::Whole || kept == 0 {
            return self.remove(slot).map(Reclaimed::Remove);
        }
        prefix.tokens.truncate(kept);
        let sequence = prefix.sequence;
        let dropped = prefix.chains.split_off(kept / BLOCK + 1);
        dropped.iter().for_each(|chain| self.forget(chain, slot));
        Some(Reclaimed::Truncate(sequence, kept))
    }

    /// Removes all prefixes and returns their sequences.
    pub fn clear(&mut self) -> Vec<SequenceId> {
        self.index.clear();
        self.prefixes.drain(..).flatten().map(|prefix| prefix.sequence).collect()
    }

    /// Removes a sequence that cannot be truncated.
    pub fn discard(&mut self, sequence: SequenceId) {
        let holds =
            |prefix: &Option<CachedPrefix>| prefix.as_ref().is_some_and(|prefix| prefix.sequence == sequence);
        if let Some(slot) = self.prefixes.iter().position(holds) {
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: usize) -> Option<SequenceId> {
        let prefix = self.prefixes[slot].take()?;
        prefix.chains.iter().for_each(|chain| self.forget(chain, slot));
        Some(prefix.sequence)
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
