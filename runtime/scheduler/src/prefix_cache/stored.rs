//! Prefixes on their way out of memory and back.

use super::{ChainHash, PrefixEntry, PrefixReuse, PrefixSnapshot, PrefixStore, ResidentChains, StoredPrefix};
use siskin_backend::block_table::{BLOCK, SavedSequence, SequenceId};
use siskin_backend::context::Context;
use siskin_format::Result;
use siskin_format::kv::{KvFile, KvFileWriter};
use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

impl PrefixEntry<'_> {
    /// Copies the prefix for a store, unless that has it.
    pub(crate) fn write_to(&self, store: &dyn PrefixStore, context: &Context, waits: bool) {
        let Self { sequence, salt, tokens, reuse } = *self;
        if tokens.len() < BLOCK || store.covers(salt, tokens, reuse) {
            return;
        }
        let mut blocks = KvFileWriter::default();
        // Fails for backends that cannot copy blocks, whose prefixes stay in memory.
        if let Ok(state) = context.save(sequence, &mut blocks) {
            let tokens = tokens.to_vec();
            store.write(PrefixSnapshot { salt, tokens, reuse, layout: state.layout, blocks }, waits);
        }
    }
}

impl StoredPrefix {
    /// Returns how many of its tokens can be used.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns how it can be used.
    pub(crate) fn reuse(&self) -> PrefixReuse {
        self.reuse
    }

    /// Returns a new sequence with its tokens.
    pub(crate) fn restore(&self, context: &mut Context) -> Result<SequenceId> {
        let file = KvFile::parse(&self.bytes)?.assume_verified();
        let saved =
            SavedSequence { bidirectional_prefix: 0, expected_length: 0, length: self.length, file: &file };
        let empty = context.create();
        let outcome = context.restore(empty, &saved);
        if outcome.is_err() && context.length(empty).is_ok() {
            context.remove(empty);
        }
        outcome
    }
}

impl ResidentChains {
    pub(super) fn insert(&self, chain: ChainHash) {
        self.lock().insert(chain);
    }

    pub(super) fn remove(&self, chain: &ChainHash) {
        self.lock().remove(chain);
    }

    pub(super) fn contains(&self, chain: &ChainHash) -> bool {
        self.lock().contains(chain)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ChainHash>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
