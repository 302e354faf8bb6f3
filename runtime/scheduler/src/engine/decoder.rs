//! A decoder in an engine: its scheduler, its KV cache, and the samplers of its requests.

mod outputs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::kv_cache::{RequestCache, RequestSpace};
use super::pass_times::PassTimes;
use super::sampler::{RequestOutcome, RequestSampler};
use super::{ModelRunner, RequestInbox, lock};
use crate::policy::{Admission, Scheduler, StepEntry, StepLimits, StepPlan};
use crate::prefix_cache::StoredPrefix;
use crate::request::{CacheSalt, RequestId, RequestLimits, RequestMap, RequestSpec};
use crate::speculation::MAX_DRAFTS;
use siskin_backend::block_table::SequenceId;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{BatchEntry, Context, OutputRows};
use siskin_backend::fair_mutex::FairMutex;
use siskin_format::{Error, ErrorKind, Result};

/// The maximum number of forced tokens that a pass processes for a request, besides the one before them.
const MAX_FORCED: usize = 63;
/// A pass waits for the sessions of the last one for at most this part of that one's duration.
const SESSION_WAIT_DIVISOR: u32 = 20;
/// And not longer than this: the last one may have been throttled.
const MAX_SESSION_WAIT: Duration = Duration::from_millis(2);

/// How a model's requests are scheduled.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingOptions {
    /// The maximum number of requests that run at the same time; at most half as many as a batch has rows.
    pub max_running: usize,
    /// The maximum number of requests that wait.
    pub max_waiting: usize,
    /// The maximum number of sessions, forks included.
    pub max_sessions: usize,
    /// How long a pass may take while a request decodes; twice as long with tokens of a prompt that takes at most 0.4 s alone,
    /// or has taken more than four times as long as it would alone.
    pub decode_budget: Duration,
    /// How much memory a request must have before it starts.
    pub admission: Admission,
    /// Whether requests share the keys and values of common prefixes.
    pub prefix_cache: bool,
    /// How long a request stays whose events are not read: it pauses when 256 of them wait, and ends after this time.
    pub pause_limit: Duration,
}

impl Default for SchedulingOptions {
    fn default() -> Self {
        Self {
            max_running: 16,
            max_waiting: 256,
            max_sessions: 4,
            decode_budget: Duration::from_millis(15),
            admission: Admission::Guarantee,
            prefix_cache: true,
            pause_limit: Duration::MAX,
        }
    }
}

/// Counters of a model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerStats {
    /// Requests whose readers are too slow.
    pub paused: usize,
    /// Requests that run now.
    pub running: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Cached prefixes now.
    pub cached_prefixes: usize,
    /// Forward passes.
    pub steps: u64,
    /// How long the passes took.
    pub pass_times: PassTimes,
    /// Rows of all passes.
    pub rows: u64,
    /// Tokens of requests when they started.
    pub prefix_queried_tokens: u64,
    /// Those of them that were found in the prefix cache.
    pub prefix_hit_tokens: u64,
    /// Tokens of prefixes that a store had.
    pub prefix_restored_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Draft tokens that passes verified.
    pub drafted_tokens: u64,
    /// Those of them that were right.
    pub accepted_tokens: u64,
    /// Blocks of the KV cache.
    pub kv_blocks: usize,
    /// Those of them that are free now; cached prefixes hold others, which requests can take.
    pub free_kv_blocks: usize,
}

/// A request that the scheduler has not seen yet.
pub(super) struct Submission {
    pub spec: RequestSpec,
    pub sampler: Box<dyn RequestSampler>,
    /// Whose prefixes it shares: its salt, with its adapter.
    pub salt: CacheSalt,
    /// A prefix of its prompt that a store had.
    pub stored: Option<StoredPrefix>,
    pub cancel: CancelHandle,
    pub arrival: Duration,
}

