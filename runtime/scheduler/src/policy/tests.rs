//! Simulations: the scheduler with memory that only counts, and passes that take the time that a formula says.

use std::collections::HashMap;

use super::*;
use crate::request::ClientId;

/// Memory in tokens. What is released stays as a cached prefix of the same request until it is reclaimed.
struct FakeSpace {
    pool: usize,
    /// The tokens that each request has, and those that it has room for.
    held: HashMap<RequestId, (usize, usize)>,
    cached: Vec<(RequestId, usize)>,
}

impl FakeSpace {
    fn new(pool: usize) -> Self {
        Self { pool, held: HashMap::new(), cached: Vec::new() }
    }

    fn used(&self) -> usize {
        self.running() + self.cached.iter().map(|(_, tokens)| tokens).sum::<usize>()
    }

    fn running(&self) -> usize {
        self.held.values().map(|(_, room)| room).sum()
    }

    /// Frees cached prefixes if there can be `count` free tokens.
    fn free(&mut self, count: usize) -> bool {
        if self.running() + count > self.pool {
            return false;
        }
        while self.used() + count > self.pool {
            self.cached.remove(0);
        }
        true
    }
}

impl KvSpace for FakeSpace {
    fn admit(&mut self, request: RequestId, tokens: &[u32], room: usize) -> Option<usize> {
        assert!(!self.held.contains_key(&request), "admitted twice");
        let hit = self.cached.iter().position(|(of, _)| *of == request).map(|at| self.cached.swap_remove(at));
        let cached = hit.map_or(0, |(_, cached)| cached).min(tokens.len() - 1);
        if !self.free(room) {
            self.cached.extend(hit);
            return None;
        }
        self.held.insert(request, (cached, room));
        Some(cached)
    }

    fn reserve(&mut self, request: RequestId, count: usize) -> bool {
        let (tokens, room) = self.held[&request];
        let more = (tokens + count).saturating_sub(room);
        let fits = self.free(more);
        if fits {
            self.held.insert(request, (tokens + count, room + more));
        }
        fits
    }

    fn max_drafts(&self, _: RequestId, _: &[u32]) -> usize {
        usize::MAX
    }

    fn release(&mut self, request: RequestId, tokens: &[u32]) {
        assert!(self.held.remove(&request).is_some(), "released without memory");
        if !tokens.is_empty() {
            self.cached.push((request, tokens.len()));
        }
    }
}

fn limits() -> StepLimits {
    StepLimits {
        max_rows: 256,
        max_output_rows: 32,
        max_running: 16,
        request: RequestLimits { context_length: 4096, vocabulary: 100, adapters: 0 },
        decode_budget: Duration::from_millis(15),
        admission: Admission::Guarantee,
    }
}

fn prompt(length: usize, max_tokens: usize) -> RequestSpec {
    RequestSpec { tokens: vec![1; length], max_tokens, ..RequestSpec::default() }
}

/// Runs all requests to their end; returns when each had its first token and when it ended.
struct Simulation {
    scheduler: Scheduler,
    space: FakeSpace,
    now: Duration,
    plan: StepPlan,
    first: HashMap<RequestId, Duration>,
    ended: HashMap<RequestId, Duration>,
    longest_decode_step: Duration,
    service: HashMap<ClientId, Duration>,
}

impl Simulation {
    fn new(limits: StepLimits, pool: usize) -> Self {
        Self {
            scheduler: Scheduler::new(limits),
            space: FakeSpace::new(pool),
            now: Duration::ZERO,
            plan: StepPlan::default(),
            first: HashMap::new(),
            ended: HashMap::new(),
            longest_decode_step: Duration::ZERO,
            service: HashMap::new(),
        }
    }

    fn submit(&mut self, spec: RequestSpec) -> RequestId {
        self.scheduler.submit(self.now, spec, 0)
    }

