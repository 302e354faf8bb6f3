//! How many draft tokens a pass verifies.

use super::{KvSpace, Scheduler, StepPlan};
use crate::request::RequestId;
use crate::speculation::{DraftBudget, MAX_DRAFTS, MIN_GAIN, RETRY};

/// A way to get draft tokens: appends tokens that may follow those of a request.
pub type Propose<'a> = &'a mut dyn FnMut(RequestId, &[u32], &DraftBudget, &mut Vec<u32>);

/// Reused from pass to pass.
#[derive(Debug, Default)]
pub(super) struct DraftChoice {
    /// For each draft token: the probability that it is used, and its entry.
    candidates: Vec<(f32, usize)>,
    /// For each entry: its draft tokens.
    chosen: Vec<usize>,
}

impl DraftChoice {
    /// Reserves memory for `requests` requests.
    pub(super) fn with_capacity(requests: usize) -> Self {
        let candidates = Vec::with_capacity(requests * MAX_DRAFTS);
        Self { candidates, chosen: Vec::with_capacity(requests) }
    }
}

impl Scheduler {
    /// Adds draft tokens to the entries of a pass that only decodes: as many as raise the expected number of tokens per
    /// second the most (SmartSpec, arXiv:2406.14066).
    pub fn speculate(&mut self, kv: &mut dyn KvSpace, plan: &mut StepPlan, propose: Propose<'_>) {
        if plan.prefill_rows > 0 || plan.entries.is_empty() {
            return;
        }
        let mut choice = std::mem::take(&mut self.draft_choice);
        self.propose(kv, plan, propose, &mut choice);
        if !choice.candidates.is_empty() {
            let count = self.worthwhile(plan, &mut choice.candidates);
            self.choose(kv, plan, count, &mut choice);
        }
        self.draft_choice = choice;
    }

    /// Records how many draft tokens of a request were right.
    pub fn accept(&mut self, id: RequestId, proposed: usize, accepted: usize) {
        if proposed == 0 {
            return;
        }
        self.acceptance.record(proposed, accepted);
        if let Some(request) = self.requests.get_mut(id) {
            request.computed += accepted;
            request.acceptance.record(proposed, accepted);
        }
    }

    /// Collects the draft tokens for all entries.
    fn propose(&self, kv: &dyn KvSpace, plan: &mut StepPlan, propose: Propose<'_>, choice: &mut DraftChoice) {
        let DraftChoice { candidates, chosen } = choice;
        candidates.clear();
        chosen.clear();
        let tokens_per_second = plan.entries.len() as f64 / self.seconds_with(plan, 0);
        let seconds_per_row =
            (self.seconds_with(plan, MAX_DRAFTS) - self.seconds_with(plan, 0)) / MAX_DRAFTS as f64;
        let StepPlan { entries, drafts, .. } = plan;
        // Once, so that later passes allocate nothing.
        drafts.reserve(self.limits.max_running * MAX_DRAFTS);
        for (index, entry) in entries.iter_mut().enumerate() {
            chosen.push(0);
            // Draft tokens follow the last token that there is; beside forced tokens there is no need for them.
            let request = self.requests.get(entry.request).filter(|_| entry.count == 1);
            let Some(request) = request else { continue };
            let limit =
                MAX_DRAFTS.min(request.appendable()).min(kv.max_drafts(entry.request, &request.tokens));
            let before = drafts.len();
            let chain = request.acceptance.chain();
            if limit > 0 {
                let budget = DraftBudget { limit, chain, tokens_per_second, seconds_per_row };
                propose(entry.request, &request.tokens, &budget, drafts);
            }
            // A draft token may be anything.
            let is_token = |token: &&u32| (**token as usize) < self.limits.request.vocabulary;
            let valid = drafts[before..].iter().take(limit).take_while(is_token).count();
            drafts.truncate(before + valid);
            entry.drafts = valid;
            candidates.extend(chain.iter().take(valid).map(|chain| (*chain, index)));
        }
    }

    /// Sorts the candidates, and returns how many of them make the pass yield the most tokens per second.
    fn worthwhile(&self, plan: &StepPlan, candidates: &mut [(f32, usize)]) -> usize {
        // Within a request, probabilities fall from draft token to draft token.
        candidates.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        let free = (self.limits.max_rows.saturating_sub(plan.rows))
            .min(self.limits.max_output_rows.saturating_sub(plan.output_rows));
        let seconds = |drafts: usize| self.seconds_with(plan, drafts);
        let budget = self.limits.decode_budget.as_secs_f64();
        let mut tokens = plan.entries.len() as f64;
        let (mut best, mut rate) = (0, MIN_GAIN * tokens / seconds(0));
        for (index, (chain, _)) in candidates.iter().take(free).enumerate() {
            tokens += f64::from(*chain);
            let predicted = seconds(index + 1);
            // Beside others, draft tokens of one must not delay the next token of all.
            if plan.entries.len() > 1 && predicted > budget.max(seconds(0)) {
                break;
            }
            let with = tokens / predicted;
            if with > rate {
                (best, rate) = (index + 1, with);
            }
        }
        best
    }

    /// Returns how long a pass is expected to take with `drafts` draft tokens.
    fn seconds_with(&self, plan: &StepPlan, drafts: usize) -> f64 {
        let mean = plan.positions / plan.rows.max(1);
        self.cost.predict(plan.rows + drafts, plan.positions + drafts * mean).as_secs_f64()
    }

    /// Keeps the first `count` candidates, as far as there is memory for them.
    fn choose(&mut self, kv: &mut dyn KvSpace, plan: &mut StepPlan, count: usize, choice: &mut DraftChoice) {
        let DraftChoice { candidates, chosen } = choice;
        candidates[..count].iter().for_each(|(_, entry)| chosen[*entry] += 1);
        let has_free_row = plan.rows + count < self.limits.max_rows
            && plan.output_rows + count < self.limits.max_output_rows;
        let mut retry = has_free_row;
        let (mut from, mut kept) = (0, 0);
        for (entry, &(mut count)) in plan.entries.iter_mut().zip(chosen.iter()) {
            if let Some(request) = self.requests.get_mut(entry.request).filter(|_| entry.drafts > 0) {
                request.unused_drafts = if count > 0 { 0 } else { request.unused_drafts + 1 };
                if request.unused_drafts >= RETRY && std::mem::take(&mut retry) {
                    (count, request.unused_drafts) = (1, 0);
                }
            }
            if count > 0 && !kv.reserve(entry.request, entry.count + count) {
                count = 0;
            }
            plan.drafts.copy_within(from..from + count, kept);
            from += entry.drafts;
            kept += count;
            entry.drafts = count;
        }
        plan.drafts.truncate(kept);
        plan.count_rows();
    }
}