/// A request that the scheduler has seen.
struct ActiveRequest {
    sampler: Box<dyn RequestSampler>,
    cancel: CancelHandle,
    has_started: bool,
    paused_since: Option<Duration>,
}

type Ended = Vec<(RequestId, RequestOutcome)>;

pub(super) struct DecoderRunner {
    inbox: Arc<RequestInbox>,
    /// Sessions of the model use it between passes.
    context: Arc<FairMutex<Context>>,
    cache: RequestCache,
    scheduler: Scheduler,
    active: RequestMap<ActiveRequest>,
    plan: StepPlan,
    /// The tokens of entries with draft tokens, reused from pass to pass.
    drafted: Vec<u32>,
    /// Reused from pass to pass.
    entries: Vec<BatchEntry<'static>>,
    /// Requests that ended, reused from pass to pass.
    ended: Ended,
    stats: SchedulerStats,
    limits: StepLimits,
    /// The number of sessions in the last pass that got the logits of their last token, whose next tokens are awaited.
    sessions_awaited: usize,
    /// How long the last pass took.
    last_pass: Duration,
}

impl ModelRunner for DecoderRunner {
    fn collect(&mut self, now: Duration) -> bool {
        self.guarded(&mut |runner, context| runner.collect_requests(context, now))
    }

    fn try_collect(&mut self, now: Duration) {
        let shared = Arc::clone(&self.context);
        if let Some(mut context) = shared.try_lock() {
            self.guarded_in(&mut context, &mut |runner, context| runner.collect_requests(context, now));
        }
    }

    fn inbox(&self) -> Option<&Arc<RequestInbox>> {
        Some(&self.inbox)
    }

    fn make_room(&mut self, tokens: usize, sequence: Option<SequenceId>) {
        let context = Arc::clone(&self.context);
        let mut context = context.lock();
        match sequence {
            // If there is not enough, the pass says so.
            Some(sequence) => _ = self.cache.reserve_in(&mut context, sequence, tokens),
            None => self.cache.make_room(&mut context, tokens),
        }
    }

    fn trim(&mut self) {
        self.guarded(&mut |runner, context| {
            runner.cache.clear_prefixes(context);
            context.trim();
            true
        });
    }

    fn has_work(&self) -> bool {
        !self.active.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.active.is_empty() && lock(&self.inbox.submissions).is_empty()
    }

    fn step(&mut self, now: Duration, clock: &dyn Fn() -> Duration) -> bool {
        let has_ended = self.wait_for_sessions() && self.collect(now);
        self.guarded(&mut |runner, context| runner.run_pass(context, now, clock)) | has_ended
    }

    fn close(&mut self, is_over: &dyn Fn() -> bool) {
        self.guarded(&mut |runner, context| {
            runner.cache.write_to_store(context, is_over);
            runner.cache.clear(context);
            true
        });
    }
}

impl DecoderRunner {
    pub(super) fn new(context: Arc<FairMutex<Context>>, inbox: Arc<RequestInbox>) -> Self {
        let locked = context.lock();
        let cache = RequestCache::new(&locked, inbox.options.prefix_cache, inbox.store.clone());
        let limits = limits(&locked, &inbox.options);
        drop(locked);
        let scheduler = Scheduler::new(limits);
        let drafted = Vec::with_capacity(scheduler.max_running() * (1 + MAX_DRAFTS));
        Self {
            context,
            limits,
            scheduler,
            cache,
            inbox,
            active: RequestMap::default(),
            plan: StepPlan::default(),
            drafted,
            entries: Vec::new(),
            ended: Vec::new(),
            stats: SchedulerStats::default(),
            sessions_awaited: 0,
            last_pass: Duration::ZERO,
        }
    }

