//! Which rows share a batch: pure policy, without threads, clock or model.
//!
//! There are no phases: every request has tokens that are in the KV cache and tokens that are not, and each pass moves
//! some from the second kind to the first (as in vLLM's scheduler). Decoding rows come first, then prompts in chunks for
//! as long as the time budget of a step lasts (Sarathi-Serve, arXiv:2403.02310), then requests that wait.
//!
//! None of this changes a result: the logits of a row do not depend on the batch.

mod cost_model;
mod fair_share;
mod kv_space;
mod step_plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use cost_model::CostModel;
pub use kv_space::KvSpace;
pub use step_plan::{StepEntry, StepPlan};

use crate::request::{RequestClass, RequestId, RequestSpec, RequestState, RequestTable};
use fair_share::FairShare;
use siskin_format::{Error, ErrorKind, Result};

/// Chunks of prompts are multiples of this, unless the prompt ends.
const CHUNK: usize = 16;
/// A waiting request moves up one class each time that it has waited this long.
const AGING: Duration = Duration::from_secs(10);
/// Tokens that a request is admitted with room for, besides its prompt, if memory is overcommitted.
const HEADROOM: usize = 64;
/// Preemptions after which a request is only preempted if all others have had as many.
const MAX_PREEMPTIONS: u32 = 3;

/// How much memory a request must have before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Enough for all tokens that it may generate: a request that has started is never preempted.
    #[default]
    Guarantee,
    /// Enough for its prompt and some tokens: more requests run, and some are preempted when memory runs out.
    Overcommit,
}

/// The limits of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct StepLimits {
    /// The maximum number of rows per batch.
    pub max_rows: usize,
    /// The maximum number of rows with logits per batch.
    pub max_output_rows: usize,
    /// The maximum number of requests that run at the same time.
    pub max_running: usize,
    /// The maximum number of requests that wait.
    pub max_waiting: usize,
    /// The maximum number of tokens of a request.
    pub context_length: usize,
    /// How long a pass may take while a request decodes.
    pub decode_budget: Duration,
    /// How much memory a request must have before it starts.
    pub admission: Admission,
}

/// Decides which tokens of which requests are processed next.
#[derive(Debug)]
pub struct Scheduler {
    limits: StepLimits,
    cost: CostModel,
    requests: RequestTable,
    waiting: Vec<RequestId>,
    /// By class, then arrival.
    running: Vec<RequestId>,
    clients: FairShare,
}

impl Scheduler {
    /// Creates a scheduler without requests.
    pub fn new(limits: StepLimits) -> Self {
        Self {
            limits,
            cost: CostModel::default(),
            requests: RequestTable::default(),
            waiting: Vec::with_capacity(limits.max_waiting),
            running: Vec::with_capacity(limits.max_running),
            clients: FairShare::default(),
        }
    }

    /// Appends a request to the queue.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if the queue is full, or if its deadline would pass before it started.
    pub fn submit(&mut self, now: Duration, spec: RequestSpec) -> Result<RequestId> {
        spec.check(self.limits.context_length)?;
        let RequestSpec { mut tokens, max_tokens, class, client, timeout, salt: _ } = spec;
        if self.waiting.len() >= self.limits.max_waiting {
            let message = format!("{} requests are waiting; retry later", self.waiting.len());
            return Err(Error::new(ErrorKind::Overloaded, "queue", message));
        }
        if timeout.is_some_and(|timeout| self.predicted_wait() > timeout) {
            return Err(Error::new(
                ErrorKind::Overloaded,
                "timeout",
                "it would pass before the request starts",
            ));
        }
        // The last generated token is not processed.
        let max_length = tokens.len().saturating_add(max_tokens - 1).min(self.limits.context_length);
        let prompt_length = tokens.len();
        // Generated tokens are appended without allocating.
        tokens.reserve_exact(max_length - prompt_length);
        self.clients.enter(client);
        let id = self.requests.insert(RequestState {
            tokens,
            prompt_length,
            computed: 0,
            max_tokens,
            max_length,
            class,
            client,
            arrival: now,
            deadline: timeout.map(|timeout| now + timeout),
            preemptions: 0,
            is_paused: false,
        });
        self.waiting.push(id);
        Ok(id)
    }

    /// Returns the state of a request.
    pub fn request(&self, id: RequestId) -> Option<&RequestState> {
        self.requests.get(id)
    }

    /// Returns how long a request that arrives now is expected to wait: the time that the prompts before it take.
    pub fn predicted_wait(&self) -> Duration {
        let all = self.waiting.iter().chain(&self.running).filter_map(|id| self.requests.get(*id));
        let rows: usize = all.map(RequestState::remaining).sum();
        let batch = self.limits.max_rows.max(1);
        self.cost.predict(batch, 0).mul_f64(rows as f64 / batch as f64)
    }