    /// Runs one pass; false if there was nothing to run.
    fn step(&mut self) -> bool {
        self.scheduler.plan(self.now, &mut self.space, &mut self.plan);
        assert!(self.space.used() <= self.space.pool, "more memory than there is");
        assert!(self.plan.rejected.is_empty(), "rejected {:?}", self.plan.rejected);
        let StepPlan { entries, rows, positions, .. } = &self.plan;
        let limits = self.scheduler.limits;
        assert!(*rows <= limits.max_rows && self.plan.output_rows <= limits.max_output_rows);
        let mut seen: Vec<_> = entries.iter().map(|entry| entry.request).collect();
        seen.sort_unstable_by_key(|id| id.slot);
        seen.dedup();
        assert_eq!(seen.len(), entries.len(), "a request has two entries");
        if entries.is_empty() {
            return false;
        }
        let elapsed = Duration::from_micros(2000 + *rows as u64 * 200 + *positions as u64 / 100);
        if entries.iter().any(|entry| entry.count == 1 && entry.outputs == 1) {
            self.longest_decode_step = self.longest_decode_step.max(elapsed);
        }
        self.now += elapsed;
        self.scheduler.commit(&self.plan, elapsed);
        for entry in self.plan.entries.clone() {
            let request = self.scheduler.request(entry.request).unwrap();
            assert_eq!(request.computed, entry.from + entry.count);
            let share = elapsed.mul_f64(entry.count as f64 / self.plan.rows as f64);
            *self.service.entry(request.client).or_default() += share;
            if entry.outputs > 0 {
                self.first.entry(entry.request).or_insert(self.now);
                if !self.scheduler.append(entry.request, 7) {
                    self.scheduler.finish(entry.request, false, &mut self.space).unwrap();
                    self.ended.insert(entry.request, self.now);
                }
            }
        }
        true
    }

    fn run(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 1_000_000, "does not end");
        }
        assert_eq!(self.scheduler.counts(), (0, 0), "requests are left");
        assert!(self.space.held.is_empty(), "memory is left");
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn prompts_are_processed_in_chunks_beside_decoding_requests() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    let chats: Vec<_> = (0..4).map(|_| simulation.submit(prompt(16, 400))).collect();
    for _ in 0..100 {
        simulation.step();
    }
    simulation.longest_decode_step = Duration::ZERO;
    let long = simulation.submit(prompt(4000, 8));
    simulation.run();
    let budget = limits().decode_budget;
    assert!(simulation.longest_decode_step <= budget.mul_f64(1.2), "{:?}", simulation.longest_decode_step);
    assert!(simulation.ended[&long] < simulation.ended[&chats[0]], "the prompt waited for the chats");
}

/// Requests that cannot run keep others out neither by their number nor by their memory.
#[test]
fn shadow_and_paused_requests_make_room() {
    for (max_running, pool) in [(2, 1 << 20), (16, 420)] {
        let mut simulation = Simulation::new(StepLimits { max_running, ..limits() }, pool);
        let shadow = RequestSpec { class: RequestClass::Shadow, ..prompt(100, 100) };
        let idle = [simulation.submit(shadow), simulation.submit(prompt(100, 100))];
        for _ in 0..3 {
            simulation.step();
        }
        simulation.scheduler.set_paused(idle[1], true);
        let others = [simulation.submit(prompt(100, 100)), simulation.submit(prompt(100, 100))];
        while !others.iter().all(|other| simulation.ended.contains_key(other)) {
            assert!(simulation.step(), "others wait for requests that cannot run");
        }
        assert!(idle.iter().all(|idle| !simulation.ended.contains_key(idle)));
        simulation.scheduler.set_paused(idle[1], false);
        simulation.run();
    }
}

/// A short prompt overtakes a long one that came before it, and passes with it may take twice the budget.
#[test]
fn short_prompts_overtake_long_ones() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    // What passes cost is known.
    for rows in [16, 32, 64, 128, 256] {
        simulation.submit(prompt(rows, 1));
        simulation.step();
    }
    simulation.submit(prompt(16, 2000));
    for _ in 0..100 {
        simulation.step();
    }
    let long = simulation.submit(prompt(4000, 1));
    for _ in 0..3 {
        simulation.step();
    }
    simulation.longest_decode_step = Duration::ZERO;
    let later = simulation.submit(prompt(4000, 1));
    let short = simulation.submit(prompt(250, 1));
    for _ in 0..3 {
        simulation.step();
    }
    let budget = limits().decode_budget;
    let longest = simulation.longest_decode_step;
    assert!(simulation.first.contains_key(&short), "it waits for the long prompt");
    assert!(budget.mul_f64(1.5) < longest && longest <= budget.mul_f64(2.2), "{longest:?}");
    simulation.longest_decode_step = Duration::ZERO;
    for _ in 0..10 {
        simulation.step();
    }
    assert!(![long, later].iter().any(|id| simulation.first.contains_key(id)), "they are not long");
    assert!(simulation.longest_decode_step <= budget.mul_f64(1.2), "{:?}", simulation.longest_decode_step);
    simulation.run();
}

/// What a prompt is expected to take is that of its tokens that are not cached.
#[test]
fn long_prompts_with_a_cached_prefix_are_short() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    simulation.submit(prompt(256, 1));
    simulation.run();
    let submit = |simulation: &mut Simulation, cached| {
        let id = simulation.scheduler.submit(simulation.now, prompt(4000, 1), cached);
        simulation.scheduler.request(id).unwrap().due - simulation.now
    };
    let (long, short) = (submit(&mut simulation, 0), submit(&mut simulation, 3900));
    assert!(long > Duration::from_secs(2) && short < Duration::from_millis(200), "{long:?} {short:?}");
}