    fn stats(&self, context: &Context) -> SchedulerStats {
        let (kv_blocks, free_kv_blocks) = context.block_table().block_counts();
        let (running, waiting) = self.scheduler.counts();
        SchedulerStats {
            paused: self.active.iter().filter(|(_, request)| request.paused_since.is_some()).count(),
            running,
            waiting,
            kv_blocks,
            free_kv_blocks,
            cached_prefixes: self.cache.prefixes(),
            prefix_queried_tokens: self.cache.stats.queried_tokens,
            prefix_hit_tokens: self.cache.stats.hit_tokens,
            prefix_restored_tokens: self.cache.stats.restored_tokens,
            ..self.stats
        }
    }

    /// Calls `work`, with the context locked.
    fn guarded(&mut self, work: &mut dyn FnMut(&mut Self, &mut Context) -> bool) -> bool {
        let shared = Arc::clone(&self.context);
        self.guarded_in(&mut shared.lock(), work)
    }

    /// Calls `work`. If it panics, all requests fail: neither their sequences nor the schedule can be relied on.
    fn guarded_in(
        &mut self,
        context: &mut Context,
        work: &mut dyn FnMut(&mut Self, &mut Context) -> bool,
    ) -> bool {
        lock(&self.inbox.removed).drain(..).for_each(|sequence| context.remove(sequence));
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self, context)));
        let done = outcome.unwrap_or_else(|_| {
            lock(&self.inbox.pass).clear();
            self.scheduler = Scheduler::new(self.limits);
            self.cache.clear(context);
            for mut request in self.active.drain() {
                let outcome = RequestOutcome::Failed(internal_error());
                let _ = catch_unwind(AssertUnwindSafe(|| request.sampler.finish(outcome)));
            }
            let submissions = lock(&self.inbox.submissions);
            self.inbox.waiting.store(submissions.len(), Ordering::Release);
            drop(submissions);
            true
        });
        let wait = self.scheduler.predicted_wait().as_micros();
        self.inbox.predicted_wait.store(u64::try_from(wait).unwrap_or(u64::MAX), Ordering::Relaxed);
        *lock(&self.inbox.stats) = self.stats(context);
        done
    }

    /// Waits a moment for the next tokens of sessions that were in the last pass, which other threads choose: otherwise
    /// they would miss every second pass. Returns whether any came.
    fn wait_for_sessions(&mut self) -> bool {
        let sessions = std::mem::take(&mut self.sessions_awaited);
        let limit = (self.last_pass / SESSION_WAIT_DIVISOR).min(MAX_SESSION_WAIT);
        let start = Instant::now();
        let arrived = || lock(&self.inbox.submissions).len();
        while arrived() < sessions && start.elapsed() < limit {
            thread::yield_now();
        }
        arrived() > 0
    }

    fn collect_requests(&mut self, context: &mut Context, now: Duration) -> bool {
        let submissions = std::mem::take(&mut *lock(&self.inbox.submissions));
        for Submission { spec, sampler, salt, stored, cancel, arrival } in submissions {
            let (prompt_length, session) = (spec.tokens.len(), spec.append_to.map(|end| end.sequence));
            let scores_prompt = spec.scores_prompt;
            self.sessions_awaited = self.sessions_awaited.saturating_sub(usize::from(session.is_some()));
            let cached = self.cache.cached_length(salt, &spec, stored.as_ref());
            let id = self.scheduler.submit(arrival, spec, cached);
            self.cache.insert(id, salt, prompt_length, stored, session, scores_prompt);
            self.active.insert(id, ActiveRequest { sampler, cancel, has_started: false, paused_since: None });
        }
        let mut ended = std::mem::take(&mut self.ended);
        let pause_limit = self.inbox.options.pause_limit;
        let is_closed = self.inbox.is_closed.load(Ordering::Acquire);
        for (id, request) in self.active.iter_mut() {
            let is_paused = !request.sampler.has_room();
            request.paused_since = is_paused.then(|| request.paused_since.unwrap_or(now));
            self.scheduler.set_paused(id, is_paused);
            let is_abandoned =
                request.paused_since.is_some_and(|since| now.saturating_sub(since) > pause_limit);
            if request.cancel.is_canceled() || is_closed {
                ended.push((id, RequestOutcome::Canceled));
            } else if is_abandoned {
                ended.push((id, RequestOutcome::ReaderTooSlow));
            }
        }
        ended.extend(self.scheduler.expired(now).map(|id| (id, RequestOutcome::DeadlineExceeded)));
        self.end(context, ended)
    }

    fn run_pass(&mut self, context: &mut Context, now: Duration, clock: &dyn Fn() -> Duration) -> bool {
        let waiting = self.scheduler.counts().1;
        self.requeue_outgrown(context, now);
        let mut space = RequestSpace { cache: &mut self.cache, context };
        self.scheduler.plan(now, &mut space, &mut self.plan);
        let active = &mut self.active;
        self.scheduler.speculate(&mut space, &mut self.plan, &mut |id, tokens, budget, drafts| {
            if let Some(request) = active.get_mut(id) {
                request.sampler.propose(tokens, budget, drafts);
            }
        });
        self.count_waiting(waiting);
        self.stats.preemptions += self.plan.preempted.len() as u64;
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.plan.rejected.iter().map(|id| (*id, RequestOutcome::Failed(too_large()))));
        if self.plan.entries.is_empty() {
            return self.end(context, ended);
        }
        let plan = std::mem::take(&mut self.plan);
        self.run_entries(context, &plan, clock, &mut ended);
        self.plan = plan;
        self.end(context, ended);
        true
    }

    /// Runs the entries of a plan in one pass; if it fails, each by itself, so that only those fail that cause it.
    fn run_entries(
        &mut self,
        context: &mut Context,
        plan: &StepPlan,
        clock: &dyn Fn() -> Duration,
        ended: &mut Ended,
    ) {
        for entry in &plan.entries {
            let new = self.active.get_mut(entry.request).filter(|request| !request.has_started);
            if let Some(request) = new {
                request.has_started = true;
                request.sampler.start(entry.from);
            }
        }
        let start = clock();
        match self.forward(context, plan) {
            Ok(()) => self.commit(context, plan, clock().saturating_sub(start), ended),
            Err(error) if error.kind() == ErrorKind::Canceled => {}
            Err(error) => match plan.entries.as_slice() {
                [entry] if entry.drafts == 0 => {
                    ended.push((entry.request, RequestOutcome::Failed(error)));
                }
                entries => {
                    for entry in entries {
                        let mut single = StepPlan::default();
                        // Without draft tokens: what they caused is no failure of the request.
                        single.push(StepEntry { drafts: 0, ..*entry });
                        self.run_entries(context, &single, clock, ended);
                    }
                }
            },
        }
    }

    /// Runs the rows of a plan.
    fn forward(&mut self, context: &mut Context, plan: &StepPlan) -> Result<()> {
        let Self { cache, scheduler, active, inbox, drafted, .. } = self;
        let mut entries: Vec<BatchEntry<'_>> = recycled(std::mem::take(&mut self.entries));
        // The last token of each entry with draft tokens, and these.
        drafted.clear();
        let mut drafts = plan.drafts.as_slice();
        for entry in plan.entries.iter().filter(|entry| entry.drafts > 0) {
            let (own, rest) = drafts.split_at(entry.drafts);
            let token = scheduler.request(entry.request).and_then(|request| request.tokens.last());
            drafted.extend(token);
            drafted.extend_from_slice(own);
            drafts = rest;
        }
        let mut drafted = drafted.as_slice();
        let mut pass = lock(&inbox.pass);
        for entry in &plan.entries {
            let request = active.get(entry.request).zip(scheduler.request(entry.request));
            let Some(((request, state), sequence)) = request.zip(cache.sequence(entry.request)) else {
                pass.clear();
                return Err(internal_error());
            };
            let (tokens, outputs) = match entry.drafts {
                0 => (&state.tokens[entry.from..entry.from + entry.count], entry.output_rows()),
                count => {
                    let (own, rest) = drafted.split_at(1 + count);
                    drafted = rest;
                    (own, OutputRows::All)
                }
            };
            let cancel = Some(&request.cancel);
            let adapter = state.adapter;
            entries.push(BatchEntry { cancel, adapter, ..BatchEntry::new(sequence, tokens, outputs) });
            pass.push(request.cancel.clone());
        }
        // A cancellation before this point did not see the pass.
        let is_canceled = pass.iter().all(CancelHandle::is_canceled);
        drop(pass);
        let outcome = match is_canceled {
            true => Err(Error::canceled("request")),
            false => {
                // Sessions use handles of their own between passes.
                context.set_cancel_handle(&inbox.abort);
                context.forward(&entries)
            }
        };
        lock(&inbox.pass).clear();
        self.entries = recycled(entries);
        outcome
    }

    /// Restarts requests that outgrew the length for which their keys were rotated.
    fn requeue_outgrown(&mut self, context: &mut Context, now: Duration) {
        let Self { active, scheduler, cache, .. } = self;
        for (id, _) in active.iter() {
            if scheduler.request(id).is_some_and(|state| cache.is_outgrown(id, state.tokens.len())) {
                scheduler.requeue(now, id, &mut RequestSpace { cache, context });
            }
        }
    }

    /// Ends requests; false if there were none.
    fn end(&mut self, context: &mut Context, mut ended: Ended) -> bool {
        let any = !ended.is_empty();
        for (id, outcome) in ended.drain(..) {
            let has_failed = matches!(outcome, RequestOutcome::Failed(_));
            if let Some(request) = self.active.get_mut(id) {
                request.sampler.finish(outcome);
                self.remove(context, id, has_failed);
            }
        }
        self.ended = ended;
        any
    }

    fn remove(&mut self, context: &mut Context, id: RequestId, has_failed: bool) {
        let waiting = self.scheduler.counts().1;
        let mut space = RequestSpace { cache: &mut self.cache, context };
        self.scheduler.finish(id, has_failed, &mut space);
        self.cache.remove(context, id);
        self.active.remove(id);
        self.count_waiting(waiting);
    }

    /// Counts the requests that wait, of which there were `before`.
    fn count_waiting(&self, before: usize) {
        let after = self.scheduler.counts().1;
        self.inbox.waiting.fetch_sub(before.saturating_sub(after), Ordering::AcqRel);
        self.inbox.waiting.fetch_add(after.saturating_sub(before), Ordering::AcqRel);
    }
}

