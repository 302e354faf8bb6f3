//! Which prompts have rows in a pass: the one that is due first, within the time budget of the pass.

use std::time::Duration;

use super::{Admission, KvSpace, Scheduler, StepPlan};
use crate::request::{RequestClass, RequestId, RequestState};

/// Chunks of prompts are multiples of this, unless the prompt ends; a pass has one of them at least, whatever the budget.
const CHUNK: usize = 4;
/// A prompt is late once it has taken this many times its predicted time alone. Prompts are ordered by when they become late.
const PROMPT_STRETCH: u32 = 4;
/// Prompts that take no longer than this alone are short.
const SHORT_PROMPT: Duration = Duration::from_millis(400);
/// How many times the budget a pass may take with tokens of a prompt that is short or late.
const URGENT_BUDGET_FACTOR: u32 = 2;
/// A waiting request moves up one class each time that it has waited this long.
const AGING: Duration = Duration::from_secs(10);
/// Tokens that a request is admitted with room for, besides its prompt, if memory is overcommitted.
const HEADROOM: usize = 64;
/// When decoding takes most of the budget, or more than it, prompts may add this part of the time of decoding.
const PREFILL_DIVISOR: u32 = 4;

/// What came of a prompt whose turn it was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PromptOutcome {
    /// It has rows in the pass, or it can never run.
    Settled,
    /// The batch or the time budget of the pass has no room for it.
    OverBudget,
    /// There are too many requests, or too little memory.
    OutOfMemory,
}

impl Scheduler {
    /// Adds chunks of prompts, started and waiting ones, in the order of [`Self::order_key`].
    pub(super) fn plan_prompts(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        // Memory that becomes free is for sessions first.
        let mut admits =
            !self.waiting.iter().any(|id| self.can_run(*id).is_some_and(RequestState::is_session));
        let mut only_urgent = false;
        loop {
            let has_outputs = plan.output_rows < self.limits.max_output_rows;
            // A prompt that is scored needs output rows; others do not wait for it.
            let is_candidate = |id: &RequestId| {
                (!only_urgent || self.is_urgent(now, *id))
                    && (has_outputs || self.requests.get(*id).is_none_or(|request| !request.scores_prompt))
            };
            let started = self.next_started(now, plan, &is_candidate);
            let waiting = if admits { self.next_waiting(now, &is_candidate) } else { None };
            let outcome = match (started, waiting) {
                (None, None) => return,
                (Some(id), Some(waiting)) if self.order_key(now, id) <= self.order_key(now, waiting) => {
                    self.plan_chunk(now, id, kv, plan)
                }
                (_, Some(id)) => self.admit(now, id, kv, plan),
                (Some(id), None) => self.plan_chunk(now, id, kv, plan),
            };
            match outcome {
                PromptOutcome::Settled => {}
                PromptOutcome::OutOfMemory => admits = false,
                PromptOutcome::OverBudget if only_urgent => return,
                // The budget of urgent prompts is larger.
                PromptOutcome::OverBudget => only_urgent = true,
            }
        }
    }

    /// Returns the first started prompt that has no rows in the pass yet.
    fn next_started(
        &self,
        now: Duration,
        plan: &StepPlan,
        is_candidate: &dyn Fn(&RequestId) -> bool,
    ) -> Option<RequestId> {
        let is_next = |id: &RequestId| {
            self.can_run(*id).is_some_and(|request| !request.decodes())
                && is_candidate(id)
                && !plan.rejected.contains(id)
                && plan.entries.iter().all(|entry| entry.request != *id)
        };
        self.running.iter().copied().filter(is_next).min_by_key(|id| self.order_key(now, *id))
    }

    /// Returns the waiting request that starts next: those that have run before start before others of their class; then
    /// the client that was served least comes first; then [`Self::order_key`] decides.
    fn next_waiting(&self, now: Duration, is_candidate: &dyn Fn(&RequestId) -> bool) -> Option<RequestId> {
        let key = |id: &RequestId| {
            let request = self.can_run(*id).filter(|request| !request.is_session() && is_candidate(id))?;
            let service = self.clients.service(request.client);
            let (class, due) = self.order_key(now, *id)?;
            Some((class, !request.has_started, service, due, request.arrival))
        };
        self.waiting
            .iter()
            .copied()
            .filter_map(|id| Some((key(&id)?, id)))
            .min_by_key(|(key, _)| *key)
            .map(|(_, id)| id)
    }

    /// Returns the class of a request, after aging, and when its prompt becomes late or its deadline passes.
    fn order_key(&self, now: Duration, id: RequestId) -> Option<(RequestClass, Duration)> {
        let request = self.requests.get(id)?;
        let due = request.deadline.map_or(request.due, |deadline| deadline.min(request.due));
        Some((aged(request.class, now.saturating_sub(request.waiting_since)), due))
    }