    /// Returns the numbers of requests that run and that wait.
    pub fn counts(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Returns the requests whose deadline has passed.
    pub fn expired(&self, now: Duration) -> impl Iterator<Item = RequestId> {
        let ids = self.running.iter().chain(&self.waiting).copied();
        ids.filter(move |id| {
            self.requests
                .get(*id)
                .and_then(|request| request.deadline)
                .is_some_and(|deadline| deadline <= now)
        })
    }

    /// Pauses a request whose reader is too slow, or resumes it.
    pub fn set_paused(&mut self, id: RequestId, is_paused: bool) {
        if let Some(request) = self.requests.get_mut(id) {
            request.is_paused = is_paused;
        }
    }

    /// Removes a request and frees its memory.
    pub fn finish(&mut self, id: RequestId, kv: &mut dyn KvSpace) -> Option<RequestState> {
        let request = self.requests.remove(id)?;
        if self.running.contains(&id) {
            kv.release(id, &request.tokens[..request.computed]);
        }
        self.running.retain(|running| *running != id);
        self.waiting.retain(|waiting| *waiting != id);
        self.clients.leave(request.client);
        Some(request)
    }

    /// Drops what is in the KV cache for a request, which then starts again with the same tokens.
    pub fn recompute(&mut self, id: RequestId, kv: &mut dyn KvSpace) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if let Some(at) = self.running.iter().position(|running| *running == id) {
            self.running.remove(at);
            kv.release(id, &request.tokens[..request.computed]);
            request.computed = 0;
            self.waiting.push(id);
        }
    }

    /// Plans the next pass.
    pub fn plan(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        plan.clear();
        self.plan_decode(kv, plan);
        let budget = match plan.entries.is_empty() {
            true => None,
            false => Some(self.limits.decode_budget),
        };
        self.plan_prefill(budget, kv, plan);
        self.plan_admission(now, budget, kv, plan);
        plan.predicted = self.cost.predict(plan.rows, plan.positions);
    }

    /// Records that the pass of a plan has run.
    pub fn commit(&mut self, plan: &StepPlan, elapsed: Duration) {
        self.cost.record(plan.rows, plan.positions, elapsed);
        for entry in &plan.entries {
            let Some(request) = self.requests.get_mut(entry.request) else { continue };
            request.computed = entry.from + entry.count;
            self.clients.add(request.client, elapsed.mul_f64(entry.count as f64 / plan.rows as f64));
        }
    }