fn limits(context: &Context, options: &SchedulingOptions) -> StepLimits {
    let (max_rows, max_output_rows) = context.decoder_limits();
    StepLimits {
        max_rows,
        max_output_rows,
        max_running: options.max_running.min(context.block_table().layout().max_decoding_sequences()),
        request: request_limits(context),
        decode_budget: options.decode_budget,
        admission: options.admission,
    }
}

pub(super) fn request_limits(context: &Context) -> RequestLimits {
    RequestLimits {
        context_length: context.block_table().context_length(),
        vocabulary: context.model().config.vocabulary,
        adapters: context.model().adapters().len(),
    }
}

/// Empties a vector of entries, and keeps its memory for entries of another lifetime.
#[expect(clippy::unnecessary_filter_map, reason = "a filter would keep the lifetime")]
fn recycled<'a>(mut entries: Vec<BatchEntry<'_>>) -> Vec<BatchEntry<'a>> {
    entries.clear();
    // Collected in place, since both types have the same layout.
    entries.into_iter().filter_map(|_| None).collect()
}

fn too_large() -> Error {
    let message =
        "the KV cache has no room for it, beside what sessions hold; use a larger budget or fewer tokens";
    Error::new(ErrorKind::Memory, "request", message)
}

pub(super) fn internal_error() -> Error {
    Error::new(
        ErrorKind::State,
        "engine",
        "internal error, please report it; all requests of the model failed",
    )
}
