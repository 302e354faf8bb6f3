//! The rows of a forward pass.

use std::ops::Range;
use std::time::Duration;

use crate::request::RequestId;
use siskin_backend::context::OutputRows;

/// Tokens of one request in a pass: prefill, decode, and what a preempted request repeats are all this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepEntry {
    /// The request.
    pub request: RequestId,
    /// Its first token.
    pub from: usize,
    /// The position of that token in its sequence.
    pub position: usize,
    /// The number of tokens.
    pub count: usize,
    /// How many of them give logits: none, the last one if it is the last that the request has, or all of a prompt that is
    /// scored.
    pub outputs: usize,
    /// The number of draft tokens that follow them; each gives logits.
    pub drafts: usize,
}

impl StepEntry {
    /// Returns which of its tokens give logits, draft tokens aside.
    pub(crate) fn output_rows(&self) -> OutputRows<'static> {
        match self.outputs {
            0 => OutputRows::None,
            1 => OutputRows::Last,
            _ => OutputRows::All,
        }
    }

    /// Returns the tokens of a prompt of this length that follow its own tokens.
    pub(crate) fn scored(&self, prompt_length: usize) -> Range<usize> {
        let first = (self.from + 1).min(prompt_length);
        first..(self.from + self.count + 1).clamp(first, prompt_length)
    }
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
    /// The draft tokens of all entries, in their order.
    pub drafts: Vec<u32>,
    /// The number of rows.
    pub rows: usize,
    /// The number of rows with logits.
    pub output_rows: usize,
    /// The number of keys that all rows attend to.
    pub positions: usize,
    /// The number of rows of prompts.
    pub prefill_rows: usize,
    /// The predicted time of the requests that decode; `None`: none does.
    pub decode_time: Option<Duration>,
}

impl StepPlan {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.preempted.clear();
        self.rejected.clear();
        self.drafts.clear();
        (self.rows, self.output_rows, self.positions) = (0, 0, 0);
        (self.prefill_rows, self.decode_time) = (0, None);
    }

    /// Adds an entry, whose draft tokens are in `drafts`.
    pub fn push(&mut self, entry: StepEntry) {
        self.count(entry);
        self.entries.push(entry);
    }

    fn count(&mut self, entry: StepEntry) {
        let count = entry.count + entry.drafts;
        self.rows += count;
        self.output_rows += entry.outputs + entry.drafts;
        self.positions += count * (entry.position + count.div_ceil(2));
    }

    /// Counts the rows of all entries anew.
    pub(super) fn count_rows(&mut self) {
        (self.rows, self.output_rows, self.positions) = (0, 0, 0);
        for index in 0..self.entries.len() {
            self.count(self.entries[index]);
        }
    }
}