/// However many shorter prompts arrive after a long one, that has its turn.
#[test]
fn long_prompts_are_overtaken_for_a_limited_time() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    for _ in 0..20 {
        simulation.submit(prompt(200, 4));
        simulation.step();
    }
    let (long, arrived) = (simulation.submit(prompt(4000, 1)), simulation.now);
    let mut shorter = 0;
    while !simulation.first.contains_key(&long) {
        // More than there is time for.
        simulation.submit(prompt(200, 4));
        shorter += 1;
        simulation.step();
        assert!(shorter < 1000, "it starves");
    }
    let waited = simulation.now - arrived;
    assert!(waited < Duration::from_secs(10) && shorter > 20, "{waited:?} {shorter}");
    simulation.run();
}

#[test]
fn a_prompt_alone_fills_whole_batches() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    simulation.submit(prompt(1000, 1));
    for _ in 0..4 {
        assert!(simulation.step());
    }
    assert!(!simulation.step(), "more passes than full batches");
}

#[test]
fn random_requests_all_end_within_memory() {
    for admission in [Admission::Guarantee, Admission::Overcommit] {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let mut simulation = Simulation::new(StepLimits { admission, ..limits() }, 6000);
        let mut submitted = 0;
        while submitted < 400 {
            if random(&mut state).is_multiple_of(3) && simulation.scheduler.counts().1 < 200 {
                let length = 1 + random(&mut state) as usize % 700;
                let max_tokens = 1 + random(&mut state) as usize % 100;
                let class = match random(&mut state) % 4 {
                    0 => RequestClass::Interactive,
                    1 => RequestClass::Batch,
                    _ => RequestClass::Normal,
                };
                let client = ClientId(random(&mut state) % 5);
                simulation.submit(RequestSpec { class, client, ..prompt(length, max_tokens) });
                submitted += 1;
            }
            simulation.step();
        }
        simulation.run();
        assert_eq!(simulation.ended.len(), submitted);
    }
}

#[test]
fn clients_with_a_backlog_get_equal_shares() {
    let mut simulation = Simulation::new(StepLimits { max_running: 4, ..limits() }, 1 << 20);
    // One client asks for much more than the other, and earlier.
    for index in 0..120 {
        let client = ClientId(u64::from(index % 6 == 5));
        let length = if client.0 == 0 { 400 } else { 100 };
        simulation.submit(RequestSpec { client, ..prompt(length, 20) });
    }
    while simulation
        .scheduler
        .waiting
        .iter()
        .any(|id| simulation.scheduler.request(*id).unwrap().client.0 == 1)
    {
        simulation.step();
    }
    let share = |client| simulation.service[&ClientId(client)].as_secs_f64();
    let ratio = share(0) / share(1);
    assert!((0.5..2.0).contains(&ratio), "shares differ by {ratio}");
}

#[test]
fn classes_come_first_and_waiting_moves_up() {
    let mut simulation = Simulation::new(StepLimits { max_running: 1, ..limits() }, 1 << 20);
    let batch = simulation.submit(RequestSpec { class: RequestClass::Batch, ..prompt(64, 16) });
    let normal = simulation.submit(prompt(64, 16));
    let urgent = simulation.submit(RequestSpec { class: RequestClass::Interactive, ..prompt(64, 16) });
    let shadow = simulation.submit(RequestSpec { class: RequestClass::Shadow, ..prompt(64, 16) });
    for _ in 0..20_000 {
        // Interactive requests keep arriving; the batch request ends all the same.
        if simulation.ended.contains_key(&batch) {
            break;
        }
        if simulation.scheduler.counts().1 < 8 {
            simulation.submit(RequestSpec { class: RequestClass::Interactive, ..prompt(512, 400) });
        }
        simulation.step();
    }
    let ended = &simulation.ended;
    assert!(ended[&urgent] < ended[&normal] && ended[&normal] < ended[&batch]);
    assert!(!ended.contains_key(&shadow), "shadow requests run when nothing else does");
}

/// Requests whose prompts are short start together, even when decoding takes longer than the budget of a pass.
#[test]
fn short_prompts_start_in_one_pass_beside_slow_decoding() {
    let limits = StepLimits { decode_budget: Duration::from_micros(1), max_running: 64, ..limits() };
    let mut simulation = Simulation::new(limits, 1 << 20);
    for _ in 0..8 {
        simulation.submit(prompt(1, 2000));
    }
    for _ in 0..50 {
        simulation.step();
    }
    for _ in 0..16 {
        simulation.submit(prompt(3, 100));
    }
    for _ in 0..10 {
        simulation.step();
    }
    assert_eq!(simulation.scheduler.counts(), (24, 0));
}

