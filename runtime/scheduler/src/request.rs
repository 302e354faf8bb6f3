//! Requests: what is asked of a model, and how far it is.

use std::time::Duration;

use crate::speculation::Acceptance;
use siskin_backend::block_table::SequenceId;
use siskin_backend::context::{AdapterSlot, check_adapter};
use siskin_format::{Error, ErrorKind, Result};

/// The priority class of a request. Within a class, clients get equal shares of the compute time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestClass {
    /// A person is waiting.
    Interactive,
    /// The default.
    #[default]
    Normal,
    /// Throughput matters, latency does not.
    Batch,
    /// Runs only when nothing else does.
    Shadow,
}

/// Identifies a client. Clients get equal shares of the compute time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

/// Keeps cached prefixes apart: a request only uses those of requests with the same salt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheSalt(pub [u8; 16]);

impl CacheSalt {
    /// Returns the salt that stands for a text.
    pub fn of(text: &str) -> Self {
        Self::hashed(&[text.as_bytes()])
    }

    fn hashed(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        parts.iter().for_each(|part| _ = hasher.update(part));
        let mut salt = [0; 16];
        hasher.finalize_xof().fill(&mut salt);
        Self(salt)
    }

    /// Returns the salt of requests with this salt and the adapter with this identity: keys and values depend on it.
    pub(crate) fn with_adapter(self, adapter: &[u8; 32]) -> Self {
        Self::hashed(&[&self.0, adapter])
    }
}

/// Where a session's tokens go: the end of its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceEnd {
    /// The sequence, which the session keeps.
    pub sequence: SequenceId,
    /// Its length.
    pub length: usize,
}

/// What is asked of a model.
#[derive(Clone, Debug, Default)]
pub struct RequestSpec {
    /// The prompt, or tokens of a session.
    pub tokens: Vec<u32>,
    /// The maximum number of tokens to generate.
    pub max_tokens: usize,
    /// The priority class.
    pub class: RequestClass,
    /// The client.
    pub client: ClientId,
    /// Whose prefixes it shares.
    pub salt: CacheSalt,
    /// The adapter that applies to its tokens.
    pub adapter: AdapterSlot,
    /// How long it may take; `None`: no limit.
    pub timeout: Option<Duration>,
    /// The sequence that the tokens are appended to; `None`: one of its own, which can begin with a cached prefix.
    pub append_to: Option<SequenceEnd>,
    /// The sampler gets the logits of all tokens ([`RequestSampler::score`]), so that no cached prefix is used.
    ///
    /// [`RequestSampler::score`]: crate::engine::RequestSampler::score
    pub scores_prompt: bool,
}

impl RequestSpec {
    /// Returns an error unless the request is within the limits.
    pub(crate) fn check(&self, limits: &RequestLimits) -> Result<()> {
        let &RequestLimits { context_length, vocabulary, adapters } = limits;
        let count = self.tokens.len();
        if count == 0 {
            return Err(Error::argument("tokens", "expected at least one token"));
        }
        let before = self.append_to.map_or(0, |end| end.length);
        check_length("tokens", count.saturating_add(before), context_length)?;
        if let Some(token) = self.tokens.iter().find(|&&token| token as usize >= vocabulary) {
            let message = format!("token {token} is out of range for a vocabulary of {vocabulary} tokens");
            return Err(Error::argument("tokens", message));
        }
        if self.max_tokens == 0 {
            return Err(Error::argument("max_tokens", "must be at least 1"));
        }
        check_adapter(self.adapter, adapters)
    }
}

/// What a model and its context can do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The maximum number of tokens of a request.
    pub context_length: usize,
    /// The vocabulary size.
    pub vocabulary: usize,
    /// The number of adapters that requests choose from.
    pub adapters: usize,
}

/// Returns an error about `location` if `count` tokens do not fit in a context of `context_length`.
pub fn check_length(location: &str, count: usize, context_length: usize) -> Result<()> {
    if count <= context_length {
        return Ok(());
    }
    let message = format!("{count} tokens exceed the context length of {context_length}; shorten the input");
    Err(Error::new(ErrorKind::TooLong, location, message))
}

