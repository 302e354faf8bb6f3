//! The memory that a scheduler plans with.

use crate::request::RequestId;

/// The KV cache, as the scheduler sees it: room for the tokens of requests. It frees cached prefixes where that makes
/// enough room.
pub trait KvSpace {
    /// Makes room for `room` tokens of a request that holds nothing, after a cached prefix of its tokens, whose blocks it
    /// shares. Returns the length of that prefix, which is less than the number of tokens; `None` if there is no room.
    fn admit(&mut self, request: RequestId, tokens: &[u32], room: usize) -> Option<usize>;

    /// Reserves room for `count` more tokens of a request; false if there is none.
    fn reserve(&mut self, request: RequestId, count: usize) -> bool;

    /// Returns how many draft tokens may follow `tokens`, the tokens of a request, such that they can be taken back.
    fn max_drafts(&self, request: RequestId, tokens: &[u32]) -> usize;

    /// Frees what a request holds, the keys and values of `tokens`, which may stay as a cached prefix; none stays if
    /// `tokens` is empty.
    fn release(&mut self, request: RequestId, tokens: &[u32]);
}
