//! A model in an engine: its context, its scheduler, its cached prefixes, and the samplers of its requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sampler::{RequestOutcome, RequestSampler, Sampled};
use super::{LaneGate, lock};
use crate::policy::{Admission, KvSpace, Scheduler, StepEntry, StepLimits, StepPlan};
use crate::prefix_cache::{PrefixCache, PrefixReuse, Reclaimed, SequenceId};
use crate::request::{CacheSalt, RequestId, RequestSpec, RequestState};
use siskin_backend::block_table::KvGroupKind;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_format::{Error, ErrorKind, Result};

/// How a model's requests are scheduled.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// The maximum number of requests that run at the same time.
    pub max_running: usize,
    /// The maximum number of requests that wait.
    pub max_waiting: usize,
    /// How long a pass may take while a request decodes.
    pub decode_budget: Duration,
    /// How much memory a request must have before it starts.
    pub admission: Admission,
    /// Whether requests share the keys and values of common prefixes.
    pub prefix_cache: bool,
    /// How long a request whose reader is too slow stays.
    pub pause_limit: Duration,
}

impl Default for LaneOptions {
    fn default() -> Self {
        Self {
            max_running: 16,
            max_waiting: 256,
            decode_budget: Duration::from_millis(15),
            admission: Admission::Guarantee,
            prefix_cache: true,
            pause_limit: Duration::from_secs(30),
        }
    }
}

/// Counters of a model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Requests that run now.
    pub running: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Cached prefixes now.
    pub cached_prefixes: usize,
    /// Passes.
    pub steps: u64,
    /// Rows of all passes.
    pub rows: u64,
    /// Tokens of requests when they started.
    pub prefix_queried_tokens: u64,
    /// Those of them that were found in the prefix cache.
    pub prefix_hit_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
}

/// A request that the scheduler has not seen yet.
pub(super) struct Submission {
    pub spec: RequestSpec,
    pub sampler: Box<dyn RequestSampler>,
    pub cancel: CancelHandle,
    pub arrival: Duration,
}

/// A request in the lane.
struct ActiveRequest {
    sampler: Box<dyn RequestSampler>,
    cancel: CancelHandle,
    salt: CacheSalt,
    /// Its sequence while it runs.
    sequence: Option<SequenceId>,
    /// The length of its prompt, for which RoPE frequencies are chosen.
    prompt_length: usize,
    paused_since: Option<Duration>,
}

/// What follows from the model for cached prefixes.
#[derive(Clone, Copy)]
struct CacheRules {
    is_enabled: bool,
    reuse: PrefixReuse,
    /// Keeps a prefix at the end of the prompt, since later tokens make it unusable: windows move on, and recurrent states
    /// change.
    at_prompt_end: bool,
    /// Longer sequences have other RoPE frequencies.
    max_length: usize,
}

pub(super) struct ModelLane {
    gate: Arc<LaneGate>,
    context: Context,
    scheduler: Scheduler,
    prefixes: PrefixCache,
    rules: CacheRules,
    active: HashMap<RequestId, ActiveRequest>,
    plan: StepPlan,
    /// Reused from pass to pass.
    entries: Vec<BatchEntry<'static>>,
    /// Requests that ended, reused from pass to pass.
    ended: Vec<(RequestId, RequestOutcome)>,
    stats: LaneStats,
    /// The compute time of the lane.
    pub service: Duration,
}

impl ModelLane {
    pub(super) fn new(context: Context, gate: Arc<LaneGate>) -> Self {
        let options = gate.options;
        let (max_rows, max_output_rows) = context.decoder_limits();
        let limits = StepLimits {
            max_rows,
            max_output_rows,
            max_running: options.max_running.min(max_output_rows),
            max_waiting: options.max_waiting,
            context_length: context.context_length(),
            decode_budget: options.decode_budget,
            admission: options.admission,
        };
        let has = |holds: &dyn Fn(KvGroupKind) -> bool| context.kv_groups().any(holds);
        let has_states = has(&|kind| kind == KvGroupKind::RecurrentState);
        let rules = CacheRules {
            is_enabled: options.prefix_cache,
            reuse: if has_states { PrefixReuse::Whole } else { PrefixReuse::Partial },
            at_prompt_end: has_states || has(&|kind| matches!(kind, KvGroupKind::SlidingWindow(_))),
            max_length: context.passes().rope_scaling_length().unwrap_or(usize::MAX),
        };
        Self {
            gate,
            context,
            scheduler: Scheduler::new(limits),
            prefixes: PrefixCache::default(),
            rules,
            active: HashMap::new(),
            plan: StepPlan::default(),
            entries: Vec::new(),
            ended: Vec::new(),
            stats: LaneStats::default(),
            service: Duration::ZERO,
        }
    }

