//! The KV cache of a model's requests: their sequences, and the cached prefixes that they share.

use std::sync::Arc;

use crate::policy::KvSpace;
use crate::prefix_cache::{PrefixCache, PrefixReuse, PrefixStore, Reclaimed, StoredPrefix};
use crate::request::{CacheSalt, RequestId, RequestMap, RequestSpec};
use siskin_backend::block_table::{BLOCK, KvGroupKind, SequenceId};
use siskin_backend::context::Context;

/// The maximum number of cached prefixes.
const MAX_PREFIXES: usize = 1024;

/// The KV cache while no other thread uses it.
pub(super) struct RequestSpace<'a> {
    pub cache: &'a mut RequestCache,
    pub context: &'a mut Context,
}

/// A request that waits or runs.
struct CachedRequest {
    salt: CacheSalt,
    prompt_length: usize,
    /// A prefix of its prompt of the store, until it starts.
    stored: Option<StoredPrefix>,
    /// Its sequence while it runs.
    sequence: Option<SequenceId>,
    /// The sequence of a session, which keeps it when the request ends.
    session: Option<SequenceId>,
    /// The length for which RoPE frequencies of its first tokens were chosen.
    expected_length: usize,
    /// It computes all of its prompt, whether that is cached or not.
    scores_prompt: bool,
}

/// Counters of the prefix cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrefixStats {
    /// Tokens of requests when they started.
    pub queried_tokens: u64,
    /// Those of them that were found.
    pub hit_tokens: u64,
    /// Tokens of prefixes that a store had.
    pub restored_tokens: u64,
}

pub(super) struct RequestCache {
    prefixes: PrefixCache,
    /// Where prefixes go that leave memory.
    store: Option<Arc<dyn PrefixStore>>,
    requests: RequestMap<CachedRequest>,
    is_enabled: bool,
    /// Whether the last tokens of a sequence can be taken back.
    can_roll_back: bool,
    /// How the prefixes at the end of prompts, and those of requests that have ended, can be used.
    reuse: (PrefixReuse, PrefixReuse),
    /// Longer sequences have different RoPE frequencies.
    max_length: usize,
    /// The length at which LongRoPE changes its frequencies.
    longrope_length: Option<usize>,
    pub stats: PrefixStats,
}

impl RequestCache {
    /// Creates the cache of a context, whose requests share prefixes if `shares_prefixes`, also by way of `store`.
    pub(super) fn new(context: &Context, shares_prefixes: bool, store: Option<Arc<dyn PrefixStore>>) -> Self {
        let layout = context.block_table().layout();
        let (partial, whole) = (PrefixReuse::Partial, PrefixReuse::Whole);
        let reuse = if layout.state_group().is_some() {
            (whole, whole)
        } else if layout.has(|kind| matches!(kind, KvGroupKind::SlidingWindow(_))) {
            // Later tokens move the window on.
            (whole, partial)
        } else {
            (partial, partial)
        };
        Self {
            // Other backends have no blocks to share.
            is_enabled: shares_prefixes && !layout.groups.is_empty(),
            // A recurrent state has no tokens to take back.
            can_roll_back: !layout.groups.is_empty() && layout.state_group().is_none(),
            max_length: context.passes().rope_scaling_length().unwrap_or(usize::MAX),
            longrope_length: context.passes().longrope_length(),
            reuse,
            prefixes: PrefixCache::listed_in(
                store.clone(),
                reuse == (PrefixReuse::Partial, PrefixReuse::Partial),
            ),
            store,
            requests: RequestMap::default(),
            stats: PrefixStats::default(),
        }
    }

    /// Returns the number of cached prefixes.
    pub(super) fn prefixes(&self) -> usize {
        self.prefixes.len()
    }

    /// Adds a request that waits.
    pub(super) fn insert(
        &mut self,
        id: RequestId,
        salt: CacheSalt,
        prompt_length: usize,
        stored: Option<StoredPrefix>,
        session: Option<SequenceId>,
        scores_prompt: bool,
    ) {
        let request = CachedRequest {
            salt,
            prompt_length,
            stored,
            sequence: None,
            session,
            expected_length: 0,
            scores_prompt,
        };
        self.requests.insert(id, request);
    }

    /// Returns how many tokens of a request's prompt are cached now, `stored` included, which a store had.
    pub(super) fn cached_length(
        &mut self,
        salt: CacheSalt,
        spec: &RequestSpec,
        stored: Option<&StoredPrefix>,
    ) -> usize {
        let RequestSpec { tokens, append_to, .. } = spec;
        if append_to.is_some() || spec.scores_prompt || !self.can_share(tokens.len(), tokens) {
            return 0;
        }
        let found = self.prefixes.find(salt, tokens, |_, _| Some(())).map_or(0, |((), length)| length);
        found.max(stored.map_or(0, StoredPrefix::length))
    }

