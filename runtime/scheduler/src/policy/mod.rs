//! Which rows share a batch: pure policy, without threads, clock or model.
//!
//! There are no phases: every request has tokens that are in the KV cache and tokens that are not, and each pass moves
//! some from the second kind to the first (as in vLLM's scheduler). Decoding rows come first, then chunks of prompts, of
//! started and of waiting requests, within the time budget of the pass (Sarathi-Serve, arXiv:2403.02310).
//!
//! None of this changes a result: the logits of a row do not depend on the batch.

mod cost_model;
mod fair_share;
mod kv_space;
mod prompts;
mod speculate;
mod step_plan;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use cost_model::CostModel;
pub use kv_space::KvSpace;
pub use speculate::Propose;
pub use step_plan::{StepEntry, StepPlan};

use crate::request::{RequestClass, RequestId, RequestLimits, RequestSpec, RequestState, RequestTable};
use crate::speculation::Acceptance;
use fair_share::FairShare;
use siskin_format::{Error, ErrorKind};
use speculate::DraftChoice;

/// Preemptions after which a request is only preempted if all others have had as many.
const MAX_PREEMPTIONS: u32 = 3;

/// How much memory a request must have before it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Enough for all tokens that it may generate: a request is preempted only while its reader is too slow, or as a shadow
    /// request while others run.
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
    /// The limits of a request.
    pub request: RequestLimits,
    /// How long a pass may take while a request decodes; twice as long with tokens of a prompt that takes at most 0.4 s alone,
    /// or has taken more than four times as long as it would alone.
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
    /// Nothing but shadow requests can run.
    runs_shadow: bool,
    /// How often draft tokens are right, over all requests.
    acceptance: Acceptance,
    draft_choice: DraftChoice,
}

impl Scheduler {
    /// Creates a scheduler without requests.
    pub fn new(limits: StepLimits) -> Self {
        // Decoding requests leave room for prompts in every batch.
        let max_running = limits.max_running.min(limits.max_rows / 2).min(limits.max_output_rows).max(1);
        let limits = StepLimits { max_running, ..limits };
        Self {
            limits,
            cost: CostModel::default(),
            requests: RequestTable::default(),
            waiting: Vec::new(),
            running: Vec::with_capacity(max_running),
            clients: FairShare::default(),
            runs_shadow: true,
            acceptance: Acceptance::default(),
            draft_choice: DraftChoice::with_capacity(max_running),
        }
    }

    /// Returns the maximum number of requests that run at the same time.
    pub(crate) fn max_running(&self) -> usize {
        self.limits.max_running
    }

    /// Appends a request that was checked to the queue. `cached` is how many of its tokens a cached prefix is expected to
    /// have, which decides how soon it is due.
    pub fn submit(&mut self, now: Duration, spec: RequestSpec, cached: usize) -> RequestId {
        let RequestSpec {
            mut tokens,
            max_tokens,
            class,
            client,
            timeout,
            salt: _,
            adapter,
            append_to,
            scores_prompt,
        } = spec;
        // The last generated token is not processed.
        let generated = max_tokens.saturating_sub(1);
        let max_length = tokens.len().saturating_add(generated).min(self.limits.request.context_length);
        let prompt_length = tokens.len();
        // Generated tokens are appended without allocating.
        tokens.reserve_exact(max_length.saturating_sub(prompt_length));
        if class != RequestClass::Shadow {
            self.clients.enter(client);
        }
        let id = self.requests.insert(RequestState {
            tokens,
            prompt_length,
            computed: 0,
            max_tokens,
            max_length,
            class,
            client,
            adapter,
            append_to,
            arrival: now,
            deadline: timeout.and_then(|timeout| now.checked_add(timeout)),
            waiting_since: now,
            has_started: false,
            due: now + self.allowance(prompt_length.saturating_sub(cached)),
            preemptions: 0,
            is_paused: false,
            forced: 0,
            scores_prompt,
            acceptance: self.acceptance.for_new_request(),
            unused_drafts: 0,
        });
        self.waiting.push(id);
        id
    }

    /// Returns the state of a request.
    pub fn request(&self, id: RequestId) -> Option<&RequestState> {
        self.requests.get(id)
    }

    /// Returns how long a request that arrives now is expected to wait: the time that the prompts before it take.
    pub fn predicted_wait(&self) -> Duration {
        let all = self.waiting.iter().chain(&self.running).filter_map(|id| self.requests.get(*id));
        let before = all.filter(|request| request.class != RequestClass::Shadow && !request.decodes());
        self.cost_of_rows(before.map(RequestState::remaining).sum())
    }

    /// Returns the predicted time of rows in full batches.
    fn cost_of_rows(&self, rows: usize) -> Duration {
        let batch = self.limits.max_rows.max(1);
        self.cost.predict(batch, 0).mul_f64(rows as f64 / batch as f64)
    }