    /// Returns how long a prompt may take until it is late, of which `rows` tokens are not cached.
    pub(super) fn allowance(&self, rows: usize) -> Duration {
        self.cost_of_rows(rows) * PROMPT_STRETCH
    }

    /// Adds the next chunk of a started prompt. Without memory for it, the prompt waits again.
    fn plan_chunk(
        &mut self,
        now: Duration,
        id: RequestId,
        kv: &mut dyn KvSpace,
        plan: &mut StepPlan,
    ) -> PromptOutcome {
        let count = self.chunk(now, id, plan);
        if count == 0 {
            return PromptOutcome::OverBudget;
        }
        if self.make_room(now, id, count, kv, plan) {
            self.push(id, count, plan);
            plan.prefill_rows += count;
        } else if !plan.rejected.contains(&id) {
            return PromptOutcome::OutOfMemory;
        }
        PromptOutcome::Settled
    }

    /// Starts a waiting request, and adds the first chunk of its prompt.
    fn admit(
        &mut self,
        now: Duration,
        id: RequestId,
        kv: &mut dyn KvSpace,
        plan: &mut StepPlan,
    ) -> PromptOutcome {
        if self.count_without_sessions(&self.running) >= self.limits.max_running {
            let Some(idle) = self.idle() else { return PromptOutcome::OutOfMemory };
            self.preempt(now, idle, kv, plan);
        }
        if plan.rows >= self.limits.max_rows || self.chunk(now, id, plan) == 0 {
            return PromptOutcome::OverBudget;
        }
        let Some(request) = self.requests.get(id) else { return PromptOutcome::OutOfMemory };
        let room = match self.limits.admission {
            Admission::Guarantee => request.max_length,
            Admission::Overcommit => request.max_length.min(request.tokens.len() + HEADROOM),
        };
        if let Some(cached) = kv.admit(id, &request.tokens, room) {
            self.start(id, cached);
            self.plan_chunk(now, id, kv, plan)
        } else if let Some(idle) = self.idle() {
            self.preempt(now, idle, kv, plan);
            self.admit(now, id, kv, plan)
        } else if self.running.is_empty() {
            // Alone, and it does not fit: it never will.
            plan.rejected.push(id);
            self.waiting.retain(|waiting| *waiting != id);
            PromptOutcome::Settled
        } else {
            PromptOutcome::OutOfMemory
        }
    }

    /// Returns how many tokens of a prompt fit into the pass: into its row limits and its time budget.
    fn chunk(&self, now: Duration, id: RequestId, plan: &StepPlan) -> usize {
        let Some(request) = self.requests.get(id) else { return 0 };
        let free_outputs = self.limits.max_output_rows.saturating_sub(plan.output_rows);
        let mut free = self.limits.max_rows.saturating_sub(plan.rows);
        if request.scores_prompt {
            free = free.min(free_outputs);
        }
        let remaining = request.remaining();
        let row_limit = match plan.decode_time {
            None => free,
            Some(decode_time) => {
                let budget = self.prefill_budget(now, id, decode_time);
                let positions = (plan.positions + request.position() * CHUNK) / (plan.rows + CHUNK);
                let rows_in_budget = self.cost.rows_within(budget, positions, self.limits.max_rows);
                // Prompts make progress, whatever decodes beside them.
                let min_rows = CHUNK.saturating_sub(plan.prefill_rows);
                rows_in_budget.saturating_sub(plan.rows).max(min_rows).min(free)
            }
        };
        if remaining <= row_limit {
            // The last token of the prompt gives logits.
            return match free_outputs {
                0 => remaining.saturating_sub(1).min(free),
                _ => remaining,
            };
        }
        match row_limit / CHUNK * CHUNK {
            0 if plan.prefill_rows == 0 => row_limit,
            count => count,
        }
    }

    /// Returns how long a pass may take with tokens of a prompt, beside decoding requests that take `decode_time`.
    fn prefill_budget(&self, now: Duration, id: RequestId, decode_time: Duration) -> Duration {
        let factor = if self.is_urgent(now, id) { URGENT_BUDGET_FACTOR } else { 1 };
        let budget = self.limits.decode_budget.saturating_mul(factor);
        budget.max(decode_time + decode_time / PREFILL_DIVISOR)
    }

    /// Returns whether a prompt is short or late, which raises the budget of passes with its tokens.
    fn is_urgent(&self, now: Duration, id: RequestId) -> bool {
        self.requests.get(id).is_some_and(|request| {
            request.due <= now || request.due - request.arrival <= SHORT_PROMPT * PROMPT_STRETCH
        })
    }
}

/// Returns the class of a request that has waited.
fn aged(class: RequestClass, waited: Duration) -> RequestClass {
    let steps = waited.as_nanos() / AGING.as_nanos();
    match (class, steps) {
        (RequestClass::Shadow, _) => RequestClass::Shadow,
        (class, 0) => class,
        (RequestClass::Batch, 1) => RequestClass::Normal,
        _ => RequestClass::Interactive,
    }
}