    /// Appends a generated token, unless it is the last one that the request may generate; false then.
    pub fn append(&mut self, id: RequestId, token: u32) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return false };
        if request.tokens.len() >= request.max_length {
            return false;
        }
        request.tokens.push(token);
        true
    }

    /// Adds a row for each request that decodes.
    fn plan_decode(&mut self, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        let mut at = 0;
        while let Some(&id) = self.running.get(at) {
            let fits = plan.rows < self.limits.max_rows && plan.output_rows < self.limits.max_output_rows;
            let decodes =
                self.requests.get(id).is_some_and(|request| request.decodes() && !request.is_paused);
            if fits && decodes && self.make_room(id, 1, kv, plan) {
                self.push(id, 1, plan);
            }
            // A request that could not get memory has left the list.
            at += usize::from(self.running.get(at) == Some(&id));
        }
    }

    /// Adds chunks of the prompts that are being processed.
    fn plan_prefill(&mut self, budget: Option<Duration>, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        let mut at = 0;
        while let Some(&id) = self.running.get(at) {
            let prefills =
                self.requests.get(id).is_some_and(|request| !request.decodes() && !request.is_paused);
            if prefills {
                let count = self.chunk(id, budget, plan);
                if count > 0 && self.make_room(id, count, kv, plan) {
                    self.push(id, count, plan);
                }
            }
            at += usize::from(self.running.get(at) == Some(&id));
        }
    }

    /// Starts requests that wait, for as long as there is room for them in the batch and in memory.
    fn plan_admission(
        &mut self,
        now: Duration,
        budget: Option<Duration>,
        kv: &mut dyn KvSpace,
        plan: &mut StepPlan,
    ) {
        while self.running.len() < self.limits.max_running {
            let Some(id) = self.next_waiting(now) else { return };
            if plan.rows >= self.limits.max_rows || self.chunk(id, budget, plan) == 0 {
                return;
            }
            let Some(request) = self.requests.get(id) else { return };
            let room = match self.limits.admission {
                Admission::Guarantee => request.max_length,
                Admission::Overcommit => request.max_length.min(request.tokens.len() + HEADROOM),
            };
            let cached = loop {
                match kv.admit(id, &request.tokens, room) {
                    Some(cached) => break Some(cached),
                    None if kv.reclaim() => {}
                    None => break None,
                }
            };
            let Some(cached) = cached else {
                // Alone, and it does not fit: it never will.
                if self.running.is_empty() {
                    plan.rejected.push(id);
                    self.waiting.retain(|waiting| *waiting != id);
                    continue;
                }
                return;
            };
            self.start(id, cached);
            let count = self.chunk(id, budget, plan);
            if count > 0 && self.make_room(id, count, kv, plan) {
                self.push(id, count, plan);
            }
        }
    }

    /// Moves a request from those that wait to those that run.
    fn start(&mut self, id: RequestId, cached: usize) {
        self.waiting.retain(|waiting| *waiting != id);
        let Some(request) = self.requests.get_mut(id) else { return };
        request.computed = cached;
        let key = (request.class, request.arrival);
        let requests = &self.requests;
        let is_before =
            |other: &RequestId| requests.get(*other).is_some_and(|other| (other.class, other.arrival) <= key);
        let at = self.running.partition_point(is_before);
        self.running.insert(at, id);
    }

    /// Returns the request that starts next: that of the highest class, after aging; then of the least served client;
    /// then with the earliest deadline.
    fn next_waiting(&self, now: Duration) -> Option<RequestId> {
        let key = |id: &RequestId| {
            let request = self.requests.get(*id)?;
            let deadline = request.deadline.unwrap_or(Duration::MAX);
            let service = self.clients.service(request.client);
            // Who was preempted continues before others start.
            let is_new = request.preemptions == 0;
            Some((
                aged(request.class, now.saturating_sub(request.arrival)),
                is_new,
                service,
                deadline,
                request.arrival,
            ))
        };
        self.waiting
            .iter()
            .copied()
            .filter_map(|id| Some((key(&id)?, id)))
            .min_by_key(|(key, _)| *key)
            .map(|(_, id)| id)
    }

    /// Returns how many tokens of a prompt fit into the batch.
    fn chunk(&self, id: RequestId, budget: Option<Duration>, plan: &StepPlan) -> usize {
        let Some(request) = self.requests.get(id) else { return 0 };
        let free = self.limits.max_rows.saturating_sub(plan.rows);
        let remaining = request.remaining();
        let within = match budget {
            None => free,
            Some(budget) => {
                let positions = (plan.positions + request.computed * CHUNK) / (plan.rows + CHUNK).max(1);
                let all = self.cost.rows_within(budget, positions, self.limits.max_rows);
                // Prompts make progress, whatever decodes beside them.
                let least = if plan.entries.iter().all(|entry| entry.has_output) { CHUNK } else { 0 };
                all.saturating_sub(plan.rows).max(least).min(free)
            }
        };
        if remaining <= within {
            // The last token of the prompt gives logits.
            return match plan.output_rows < self.limits.max_output_rows {
                true => remaining,
                false => remaining - 1,
            };
        }
        match within / CHUNK * CHUNK {
            0 if plan.rows == 0 => within,
            count => count,
        }
    }

    fn push(&self, id: RequestId, count: usize, plan: &mut StepPlan) {
        let Some(request) = self.requests.get(id) else { return };
        let has_output = request.computed + count == request.tokens.len();
        plan.push(StepEntry { request: id, from: request.computed, count, has_output });
    }

    /// Reserves memory for `count` more tokens of a running request: from cached prefixes, then from requests behind it.
    /// If there is not enough, the request waits again.
    fn make_room(&mut self, id: RequestId, count: usize, kv: &mut dyn KvSpace, plan: &mut StepPlan) -> bool {
        loop {
            if kv.reserve(id, count) {
                return true;
            }
            if kv.reclaim() {
                continue;
            }
            match self.victim(id, plan) {
                Some(victim) => self.preempt(victim, kv, plan),
                None if self.running.len() == 1 => {
                    plan.rejected.push(id);
                    return false;
                }
                None => {
                    self.preempt(id, kv, plan);
                    return false;
                }
            }
        }
    }

    /// Returns the request behind `id` that is preempted first: a paused one, or one that was not preempted too often, and
    /// of these the last.
    fn victim(&self, id: RequestId, plan: &StepPlan) -> Option<RequestId> {
        let own = self.running.iter().position(|running| *running == id)?;
        let is_planned = |other: &RequestId| plan.entries.iter().any(|entry| entry.request == *other);
        let behind = self.running[own + 1..].iter().rev().copied().filter(|other| !is_planned(other));
        behind.min_by_key(|other| {
            let request = self.requests.get(*other);
            request
                .map(|request| (!request.is_paused, request.preemptions.saturating_sub(MAX_PREEMPTIONS - 1)))
        })
    }

    fn preempt(&mut self, id: RequestId, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        self.recompute(id, kv);
        if let Some(request) = self.requests.get_mut(id) {
            request.preemptions += 1;
        }
        plan.preempted.push(id);
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