    pub(super) fn stats(&self) -> LaneStats {
        let (running, waiting) = self.scheduler.counts();
        LaneStats { running, waiting, cached_prefixes: self.prefixes.len(), ..self.stats }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && lock(&self.gate.inbox).is_empty()
    }

    pub(super) fn has_work(&self) -> bool {
        !self.active.is_empty()
    }

    pub(super) fn cancel_all(&mut self) {
        self.active.values().for_each(|request| request.cancel.cancel());
    }

    /// Takes new requests, and ends those that were canceled or whose time is over.
    pub(super) fn collect(&mut self, now: Duration) {
        for Submission { spec, mut sampler, cancel, arrival } in lock(&self.gate.inbox).drain(..) {
            let (salt, prompt_length) = (spec.salt, spec.tokens.len());
            match self.scheduler.submit(arrival, spec) {
                Ok(id) => {
                    let paused_since = None;
                    let request =
                        ActiveRequest { sampler, cancel, salt, sequence: None, prompt_length, paused_since };
                    self.active.insert(id, request);
                }
                Err(error) => {
                    self.gate.waiting.fetch_sub(1, Ordering::AcqRel);
                    sampler.finish(RequestOutcome::Failed(error));
                }
            }
        }
        let mut ended = std::mem::take(&mut self.ended);
        let pause_limit = self.gate.options.pause_limit;
        for (id, request) in &mut self.active {
            let is_paused = !request.sampler.has_room();
            request.paused_since = is_paused.then(|| request.paused_since.unwrap_or(now));
            self.scheduler.set_paused(*id, is_paused);
            let is_abandoned = request.paused_since.is_some_and(|since| now - since > pause_limit);
            if request.cancel.is_canceled() || is_abandoned {
                ended.push((*id, RequestOutcome::Canceled));
            }
        }
        ended.extend(self.scheduler.expired(now).map(|id| (id, RequestOutcome::DeadlineExceeded)));
        self.end(ended);
    }

