//! Prefixes on their way out of memory and back.

use super::{PrefixEntry, PrefixReuse, PrefixSnapshot, PrefixStore, StoredPrefix};
use siskin_backend::block_table::{BLOCK, SavedSequence, SequenceId};
use siskin_backend::context::Context;
use siskin_format::Result;
use siskin_format::kv::{KvFile, KvFileWriter, KvLayout};

/// Returns the layout of a context's KV cache.
///
/// # Errors
/// If its backend has no KV cache that can be saved.
pub fn kv_layout(context: &mut Context) -> Result<KvLayout> {
    let empty = context.create();
    let state = context.save(empty, &mut KvFileWriter::default());
    context.remove(empty);
    Ok(state?.layout)
}

impl PrefixEntry<'_> {
    /// Copies the prefix for a store, if that wants it.
    pub(crate) fn write_to(&self, store: &dyn PrefixStore, context: &Context, waits: bool) {
        let Self { sequence, salt, tokens, reuse } = *self;
        if tokens.len() < BLOCK || !store.wants(salt, tokens, reuse, waits) {
            return;
        }
        let mut blocks = KvFileWriter::default();
        if context.save(sequence, &mut blocks).is_ok() {
            store.write(PrefixSnapshot { salt, tokens: tokens.to_vec(), reuse, blocks }, waits);
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
        let file = KvFile::parse(&self.file.bytes)?.assume_verified();
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