    /// Returns the numbers of requests that run and that wait, those of sessions aside.
    pub fn counts(&self) -> (usize, usize) {
        (self.count_without_sessions(&self.running), self.count_without_sessions(&self.waiting))
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

    /// Removes a request and frees its memory. If it failed, its keys and values are not kept as a cached prefix.
    pub fn finish(&mut self, id: RequestId, has_failed: bool, kv: &mut dyn KvSpace) -> Option<RequestState> {
        let request = self.requests.remove(id)?;
        if self.running.contains(&id) {
            let kept = if has_failed { 0 } else { request.computed };
            kv.release(id, &request.tokens[..kept]);
        }
        self.running.retain(|running| *running != id);
        self.waiting.retain(|waiting| *waiting != id);
        if request.class != RequestClass::Shadow {
            self.clients.leave(request.client);
        }
        Some(request)
    }

    /// Moves a running request back to the queue and frees its memory; it starts again with the same tokens.
    pub fn requeue(&mut self, now: Duration, id: RequestId, kv: &mut dyn KvSpace) {
        let Some(request) = self.requests.get_mut(id) else { return };
        if let Some(at) = self.running.iter().position(|running| *running == id) {
            self.running.remove(at);
            kv.release(id, &request.tokens[..request.computed]);
            (request.computed, request.waiting_since) = (0, now);
            self.waiting.push(id);
        }
    }

    /// Plans the next pass.
    pub fn plan(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        plan.clear();
        let has_other = |ids: &[RequestId]| {
            ids.iter().any(|id| {
                let request = self.requests.get(*id);
                request.is_some_and(|request| request.class != RequestClass::Shadow && !request.is_paused)
            })
        };
        self.runs_shadow = !has_other(&self.running) && !has_other(&self.waiting);
        self.admit_sessions(now, kv, plan);
        self.plan_decode(now, kv, plan);
        plan.decode_time = (!plan.entries.is_empty()).then(|| self.cost.predict(plan.rows, plan.positions));
        self.plan_prompts(now, kv, plan);
        self.group_by_adapter(plan);
    }

    /// Brings the rows of each adapter together, which are multiplied by its matrices at once.
    fn group_by_adapter(&self, plan: &mut StepPlan) {
        let adapter = |entry: &StepEntry| self.requests.get(entry.request).map(|request| request.adapter);
        if !plan.entries.is_sorted_by_key(adapter) {
            plan.entries.sort_unstable_by_key(adapter);
        }
    }

    /// Records that the pass of a plan has run.
    pub fn commit(&mut self, plan: &StepPlan, elapsed: Duration) {
        self.cost.record(plan.rows, plan.positions, elapsed);
        for entry in &plan.entries {
            let Some(request) = self.requests.get_mut(entry.request) else { continue };
            // Prompts were charged when they started.
            if request.decodes() {
                let share = (entry.count + entry.drafts) as f64 / plan.rows.max(1) as f64;
                self.clients.add(request.client, elapsed.mul_f64(share));
            }
            request.computed = entry.from + entry.count;
        }
    }

    /// Appends a generated token, unless it is the last one that the request may generate; false then.
    pub fn append(&mut self, id: RequestId, token: u32) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return false };
        if request.tokens.len() >= request.max_length {
            return false;
        }
        request.tokens.push(token);
        request.forced = 0;
        true
    }

    /// Appends a token that needed no logits, unless it is the last one that the request may generate; false then.
    pub fn append_forced(&mut self, id: RequestId, token: u32) -> bool {
        let forced = self.requests.get(id).map_or(0, |request| request.forced);
        let is_appended = self.append(id, token);
        if let Some(request) = self.requests.get_mut(id).filter(|_| is_appended) {
            request.forced = forced + 1;
        }
        is_appended
    }

    /// Starts the requests of sessions, which are in progress already: they wait for memory only.
    fn admit_sessions(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        let mut at = 0;
        while let Some(&id) = self.waiting.get(at) {
            let session = self.can_run(id).filter(|request| request.is_session());
            let admitted = session.map(|request| kv.admit(id, &request.tokens, request.max_length).is_some());
            match admitted {
                Some(true) => self.start(id, 0),
                Some(false) if let Some(idle) = self.idle() => self.preempt(now, idle, kv, plan),
                // No running request can free memory.
                Some(false) if self.running.is_empty() => {
                    plan.rejected.push(id);
                    self.waiting.remove(at);
                }
                Some(false) | None => at += 1,
            }
        }
    }

    /// Adds a row for each request that decodes, and one for each of its forced tokens.
    fn plan_decode(&mut self, now: Duration, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        let mut at = 0;
        while let Some(&id) = self.running.get(at) {
            let fits = plan.rows < self.limits.max_rows && plan.output_rows < self.limits.max_output_rows;
            let decoding = self.can_run(id).filter(|request| fits && request.decodes());
            let free = self.limits.max_rows.saturating_sub(plan.rows);
            let count = decoding.map_or(0, |request| request.remaining().min(free));
            if count > 0 && self.make_room(now, id, count, kv, plan) {
                self.push(id, count, plan);
            }
            // A request that could not get memory has left the list.
            at += usize::from(self.running.get(at) == Some(&id));
        }
    }

    /// Returns a request unless it is paused, or yields to others.
    fn can_run(&self, id: RequestId) -> Option<&RequestState> {
        let may_run = |request: &&RequestState| {
            !request.is_paused && (request.class != RequestClass::Shadow || self.runs_shadow)
        };
        self.requests.get(id).filter(may_run)
    }

    /// Returns a running request that is not schedulable now, and may be preempted: its reader is too slow, or it is a shadow
    /// request while others run.
    fn idle(&self) -> Option<RequestId> {
        let is_idle = |id: &RequestId| self.can_run(*id).is_none() && !self.is_session(*id);
        self.running.iter().copied().find(is_idle)
    }

    /// Returns the number of requests in `ids`, those of sessions aside.
    fn count_without_sessions(&self, ids: &[RequestId]) -> usize {
        ids.iter().filter(|id| !self.is_session(**id)).count()
    }

    /// Moves a request from those that wait to those that run.
    fn start(&mut self, id: RequestId, cached: usize) {
        self.waiting.retain(|waiting| *waiting != id);
        let length = self.requests.get(id).map_or(0, |request| request.tokens.len());
        let allowance = self.allowance(length - cached);
        let Some(request) = self.requests.get_mut(id) else { return };
        (request.computed, request.has_started) = (cached, true);
        // Not later than before: a request that was preempted has waited already.
        request.due = request.due.min(request.arrival + allowance);
        let (client, rows) = (request.client, request.remaining());
        let key = (request.class, request.arrival);
        // A decoding session is charged for its pass.
        if request.class != RequestClass::Shadow && !request.decodes() {
            self.clients.add(client, self.cost_of_rows(rows));
        }
        let requests = &self.requests;
        let is_before =
            |other: &RequestId| requests.get(*other).is_some_and(|other| (other.class, other.arrival) <= key);
        let at = self.running.partition_point(is_before);
        self.running.insert(at, id);
    }

    fn push(&self, id: RequestId, count: usize, plan: &mut StepPlan) {
        let Some(request) = self.requests.get(id) else { return };
        let (from, position) = (request.computed, request.position());
        let outputs = match request.scores_prompt && from < request.prompt_length {
            true => count,
            false => usize::from(from + count == request.tokens.len()),
        };
        plan.push(StepEntry { request: id, from, position, count, outputs, drafts: 0 });
    }

    /// Reserves memory for `count` more tokens of a running request, and preempts others for it. If there is not enough,
    /// the request waits again.
    fn make_room(
        &mut self,
        now: Duration,
        id: RequestId,
        count: usize,
        kv: &mut dyn KvSpace,
        plan: &mut StepPlan,
    ) -> bool {
        while !kv.reserve(id, count) {
            match self.victim(id, plan) {
                Some(victim) => self.preempt(now, victim, kv, plan),
                None if self.running.len() == 1 || self.is_session(id) => {
                    plan.rejected.push(id);
                    return false;
                }
                None => {
                    self.preempt(now, id, kv, plan);
                    return false;
                }
            }
        }
        true
    }

    /// Returns the request to preempt for `id`: an idle one, or else the last one behind it, preferring those that were
    /// preempted fewer than [`MAX_PREEMPTIONS`] times.
    fn victim(&self, id: RequestId, plan: &StepPlan) -> Option<RequestId> {
        let is_planned = |other: &RequestId| plan.entries.iter().any(|entry| entry.request == *other);
        if let Some(idle) = self.idle() {
            return Some(idle);
        }
        let own = self.running.iter().position(|running| *running == id)?;
        let can_be = |other: &RequestId| !is_planned(other) && !self.is_session(*other);
        let behind = self.running[own + 1..].iter().rev().copied().filter(can_be);
        let preemptions =
            |other: &RequestId| self.requests.get(*other).map_or(0, |request| request.preemptions);
        behind.min_by_key(|other| preemptions(other).saturating_sub(MAX_PREEMPTIONS - 1))
    }

    fn is_session(&self, id: RequestId) -> bool {
        self.requests.get(id).is_some_and(RequestState::is_session)
    }

    fn preempt(&mut self, now: Duration, id: RequestId, kv: &mut dyn KvSpace, plan: &mut StepPlan) {
        self.requeue(now, id, kv);
        if let Some(request) = self.requests.get_mut(id) {
            request.preemptions += 1;
        }
        plan.preempted.push(id);
    }
}

pub(crate) fn queue_full(waiting: usize) -> Error {
    Error::new(ErrorKind::Overloaded, "queue", format!("{waiting} requests are waiting; retry later"))
}

pub(crate) fn too_late() -> Error {
    Error::new(ErrorKind::Overloaded, "timeout", "the request would time out before it starts; retry later")
}