    /// Runs a pass; false if there is nothing to run.
    pub(super) fn step(&mut self, now: Duration, clock: &dyn Fn() -> Duration) -> bool {
        self.recompute_rescaled();
        let waiting_before = self.scheduler.counts().1;
        let mut space = ContextSpace {
            context: &mut self.context,
            prefixes: &mut self.prefixes,
            active: &mut self.active,
            rules: self.rules,
            stats: &mut self.stats,
        };
        self.scheduler.plan(now, &mut space, &mut self.plan);
        self.stats.preemptions += self.plan.preempted.len() as u64;
        let waiting = self.scheduler.counts().1;
        self.count_waiting(waiting_before, waiting);
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.plan.rejected.iter().map(|id| (*id, RequestOutcome::Failed(too_large()))));
        if self.plan.entries.is_empty() {
            let has_ended = !ended.is_empty();
            self.end(ended);
            return has_ended;
        }
        let plan = std::mem::take(&mut self.plan);
        match self.forward(&plan.entries) {
            Ok(()) => self.commit(&plan, clock() - now, &mut ended),
            Err(error) if error.kind() == ErrorKind::Canceled => {}
            Err(error) if plan.entries.len() == 1 => {
                ended.push((plan.entries[0].request, RequestOutcome::Failed(error)));
            }
            Err(_) => self.step_one_by_one(&plan, now, clock, &mut ended),
        }
        self.plan = plan;
        self.end(ended);
        let wait = self.scheduler.predicted_wait().as_micros();
        self.gate.predicted_wait.store(u64::try_from(wait).unwrap_or(u64::MAX), Ordering::Relaxed);
        true
    }

    /// Runs the entries of a failed pass each by itself, so that only those fail that cause it.
    fn step_one_by_one(
        &mut self,
        plan: &StepPlan,
        now: Duration,
        clock: &dyn Fn() -> Duration,
        ended: &mut Vec<(RequestId, RequestOutcome)>,
    ) {
        for entry in &plan.entries {
            let mut single = StepPlan::default();
            single.push(*entry);
            match self.forward(&single.entries) {
                Ok(()) => self.commit(&single, clock() - now, ended),
                Err(error) if error.kind() == ErrorKind::Canceled => {}
                Err(error) => ended.push((entry.request, RequestOutcome::Failed(error))),
            }
        }
    }

    /// Runs the rows of some entries.
    fn forward(&mut self, planned: &[StepEntry]) -> Result<()> {
        let Self { context, scheduler, active, gate, .. } = self;
        let mut entries: Vec<BatchEntry<'_>> = recycled(std::mem::take(&mut self.entries));
        let mut pass = lock(&gate.pass);
        for entry in planned {
            let Some((request, state)) = active.get(&entry.request).zip(scheduler.request(entry.request))
            else {
                continue;
            };
            let Some(sequence) = request.sequence else { continue };
            let outputs = if entry.has_output { OutputRows::Last } else { OutputRows::None };
            let tokens = &state.tokens[entry.from..entry.from + entry.count];
            entries.push(BatchEntry {
                cancel: Some(&request.cancel),
                ..BatchEntry::new(sequence, tokens, outputs)
            });
            pass.push(request.cancel.clone());
        }
        drop(pass);
        let outcome = context.forward(&entries);
        lock(&gate.pass).clear();
        self.entries = recycled(entries);
        outcome
    }

    /// Records a pass and samples the next tokens.
    fn commit(&mut self, plan: &StepPlan, elapsed: Duration, ended: &mut Vec<(RequestId, RequestOutcome)>) {
        self.service += elapsed;
        self.stats.steps += 1;
        self.stats.rows += plan.rows as u64;
        self.scheduler.commit(plan, elapsed);
        for (row, entry) in plan.entries.iter().filter(|entry| entry.has_output).enumerate() {
            let id = entry.request;
            let Some(request) = self.active.get_mut(&id) else { continue };
            let Some(sequence) = request.sequence else { continue };
            if self.context.is_canceled(sequence) {
                continue;
            }
            let sampled = request.sampler.sample(self.context.output(row));
            let (salt, is_prompt_end) = (request.salt, entry.from + entry.count == request.prompt_length);
            if is_prompt_end && self.rules.at_prompt_end {
                self.keep_prompt(id, salt, sequence);
            }
            match sampled {
                Ok(Sampled::Token(token)) if self.scheduler.append(id, token) => {}
                Ok(Sampled::Token(_)) => ended.push((id, self.length_outcome(id))),
                // The sampler has told its reader.
                Ok(Sampled::End) => self.remove(id),
                Err(error) => ended.push((id, RequestOutcome::Failed(error))),
            }
        }
    }

    /// Keeps the prompt of a request as a cached prefix of its own.
    fn keep_prompt(&mut self, id: RequestId, salt: CacheSalt, sequence: SequenceId) {
        let Some(state) = self.scheduler.request(id) else { return };
        if !self.rules.allows(state) {
            return;
        }
        if let Ok(fork) = self.context.fork(sequence) {
            let covered =
                self.prefixes.insert(salt, &state.tokens[..state.computed], fork, PrefixReuse::Whole);
            covered.into_iter().for_each(|sequence| self.context.remove(sequence));
        }
    }

    /// Ends a request whose next token would exceed its maximum length: either it may not generate more, or the context
    /// is full.
    fn length_outcome(&self, id: RequestId) -> RequestOutcome {
        let has_all = |state: &RequestState| state.tokens.len() + 1 - state.prompt_length >= state.max_tokens;
        match self.scheduler.request(id).is_none_or(has_all) {
            true => RequestOutcome::Length,
            false => RequestOutcome::ContextFull,
        }
    }

    /// Restarts requests that outgrew the length for which their keys were rotated.
    fn recompute_rescaled(&mut self) {
        let Some(limit) = self.context.passes().longrope_length() else { return };
        let crosses = |id: &RequestId| {
            self.scheduler
                .request(*id)
                .is_some_and(|state| (1..=limit).contains(&state.computed) && state.tokens.len() > limit)
        };
        let ids: Vec<_> = self.active.keys().copied().filter(crosses).collect();
        for id in ids {
            let mut space = ContextSpace {
                context: &mut self.context,
                prefixes: &mut self.prefixes,
                active: &mut self.active,
                rules: self.rules,
                stats: &mut self.stats,
            };
            self.scheduler.recompute(id, &mut space);
            self.gate.waiting.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn end(&mut self, mut ended: Vec<(RequestId, RequestOutcome)>) {
        for (id, outcome) in ended.drain(..) {
            if let Some(request) = self.active.get_mut(&id) {
                request.sampler.finish(outcome);
                self.remove(id);
            }
        }
        self.ended = ended;
    }

    fn remove(&mut self, id: RequestId) {
        let waiting_before = self.scheduler.counts().1;
        let mut space = ContextSpace {
            context: &mut self.context,
            prefixes: &mut self.prefixes,
            active: &mut self.active,
            rules: self.rules,
            stats: &mut self.stats,
        };
        self.scheduler.finish(id, &mut space);
        self.active.remove(&id);
        self.count_waiting(waiting_before, self.scheduler.counts().1);
    }

    fn count_waiting(&self, before: usize, after: usize) {
        if after < before {
            self.gate.waiting.fetch_sub(before - after, Ordering::AcqRel);
        } else {
            self.gate.waiting.fetch_add(after - before, Ordering::AcqRel);
        }
    }
}

impl CacheRules {
    /// Returns whether the keys and values of a request can be shared.
    fn allows(self, state: &RequestState) -> bool {
        self.is_enabled && state.tokens.len() <= self.max_length
    }
}

/// The KV cache of a lane, as its scheduler sees it.
struct ContextSpace<'a> {
    context: &'a mut Context,
    prefixes: &'a mut PrefixCache,
    active: &'a mut HashMap<RequestId, ActiveRequest>,
    rules: CacheRules,
    stats: &'a mut LaneStats,
}