/// A request of a [`Scheduler`](crate::policy::Scheduler). Ids are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Where a request is. Times are measured from the start of the engine.
#[derive(Clone, Debug)]
pub struct RequestState {
    /// The prompt and the generated tokens.
    pub tokens: Vec<u32>,
    /// The length of the prompt.
    pub prompt_length: usize,
    /// How many tokens are in the KV cache.
    pub computed: usize,
    /// The maximum number of tokens to generate.
    pub max_tokens: usize,
    /// The maximum number of tokens in the KV cache, the prompt included.
    pub max_length: usize,
    /// The priority class.
    pub class: RequestClass,
    /// The client.
    pub client: ClientId,
    /// The adapter that applies to its tokens.
    pub adapter: AdapterSlot,
    /// The sequence of a session that its tokens are appended to.
    pub append_to: Option<SequenceEnd>,
    /// When it arrived.
    pub arrival: Duration,
    /// When it must end.
    pub deadline: Option<Duration>,
    /// Since when it waits.
    pub waiting_since: Duration,
    /// Whether it has run before.
    pub has_started: bool,
    /// When its prompt becomes late.
    pub due: Duration,
    /// How often it was preempted.
    pub preemptions: u32,
    /// Its reader is too slow: it is not scheduled, and is the first to be preempted.
    pub is_paused: bool,
    /// How many of the last tokens needed no logits. They are processed together with the token before them.
    pub forced: usize,
    /// The tokens of its prompt need logits.
    pub scores_prompt: bool,
    /// How often its draft tokens are right.
    pub(crate) acceptance: Acceptance,
    /// Passes since draft tokens were last used, of those that had any.
    pub(crate) unused_drafts: u32,
}

impl RequestState {
    /// Returns the number of tokens that are not in the KV cache yet; one while it decodes, if none was forced.
    pub fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Returns the position in its sequence of the next token to process.
    pub(crate) fn position(&self) -> usize {
        self.append_to.map_or(0, |end| end.length) + self.computed
    }

    /// Returns whether it belongs to a session: it has its sequence already, and keeps it.
    pub(crate) fn is_session(&self) -> bool {
        self.append_to.is_some()
    }

    /// Returns how many more tokens can be appended.
    pub(crate) fn appendable(&self) -> usize {
        self.max_length - self.tokens.len()
    }

    /// Returns whether no more than the last sampled token, and those that were forced after it, are left to process.
    pub fn decodes(&self) -> bool {
        self.remaining() <= 1 + self.forced
    }
}

/// Values of requests.
#[derive(Debug)]
pub(crate) struct RequestMap<T> {
    slots: Vec<Option<(u32, T)>>,
}

impl<T> Default for RequestMap<T> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<T> RequestMap<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub(crate) fn insert(&mut self, id: RequestId, value: T) {
        let slot = id.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some((id.generation, value));
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&T> {
        let (generation, value) = self.slots.get(id.slot as usize)?.as_ref()?;
        (*generation == id.generation).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(id.slot as usize)?.as_mut()?;
        (*generation == id.generation).then_some(value)
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<T> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        entry.take_if(|(generation, _)| *generation == id.generation).map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut T)> {
        let slots = self.slots.iter_mut().zip(0..);
        slots.filter_map(|(entry, slot)| {
            let (generation, value) = entry.as_mut()?;
            Some((RequestId { slot, generation: *generation }, value))
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(entry, slot)| {
            let (generation, value) = entry.as_ref()?;
            Some((RequestId { slot, generation: *generation }, value))
        })
    }

    /// Removes all values.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.slots.drain(..).flatten().map(|(_, value)| value)
    }
}

/// Requests by id.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    states: RequestMap<RequestState>,
    /// The generation of the next request in each slot.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl RequestTable {
    pub(crate) fn insert(&mut self, state: RequestState) -> RequestId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        let id = RequestId { slot, generation: self.generations[slot as usize] };
        self.states.insert(id, state);
        id
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&RequestState> {
        self.states.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut RequestState> {
        self.states.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: RequestId) -> Option<RequestState> {
        let removed = self.states.remove(id)?;
        let generation = &mut self.generations[id.slot as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(removed)
    }
}
