//! The rows of a forward pass.

use crate::request::RequestId;

/// Tokens of one request in a pass: prefill, decode, and what a preempted request repeats are all this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEntry {
    /// The request.
    pub request: RequestId,
    /// Its first token.
    pub from: usize,
    /// The number of tokens.
    pub count: usize,
    /// Whether the last token gives logits: it is the last one that the request has.
    pub has_output: bool,
}

/// The batch of a pass, reused from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// The entries, one per request.
    pub entries: Vec<StepEntry>,
    /// Requests that lost their memory; they wait again.
    pub preempted: Vec<RequestId>,
    /// Requests that can never run: they are alone and do not fit.
    pub rejected: Vec<RequestId>,
    /// The number of rows.
    pub rows: usize,
    /// The number of rows with logits.
    pub output_rows: usize,
    /// The number of keys that all rows attend to.
    pub positions: usize,
    /// Whether a prompt has a chunk in it.
    pub has_prefill: bool,
}

impl StepPlan {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.preempted.clear();
        self.rejected.clear();
        (self.rows, self.output_rows, self.positions) = (0, 0, 0);
        self.has_prefill = false;
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: StepEntry) {
        self.rows += entry.count;
        self.output_rows += usize::from(entry.has_output);
        self.positions += entry.count * (entry.from + entry.count.div_ceil(2));
        self.entries.push(entry);
    }
}