impl KvSpace for ContextSpace<'_> {
    fn admit(&mut self, request: RequestId, tokens: &[u32], room: usize) -> Option<usize> {
        let active = self.active.get_mut(&request)?;
        let context = &mut *self.context;
        let can_hit = self.rules.is_enabled && tokens.len() <= self.rules.max_length;
        let found = match can_hit {
            true => self.prefixes.find(active.salt, tokens, |of, length| context.fork_at(of, length).ok()),
            false => None,
        };
        let (sequence, cached) = found.unwrap_or_else(|| (context.create(), 0));
        // Beyond the length at which frequencies change, they are those of the whole sequence.
        let crosses = context.passes().longrope_length().is_some_and(|limit| tokens.len() > limit);
        let expected = if crosses { tokens.len() } else { active.prompt_length };
        let prepared = context
            .set_expected_length(sequence, expected)
            .and_then(|()| context.reserve(sequence, room - cached));
        if prepared.is_err() {
            context.remove(sequence);
            return None;
        }
        active.sequence = Some(sequence);
        self.stats.prefix_queried_tokens += tokens.len() as u64;
        self.stats.prefix_hit_tokens += cached as u64;
        Some(cached)
    }

    fn reserve(&mut self, request: RequestId, count: usize) -> bool {
        let sequence = self.active.get(&request).and_then(|active| active.sequence);
        sequence.is_some_and(|sequence| self.context.reserve(sequence, count).is_ok())
    }

    fn release(&mut self, request: RequestId, tokens: &[u32]) {
        let Some(active) = self.active.get_mut(&request) else { return };
        let Some(sequence) = active.sequence.take() else { return };
        let is_kept = self.rules.is_enabled
            && tokens.len() <= self.rules.max_length
            && self.context.length(sequence) == Ok(tokens.len())
            // Returns what was reserved.
            && self.context.truncate(sequence, tokens.len()).is_ok();
        if !is_kept {
            self.context.remove(sequence);
            return;
        }
        for covered in self.prefixes.insert(active.salt, tokens, sequence, self.rules.reuse) {
            self.context.remove(covered);
        }
    }

    fn reclaim(&mut self) -> bool {
        match self.prefixes.reclaim() {
            None => return false,
            Some(Reclaimed::Remove(sequence)) => self.context.remove(sequence),
            Some(Reclaimed::Truncate(sequence, length)) => {
                if self.context.truncate(sequence, length).is_err() {
                    self.prefixes.discard(sequence);
                    self.context.remove(sequence);
                }
            }
        }
        true
    }
}

/// Empties a vector of entries, and keeps its memory for entries of another lifetime.
fn recycled<'a>(mut entries: Vec<BatchEntry<'_>>) -> Vec<BatchEntry<'a>> {
    entries.clear();
    // Collected in place, since both types have the same layout.
    entries.into_iter().filter_map(|_| None).collect()
}

fn too_large() -> Error {
    let message =
        "the KV cache is too small for it, even with nothing beside it; use a larger budget or fewer tokens";
    Error::new(ErrorKind::Memory, "request", message)
}
