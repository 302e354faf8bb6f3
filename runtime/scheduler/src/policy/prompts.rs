//! Which prompts have rows in a pass: earliest due time first, within the budget of a pass.

use std::time::Duration;

use super::{Admission, KvSpace, Scheduler, StepPlan};
use crate::request::{RequestClass, RequestId, RequestState};

/// Chunks of prompts are multiples of this, unless the prompt ends; a pass has one of them at least, whatever the budget.
const CHUNK: usize = 4;
/// How much longer than alone a prompt may take beside others. It is late after that; a shorter one that arrives later but
/// would be late before goes first.
const PROMPT_STRETCH: u32 = 4;
/// Prompts that take no longer than this alone are short.
const SHORT_PROMPT: Duration = Duration::from_millis(400);
/// How many times the budget a pass may take with tokens of a prompt that is short or late.
const URGENT_BUDGET_FACTOR: u32 = 2;
/// A waiting request moves up one class each time that it has waited this long.
const AGING: Duration = Duration::from_secs(10);
/// Tokens that a request is admitted with room for, besides its prompt, if memory is overcommitted.
const HEADROOM: usize = 64;
/// If decoding takes the whole budget of a pass, prompts beside it may take this part of the time of decoding.
const PREFILL_DIVISOR: u32 = 4;

impl Scheduler {
    /// Adds chunks of prompts, of those that are being processed and of those that wait, in the order in which they should be
    /// done.
    pub(super) fn plan_prompts(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        // Memory that becomes free is for sessions first.
        let mut admits =
            !self.waiting.iter().any(|id| self.can_run(*id).is_some_and(RequestState::is_session));
        let mut only_urgent = false;
        loop {
            let is_candidate = |id: &RequestId| !only_urgent || self.is_urgent(now, *id);
            let started = self.next_started(now, plan, &is_candidate);
            let waiting = if admits { self.next_waiting(now).filter(is_candidate) } else { None };
            let id = match (started, waiting) {
                (Some(started), Some(waiting))
                    if self.urgency(now, started) <= self.urgency(now, waiting) =>
                {
                    started
                }
                (_, Some(waiting)) => waiting,
                (Some(started), None) => started,
                (None, None) => return,
            };
            if waiting == Some(id) && !self.admit(now, id, kv, plan) {
                admits = false;
            } else if self.running.contains(&id) && !self.plan_chunk(now, id, kv, plan) {
                // Urgent prompts may have a larger budget.
                if only_urgent {
                    return;
                }
                only_urgent = true;
            } else {
                // There was no memory for its chunk: it waits again, and so do the others.
                admits &= self.running.contains(&id) || plan.rejected.contains(&id);
            }
        }
    }

    /// Returns the prompt that is being processed, has no rows yet, and should be done first.
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
        self.running.iter().copied().filter(is_next).min_by_key(|id| self.urgency(now, *id))
    }

    /// Returns the class of a prompt, after aging, and when it becomes late.
    fn urgency(&self, now: Duration, id: RequestId) -> Option<(RequestClass, Duration)> {
        let request = self.requests.get(id)?;
        Some((aged(request.class, now.saturating_sub(request.waiting_since)), request.due))
    }

    /// Returns how long a prompt may take, of which `rows` tokens are not cached.
    pub(super) fn allowance(&self, rows: usize) -> Duration {
        self.cost_of_rows(rows) * PROMPT_STRETCH
    }

    /// Adds the next chunk of a prompt; false if the pass has no room for it.
    fn plan_chunk(
        &mut self,
        now: Duration,
        id: RequestId,
        kv: &mut dyn KvSpace,
        plan: &mut StepPlan,
    ) -> bool {
        let count = self.chunk(now, id, plan);
        if count > 0 && self.make_room(now, id, count, kv, plan) {
            self.push(id, count, plan);
            plan.prefill_rows += count;
        }
        count > 0
    }

    /// Starts a request that waits; false if there is no room for it in the batch or in memory.
    fn admit(&mut self, now: Duration, id: RequestId, kv: &mut dyn KvSpace, plan: &mut StepPlan) -> bool {
        if self.count_without_sessions(&self.running) >= self.limits.max_running {
            let Some(idle) = self.idle() else { return false };
            self.preempt(now, idle, kv, plan);
        }
        if plan.rows >= self.limits.max_rows || self.chunk(now, id, plan) == 0 {
            return false;
        }
        let Some(request) = self.requests.get(id) else { return false };
        let room = match self.limits.admission {
            Admission::Guarantee => request.max_length,
            Admission::Overcommit => request.max_length.min(request.tokens.len() + HEADROOM),
        };
        match kv.admit(id, &request.tokens, room) {
            Some(cached) => self.start(id, cached),
            None => match self.idle() {
                Some(idle) => {
                    self.preempt(now, idle, kv, plan);
                    return self.admit(now, id, kv, plan);
                }
                // Alone, and it does not fit: it never will.
                None if self.running.is_empty() => {
                    plan.rejected.push(id);
                    self.waiting.retain(|waiting| *waiting != id);
                }
                None => return false,
            },
        }
        true
    }

    /// Returns the request that starts next: that of the highest class, after aging; then of the least served client;
    /// then the one whose prompt is due or whose deadline passes first.
    fn next_waiting(&self, now: Duration) -> Option<RequestId> {
        let key = |id: &RequestId| {
            let request = self.can_run(*id).filter(|request| !request.is_session())?;
            let service = self.clients.service(request.client);
            let (class, due) = self.urgency(now, *id)?;
            let due = request.deadline.map_or(due, |deadline| deadline.min(due));
            // Those that have run before continue before others start.
            Some((class, !request.has_started, service, due, request.arrival))
        };
        self.waiting
            .iter()
            .copied()
            .filter_map(|id| Some((key(&id)?, id)))
            .min_by_key(|(key, _)| *key)
            .map(|(_, id)| id)
    }

    /// Returns how many tokens of a prompt fit into the batch.
    fn chunk(&self, now: Duration, id: RequestId, plan: &StepPlan) -> usize {
        let Some(request) = self.requests.get(id) else { return 0 };
        let free = self.limits.max_rows.saturating_sub(plan.rows);
        let remaining = request.remaining();
        let within = match plan.decode_time {
            None => free,
            Some(decode_time) => {
                let budget = self.prefill_budget(now, id, decode_time);
                let positions = (plan.positions + request.position() * CHUNK) / (plan.rows + CHUNK).max(1);
                let all = self.cost.rows_within(budget, positions, self.limits.max_rows);
                // Prompts make progress, whatever decodes beside them.
                let least = CHUNK.saturating_sub(plan.prefill_rows);
                all.saturating_sub(plan.rows).max(least).min(free)
            }
        };
        if remaining <= within {
            // The last token of the prompt gives logits.
            return match plan.output_rows < self.limits.max_output_rows {
                true => remaining,
                false => remaining.saturating_sub(1),
            };
        }
        match within / CHUNK * CHUNK {
            0 if plan.prefill_rows == 0 => within,
            count => count,
        }
    }

    /// Returns how long a pass may take with tokens of a prompt, beside decoding requests that take `decode_time`.
    fn prefill_budget(&self, now: Duration, id: RequestId, decode_time: Duration) -> Duration {
        let factor = if self.is_urgent(now, id) { URGENT_BUDGET_FACTOR } else { 1 };
        let budget = self.limits.decode_budget.saturating_mul(factor);
        // Many rows that decode take longer than the budget alone: prompts get a part of that time.
        if decode_time < budget { budget } else { decode_time + decode_time / PREFILL_DIVISOR }
    }

    /// Returns whether a prompt is short or late.
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