    /// Removes a request that holds nothing.
    pub(super) fn remove(&mut self, context: &mut Context, id: RequestId) {
        if let Some(sequence) = self.requests.remove(id).and_then(|request| request.own_sequence()) {
            context.remove(sequence);
        }
    }

    /// Removes all requests and prefixes.
    pub(super) fn clear(&mut self, context: &mut Context) {
        let running = self.requests.drain().filter_map(|request| request.own_sequence());
        running.chain(self.prefixes.clear()).for_each(|sequence| context.remove(sequence));
    }

    /// Removes all prefixes, and writes those to the store that it takes without waiting.
    pub(super) fn clear_prefixes(&mut self, context: &mut Context) {
        if let Some(store) = &self.store {
            self.prefixes.most_recent_first().for_each(|prefix| prefix.write_to(&**store, context, false));
        }
        self.prefixes.clear().into_iter().for_each(|sequence| context.remove(sequence));
    }

    /// Returns the sequence of a request that runs.
    pub(super) fn sequence(&self, id: RequestId) -> Option<SequenceId> {
        self.requests.get(id)?.sequence
    }

    /// Returns whether `length` tokens of a request have other RoPE frequencies than those that its keys were rotated by.
    pub(super) fn is_outgrown(&self, id: RequestId, length: usize) -> bool {
        let Some(limit) = self.longrope_length else { return false };
        let request = self.requests.get(id).filter(|request| request.own_sequence().is_some());
        request.is_some_and(|request| request.expected_length <= limit && length > limit)
    }

    /// Keeps the prompt of a request as a cached prefix. `tokens` are those that it has computed.
    pub(super) fn keep_prompt(&mut self, context: &mut Context, id: RequestId, tokens: &[u32]) {
        let Some(request) = self.requests.get(id).filter(|request| request.prompt_length == tokens.len())
        else {
            return;
        };
        let can_share = self.can_share(request.expected_length, tokens);
        let Some(sequence) = request.own_sequence().filter(|_| can_share) else { return };
        let salt = request.salt;
        if let Ok(fork) = context.fork(sequence) {
            self.keep(context, salt, tokens, fork, self.reuse.0);
        }
    }

    /// Returns whether tokens have the keys and values that they have in other requests. `expected_length` is the length for
    /// which their RoPE frequencies are chosen.
    fn can_share(&self, expected_length: usize, tokens: &[u32]) -> bool {
        self.is_enabled && !tokens.is_empty() && expected_length.max(tokens.len()) <= self.max_length
    }

    fn keep(
        &mut self,
        context: &mut Context,
        salt: CacheSalt,
        tokens: &[u32],
        sequence: SequenceId,
        reuse: PrefixReuse,
    ) {
        for covered in self.prefixes.insert(salt, tokens, sequence, reuse) {
            context.remove(covered);
        }
        while self.prefixes.len() > MAX_PREFIXES && self.reclaim(context) {}
    }

    /// Frees a part of the least recently used prefix; false if there is none.
    fn reclaim(&mut self, context: &mut Context) -> bool {
        if let (Some(store), Some(oldest)) = (&self.store, self.prefixes.oldest()) {
            oldest.write_to(&**store, context, false);
        }
        match self.prefixes.reclaim() {
            None => return false,
            Some(Reclaimed::Remove(sequence)) => context.remove(sequence),
            Some(Reclaimed::Truncate(sequence, length)) => {
                if context.truncate(sequence, length).is_err() {
                    self.prefixes.discard(sequence);
                    context.remove(sequence);
                }
            }
        }
        true
    }

    /// Removes cached prefixes until there are free blocks for `tokens` more tokens, or none is left.
    pub(super) fn make_room(&mut self, context: &mut Context, tokens: usize) {
        while !context.block_table().has_room(tokens) && self.reclaim(context) {}
    }

    /// Writes cached prefixes to the store, the most recently used first, until `is_over`.
    pub(super) fn write_to_store(&self, context: &Context, is_over: &dyn Fn() -> bool) {
        let Some(store) = &self.store else { return };
        for prefix in self.prefixes.most_recent_first() {
            if is_over() {
                break;
            }
            prefix.write_to(&**store, context, true);
        }
        store.flush();
    }