#[test]
fn the_predicted_wait_is_that_for_the_prompts_before() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    assert_eq!(simulation.scheduler.predicted_wait(), Duration::ZERO);
    simulation.submit(prompt(4000, 1));
    simulation.step();
    assert!(simulation.scheduler.predicted_wait() > Duration::from_millis(100));
    simulation.run();
    assert_eq!(simulation.scheduler.predicted_wait(), Duration::ZERO);
}

#[test]
fn paused_requests_are_not_scheduled() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    let slow = simulation.submit(prompt(16, 8));
    simulation.step();
    simulation.scheduler.set_paused(slow, true);
    let other = simulation.submit(prompt(16, 8));
    while simulation.step() {}
    assert!(simulation.ended.contains_key(&other) && !simulation.ended.contains_key(&slow));
    simulation.scheduler.set_paused(slow, false);
    simulation.run();
    assert!(simulation.ended.contains_key(&slow));
}

#[test]
fn shadow_requests_stand_back_whenever_others_run() {
    let mut simulation = Simulation::new(limits(), 1 << 20);
    let shadow = simulation.submit(RequestSpec { class: RequestClass::Shadow, ..prompt(64, 400) });
    for _ in 0..5 {
        simulation.step();
    }
    let before = simulation.scheduler.request(shadow).unwrap().computed;
    assert!(before >= 64, "nothing else ran");
    let other = simulation.submit(prompt(64, 50));
    while !simulation.ended.contains_key(&other) {
        simulation.step();
    }
    assert_eq!(simulation.scheduler.request(shadow).unwrap().computed, before);
    simulation.run();
    assert!(simulation.ended.contains_key(&shadow));
}

#[test]
fn prompts_are_processed_beside_as_many_decoding_requests_as_fit() {
    let mut simulation = Simulation::new(StepLimits { max_rows: 32, max_running: 64, ..limits() }, 1 << 20);
    let decoding: Vec<_> = (0..15).map(|_| simulation.submit(prompt(1, 2000))).collect();
    for _ in 0..100 {
        simulation.step();
    }
    let long = simulation.submit(RequestSpec { class: RequestClass::Interactive, ..prompt(640, 1) });
    simulation.run();
    assert!(simulation.ended[&long] < simulation.ended[&decoding[0]]);
}

/// Decodes one request, of whose draft tokens the first `right` are, for passes that take `cost`; returns the mean number of
/// draft tokens per pass.
fn drafts_per_pass(right: usize, cost: fn(usize) -> u64, passes: usize) -> f64 {
    let mut scheduler = Scheduler::new(limits());
    let mut space = FakeSpace::new(1 << 20);
    let id = scheduler.submit(Duration::ZERO, prompt(1, 4000), 0);
    let mut plan = StepPlan::default();
    let mut drafts = 0;
    for _ in 0..passes {
        scheduler.plan(Duration::ZERO, &mut space, &mut plan);
        scheduler.speculate(&mut space, &mut plan, &mut |_, tokens, budget, drafts| {
            assert_eq!(tokens.last(), Some(&1));
            // More than allowed, and one outside of the vocabulary.
            drafts.extend(std::iter::repeat_n(1, budget.limit).chain([100, 1]));
        });
        let entry = plan.entries[0];
        assert_eq!((plan.drafts.len(), plan.rows), (entry.drafts, 1 + entry.drafts));
        assert_eq!(plan.output_rows, plan.rows);
        drafts += entry.drafts;
        scheduler.commit(&plan, Duration::from_micros(cost(plan.rows)));
        let accepted = entry.drafts.min(right);
        (0..=accepted).for_each(|_| assert!(scheduler.append(id, 1)));
        scheduler.accept(id, entry.drafts, accepted);
        let state = scheduler.request(id).unwrap();
        assert!(state.decodes(), "{state:?}");
    }
    drafts as f64 / passes as f64
}

#[test]
fn drafts_are_used_while_they_pay() {
    let flat = |rows: usize| 1000 + 50 * rows as u64;
    assert!(drafts_per_pass(8, flat, 300) > 7.0, "all are right, and rows cost little");
    let two = drafts_per_pass(2, flat, 300);
    assert!((1.8..3.5).contains(&two), "two are right: {two}");
    let none = drafts_per_pass(0, flat, 640);
    assert!((0.005..0.25).contains(&none), "none are right, and one is tried now and then: {none}");
    let linear = |rows: usize| 1000 * rows as u64;
    assert!(drafts_per_pass(8, linear, 300) < 0.5, "a row costs as much as a pass");
}
