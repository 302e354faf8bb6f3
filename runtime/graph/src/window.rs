//! Sliding windows that the caller sets.

/// A sliding window with attention sinks (StreamingLLM): the newest tokens of a sequence and its
/// first, all at their true positions.
///
/// A window does not extend what a model was trained for, but a model that was trained with full attention keeps its
/// quality if the first few tokens, which receive much of its attention, stay in the window. Positions do not restart,
/// so that a sequence is never longer than the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamingWindow {
    /// The number of newest tokens, the query's own token included; at least 1.
    pub window: usize,
    /// The number of first tokens (attention sinks).
    pub sinks: usize,
}