    /// Adds a prefix of `tokens` that a store had to the cached prefixes, unless they have as much; false if there is no
    /// memory for it.
    fn restore(
        &mut self,
        context: &mut Context,
        salt: CacheSalt,
        tokens: &[u32],
        stored: &StoredPrefix,
    ) -> bool {
        let Some(tokens) = tokens.get(..stored.length()) else { return true };
        if self.prefixes.covering(salt, tokens, stored.reuse()).is_some() {
            return true;
        }
        // Frees the blocks, which nothing else takes before the restored sequence does.
        let empty = context.create();
        let has_room = self.reserve_in(context, empty, tokens.len());
        context.remove(empty);
        if !has_room {
            return false;
        }
        // On an error, the tokens are computed.
        if let Ok(sequence) = stored.restore(context) {
            self.stats.restored_tokens += tokens.len() as u64;
            self.keep(context, salt, tokens, sequence, stored.reuse());
        }
        true
    }

    /// Reserves blocks for `count` more tokens of a sequence, and frees cached prefixes for them, unless that cannot be
    /// enough.
    pub(super) fn reserve_in(&mut self, context: &mut Context, sequence: SequenceId, count: usize) -> bool {
        let mut can_be_enough = None;
        loop {
            if context.reserve(sequence, count).is_ok() {
                return true;
            }
            let enough = *can_be_enough.get_or_insert_with(|| {
                let prefixes: Vec<_> = self.prefixes.sequences().collect();
                let length = context.length(sequence).unwrap_or(0);
                let needed = (length + count).div_ceil(BLOCK) - length.div_ceil(BLOCK);
                context.block_table().free_blocks_without(&prefixes) >= needed
            });
            if !enough || !self.reclaim(context) {
                return false;
            }
        }
    }
}

impl CachedRequest {
    /// Returns its sequence while it runs, unless that belongs to a session.
    fn own_sequence(&self) -> Option<SequenceId> {
        self.sequence.filter(|_| self.session.is_none())
    }
}

impl KvSpace for RequestSpace<'_> {
    fn admit(&mut self, id: RequestId, tokens: &[u32], room: usize) -> Option<usize> {
        let Self { cache, context } = self;
        let request = cache.requests.get_mut(id)?;
        if let Some(sequence) = request.session {
            let is_ready = cache.reserve_in(context, sequence, room);
            if let Some(request) = cache.requests.get_mut(id).filter(|_| is_ready) {
                request.sequence = Some(sequence);
            }
            return is_ready.then_some(0);
        }
        // Beyond the length at which frequencies change, they are those of the whole sequence.
        let outgrows = cache.longrope_length.is_some_and(|limit| tokens.len() > limit);
        let expected_length = if outgrows { tokens.len() } else { request.prompt_length };
        let (salt, stored) = (request.salt, request.stored.take());
        let can_share = !request.scores_prompt && cache.can_share(expected_length, tokens);
        if let Some(stored) = stored.filter(|_| can_share)
            && !cache.restore(context, salt, tokens, &stored)
            && let Some(request) = cache.requests.get_mut(id)
        {
            request.stored = Some(stored);
        }
        let found = match can_share {
            true => cache.prefixes.find(salt, tokens, |of, length| context.fork_at(of, length).ok()),
            false => None,
        };
        let (sequence, cached) = found.unwrap_or_else(|| (context.create(), 0));
        let is_ready = context.set_expected_length(sequence, expected_length).is_ok()
            && cache.reserve_in(context, sequence, room - cached);
        if !is_ready {
            context.remove(sequence);
            return None;
        }
        if let Some(request) = cache.requests.get_mut(id) {
            (request.sequence, request.expected_length) = (Some(sequence), expected_length);
        }
        cache.stats.queried_tokens += tokens.len() as u64;
        cache.stats.hit_tokens += cached as u64;
        Some(cached)
    }

    fn reserve(&mut self, id: RequestId, count: usize) -> bool {
        let Self { cache, context } = self;
        cache.sequence(id).is_some_and(|sequence| cache.reserve_in(context, sequence, count))
    }

    fn max_drafts(&self, _: RequestId, tokens: &[u32]) -> usize {
        // Beyond that length the frequencies of a row depend on how many tokens follow it.
        if self.cache.can_roll_back { self.cache.max_length.saturating_sub(tokens.len()) } else { 0 }
    }

    fn release(&mut self, id: RequestId, tokens: &[u32]) {
        let Self { cache, context } = self;
        let Some(request) = cache.requests.get_mut(id) else { return };
        let own = request.own_sequence();
        request.sequence = None;
        let Some(sequence) = own else { return };
        let (salt, expected_length) = (request.salt, request.expected_length);
        let is_kept = cache.can_share(expected_length, tokens)
            && context.length(sequence) == Ok(tokens.len())
            // Returns what was reserved.
            && context.truncate(sequence, tokens.len()).is_ok();
        match is_kept {
            true => cache.keep(context, salt, tokens, sequence, cache.reuse.1),
            false => context.remove(sequence),
        }
    }
}
