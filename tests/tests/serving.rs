//! Requests that share batches and prefixes have the tokens that they would have had alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod disk_cache;
mod sessions;
mod soak;
mod structured_output;

use siskin::sample::SamplerOptions;
use siskin::serving::{
    Admission, CacheSalt, DraftBudget, DraftModel, DraftModelProposer, Drive, Engine, EngineMemory,
    EngineOptions, GenerationEvent, GenerationRequest, GenerationStream, ModelId, PromptInput, Proposer,
    RequestClass, SchedulingOptions, ServedModelOptions, Speculation, StreamEnd,
};
use siskin::{
    CpuFeatures, DeviceKind, ErrorKind, FinishReason, GenerateOptions, KvBudget, Model, ModelOptions,
    SessionOptions,
};
use siskin_tests::extent::cases;
use siskin_tests::golden::{self, load, model};
use siskin_tests::random::Random;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Full attention, windows, sinks, recurrent states, RoPE that depends on the length, convolutions, experts.
const SHORT: [&str; 8] =
    ["llama", "gemma3", "gpt-oss", "qwen3-next", "llama-dynamic", "phi3", "lfm2", "mixtral"];

/// A generated token: its id and the bits of its log-probability.
pub(crate) type Generated = (u32, u32);

trait RandomRequests {
    /// Prompts of 1 to 60 tokens, many of which begin as others do; greedy or random, with penalties; with any of the
    /// model's adapters, or none.
    fn request(&mut self, model: &Model) -> GenerationRequest;
}

impl RandomRequests for Random {
    fn request(&mut self, model: &Model) -> GenerationRequest {
        let vocabulary = model.config().vocabulary;
        let (text, shared, own) = (self.next(3), self.next(40), 1 + self.next(20));
        let mut tokens: Vec<u32> =
            (0..shared).map(|index| ((index * 7 + text * 31) % vocabulary) as u32).collect();
        tokens.extend((0..own).map(|_| self.next(vocabulary) as u32));
        let sampler = SamplerOptions {
            seed: self.next(1000) as u64,
            temperature: if self.next(2) == 0 { 0.0 } else { 1.0 },
            repetition_penalty: if self.next(2) == 0 { 1.0 } else { 1.3 },
            log_probabilities: true,
            ..SamplerOptions::default()
        };
        let max_tokens = 1 + self.next(24);
        let speculation = match self.next(5) {
            0 => Speculation::Off,
            1 => Speculation::Ngram,
            4 => Speculation::Auto,
            2 => Speculation::Custom(|| Box::new(Repeats)),
            _ => Speculation::Custom(|| Box::new(Hostile(Random(7)))),
        };
        let adapters = model.adapters().map(|name| Some(name.to_owned()));
        let mut adapters: Vec<_> = std::iter::once(None).chain(adapters).collect();
        let adapter = adapters.swap_remove(self.next(adapters.len()));
        let request = GenerationRequest::new(PromptInput::Tokens(tokens));
        GenerationRequest { sampler, max_tokens, speculation, adapter, ..request }
    }
}

/// Proposes that the last token repeats, which small models often do.
struct Repeats;

impl Proposer for Repeats {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        drafts.extend(tokens.last().into_iter().cycle().take(budget.limit));
    }
}

/// Proposes anything: too many tokens, and some that do not exist.
struct Hostile(Random);

impl Proposer for Hostile {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        for _ in 0..self.0.next(2 * budget.limit + 1) {
            drafts.push(match self.0.next(8) {
                0 => u32::MAX,
                1..4 => tokens[self.0.next(tokens.len())],
                _ => self.0.next(64) as u32,
            });
        }
    }
}

/// Returns what a session generates without an adapter.
pub(crate) fn alone(model: &Model, request: &GenerationRequest) -> Vec<Generated> {
    let PromptInput::Tokens(tokens) = &request.prompt else { panic!("tokens") };
    let options = SessionOptions {
        context: context(model),
        sampler: request.sampler.clone(),
        ..SessionOptions::default()
    };
    let mut session = model.session(options).unwrap();
    let options = GenerateOptions { max_tokens: request.max_tokens, ..GenerateOptions::default() };
    let mut generation = session.begin_tokens(tokens, options).unwrap();
    let (mut text, mut all) = (String::new(), Vec::new());
    while let Some(step) = generation.step(&mut session, &mut text).unwrap() {
        if let siskin::GenerationStep::Token(token) = step {
            all.push((token.id, token.log_probability.to_bits()));
        }
    }
    all
}

fn generated(stream: GenerationStream) -> (Vec<Generated>, StreamEnd) {
    let mut all = Vec::new();
    for event in stream {
        match event {
            GenerationEvent::Prompt { .. } => {}
            GenerationEvent::Token { token, .. } => all.push((token.id, token.log_probability.to_bits())),
            GenerationEvent::End { end, .. } => return (all, end),
        }
    }
    panic!("a stream ends with an event")
}

/// The length of the longest requests.
fn context(model: &Model) -> usize {
    model.config().context.min(100)
}

pub(crate) fn options(model: &Model, scheduling: SchedulingOptions, batch: usize) -> ServedModelOptions {
    let session = SessionOptions { context: context(model), batch, ..SessionOptions::default() };
    ServedModelOptions { session, scheduling, ..ServedModelOptions::default() }
}

fn engine(model: &Model, drive: Drive, options: &ServedModelOptions) -> (Engine, ModelId) {
    let engine = Engine::new(EngineOptions { threads: 2, drive, ..EngineOptions::default() }).unwrap();
    let id = engine.add_model(model, options).unwrap();
    (engine, id)
}

/// Submits `count` random requests at random moments, cancels some, and compares all others with themselves
/// alone. Returns how many tokens were drafted, and how many of them were right.
fn compare(name: &str, model: &Model, options: &ServedModelOptions, seed: u64, count: usize) -> (u64, u64) {
    compare_with(name, model, options, (seed, count), &|request| alone(model, request))
}

/// The same, with results from `alone`.
pub(crate) fn compare_with(
    name: &str,
    model: &Model,
    options: &ServedModelOptions,
    (seed, count): (u64, usize),
    alone: &dyn Fn(&GenerationRequest) -> Vec<Generated>,
) -> (u64, u64) {
    let mut random = Random(seed);
    let (engine, id) = engine(model, Drive::Caller, options);
    let mut open: Vec<(GenerationRequest, GenerationStream, Vec<Generated>)> = Vec::new();
    let mut submitted = 0;
    while submitted < count || !open.is_empty() {
        if submitted < count && random.next(3) == 0 {
            let request = random.request(model);
            let stream = engine.submit(id, request.clone()).unwrap();
            submitted += 1;
            if random.next(8) == 0 {
                stream.cancel();
            } else {
                open.push((request, stream, Vec::new()));
            }
        }
        let at = random.next(open.len());
        let Some((request, stream, tokens)) = open.get_mut(at) else { continue };
        match stream.next_event().unwrap() {
            GenerationEvent::Prompt { .. } => {}
            GenerationEvent::Token { token, .. } => {
                tokens.push((token.id, token.log_probability.to_bits()));
            }
            GenerationEvent::End { end, usage, .. } => {
                assert!(matches!(end, StreamEnd::Finished(_)), "{name}: {end:?}");
                assert_eq!(usage.generated_tokens, tokens.len());
                assert!(*tokens == alone(request), "{name}, seed {seed}: {request:?}");
                open.swap_remove(at);
            }
        }
    }
    let stats = engine.stats(id).unwrap();
    assert_eq!((stats.running, stats.waiting), (0, 0), "{name}");
    (stats.drafted_tokens, stats.accepted_tokens)
}

#[test]
fn requests_have_the_tokens_that_they_have_alone() {
    let names = cases("families in an engine", golden::NAMES.iter().copied(), |name| SHORT.contains(name));
    let (mut drafted, mut accepted) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        let model = model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let seed = index as u64;
        let random = &mut Random(seed + 77);
        for admission in [Admission::Guarantee, Admission::Overcommit] {
            let scheduling = SchedulingOptions {
                admission,
                max_running: 2 + random.next(6),
                decode_budget: Duration::from_micros(random.next(2000) as u64),
                ..SchedulingOptions::default()
            };
            let options = options(&model, scheduling, 8 + random.next(40));
            let drafts = compare(name, &model, &options, seed, 30);
            (drafted, accepted) = (drafted + drafts.0, accepted + drafts.1);
        }
    }
    assert!(accepted > 20 && drafted > accepted + 20, "{accepted} of {drafted} draft tokens were right");
}

#[test]
fn frequencies_that_depend_on_the_length_are_those_of_the_request() {
    // LongRoPE changes at 16 tokens, dynamic NTK scaling at the trained context.
    let longrope = siskin_tests::paths::data("golden-kinds").join("phi3-longrope");
    let longrope = golden::load_from(&longrope, None).file;
    for (name, file) in [("phi3-longrope", longrope), ("llama-dynamic", load("llama-dynamic").file)] {
        let model = model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        for batch in [8, 16, 40] {
            compare(name, &model, &options(&model, SchedulingOptions::default(), batch), batch as u64, 40);
        }
        // A long prompt is canceled in the middle; a short one that begins like it must not use its keys.
        let (engine, id) = engine(&model, Drive::Thread, &options(&model, SchedulingOptions::default(), 8));
        let tokens: Vec<u32> = (0..50).collect();
        let request = |length: usize| GenerationRequest {
            max_tokens: 4,
            sampler: SamplerOptions { log_probabilities: true, ..SamplerOptions::greedy() },
            ..GenerationRequest::new(PromptInput::Tokens(tokens[..length].to_vec()))
        };
        for length in [50, 40, 30] {
            let long = engine.submit(id, request(length)).unwrap();
            while engine.stats(id).unwrap().running == 0 && !long.has_events() {}
            drop(long);
            assert!(generated(engine.submit(id, request(15)).unwrap()).0 == alone(&model, &request(15)));
        }
    }
}

#[test]
fn windows_need_no_room_for_a_whole_context() {
    let golden = load("gemma3");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let session = SessionOptions {
        context: model.config().context,
        batch: 16,
        window: Some(siskin::StreamingWindow { window: 12, sinks: 2 }),
        ..SessionOptions::default()
    };
    let options = ServedModelOptions { session, ..ServedModelOptions::default() };
    let (engine, id) = engine(&model, Drive::Caller, &options);
    let request = |last| {
        let sampler = SamplerOptions::greedy();
        let tokens = PromptInput::Tokens(vec![3, 5, last]);
        GenerationRequest { max_tokens: usize::MAX, sampler, ..GenerationRequest::new(tokens) }
    };
    let mut streams: Vec<_> = (0..8).map(|last| engine.submit(id, request(last)).unwrap()).collect();
    for _ in 0..8 {
        streams[0].next_event().unwrap();
    }
    assert_eq!(engine.stats(id).unwrap().running, 8);
}

/// Uses all draft tokens of a draft model, also where they cost more time than they save, as with tiny models.
struct Eager(DraftModelProposer);

impl Proposer for Eager {
    fn propose(&mut self, tokens: &[u32], budget: &DraftBudget, drafts: &mut Vec<u32>) {
        self.0.propose(tokens, &DraftBudget::unlimited(budget.limit), drafts);
    }
}

#[test]
fn draft_models_change_no_token() {
    static DRAFTS: [OnceLock<DraftModel>; 2] = [OnceLock::new(), OnceLock::new()];
    let proposers: [fn() -> Box<dyn Proposer>; 2] = [
        || Box::new(Eager(DRAFTS[0].get().unwrap().proposer(100))),
        || Box::new(Eager(DRAFTS[1].get().unwrap().proposer(100))),
    ];
    let file = load("llama").file;
    let served = model(&file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let skip = siskin::LayerSet::of(&[1]).unwrap();
    let half = Model::from_file(file, &ModelOptions { threads: 2, skip, ..ModelOptions::default() }).unwrap();
    let mut options = options(&served, SchedulingOptions::default(), 32);
    for (at, draft) in [&served, &half].into_iter().enumerate() {
        let (engine, id) = engine(&served, Drive::Caller, &options);
        // Shorter batches than prompts, and less room than sequences.
        let session = SessionOptions { context: 70, batch: 16, ..SessionOptions::default() };
        let _ = DRAFTS[at].set(DraftModel::new(draft.context(&session, 8, 1).unwrap()).unwrap());
        let mut random = Random(5);
        let speculation = Speculation::Custom(proposers[at]);
        let mut requests: Vec<_> =
            (0..30).map(|_| GenerationRequest { speculation, ..random.request(&served) }).collect();
        // Draft tokens are the most likely tokens.
        requests.iter_mut().step_by(2).for_each(|request| {
            request.sampler = SamplerOptions { log_probabilities: true, ..SamplerOptions::greedy() };
            request.max_tokens = 40;
        });
        let submit = |request: &GenerationRequest| engine.submit(id, request.clone()).unwrap();
        let streams: Vec<_> = requests.iter().map(submit).collect();
        for (request, stream) in requests.iter().zip(streams) {
            assert!(generated(stream).0 == alone(&served, request), "{request:?}");
        }
        let stats = engine.stats(id).unwrap();
        // Half of the layers predict random weights worse than all of them.
        let are_used = stats.drafted_tokens > stats.accepted_tokens && stats.accepted_tokens > 5;
        assert!(are_used && (at > 0 || stats.accepted_tokens > 40), "{stats:?}");
    }
    let request = GenerationRequest {
        speculation: Speculation::Draft,
        ..GenerationRequest::new(PromptInput::Tokens(vec![1]))
    };
    let (engine, id) = engine(&served, Drive::Caller, &options);
    assert_eq!(engine.submit(id, request).err().unwrap().location(), "speculation");
    let recurrent = model(&load("qwen3-next").file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    for (served, kind) in [(&served, ErrorKind::Argument), (&recurrent, ErrorKind::Unsupported)] {
        options.draft = Some(recurrent.clone());
        let error = engine.add_model(served, &options).unwrap_err();
        assert_eq!((error.kind(), error.location()), (kind, "draft"), "other tokens, or states");
    }
}

#[test]
fn preempted_requests_continue_as_if_undisturbed() {
    for name in ["llama", "gemma3", "qwen3-next"] {
        let model = model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
        let scheduling = SchedulingOptions {
            admission: Admission::Overcommit,
            max_running: 8,
            ..SchedulingOptions::default()
        };
        let mut options = options(&model, scheduling, 32);
        // Memory for about two of eight sequences.
        let sized = |forks| SessionOptions { forks, ..options.session.clone() };
        let bytes = model.memory(&sized(1)).unwrap().cache;
        options.kv_budget = Some(KvBudget { bytes });
        compare(name, &model, &options, 5, 60);
    }
}

#[test]
fn common_prefixes_are_found_and_salts_keep_them_apart() {
    let golden = load("llama");
    let model = model(&golden.file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let (engine, id) = engine(&model, Drive::Caller, &options(&model, SchedulingOptions::default(), 64));
    let request = |salt: u8, last: u32| {
        let mut tokens: Vec<u32> = (0..70).collect();
        tokens.push(last);
        let salt = CacheSalt([salt; 16]);
        let sampler = SamplerOptions { log_probabilities: true, ..SamplerOptions::greedy() };
        GenerationRequest {
            salt,
            max_tokens: 8,
            sampler,
            ..GenerationRequest::new(PromptInput::Tokens(tokens))
        }
    };
    let hits = |salt, last| {
        let before = engine.stats(id).unwrap().prefix_hit_tokens;
        let request = request(salt, last);
        let (tokens, _) = generated(engine.submit(id, request.clone()).unwrap());
        assert!(tokens == alone(&model, &request), "a hit changes the tokens");
        engine.stats(id).unwrap().prefix_hit_tokens - before
    };
    assert_eq!(hits(0, 3), 0);
    assert_eq!(hits(0, 3), 70, "all but the last token");
    assert_eq!(hits(0, 4), 70);
    assert_eq!(hits(1, 3), 0, "another salt");
    assert_eq!(hits(1, 3), 70);
}

#[test]
fn many_threads_share_an_engine() {
    let model = model(&load("llama").file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    for drive in [Drive::Caller, Drive::Thread] {
        let (engine, id) = engine(&model, drive, &options(&model, SchedulingOptions::default(), 64));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (engine, model) = (engine.clone(), &model);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..10 {
                        let request = random.request(model);
                        let stream = engine.submit(id, request.clone()).unwrap();
                        if random.next(3) == 0 {
                            let handle = stream.handle();
                            std::thread::spawn(move || handle.cancel());
                            let (tokens, _) = generated(stream);
                            assert!(alone(model, &request).starts_with(&tokens));
                        } else {
                            assert!(generated(stream).0 == alone(model, &request));
                        }
                    }
                });
            }
        });
        let end = Instant::now() + Duration::from_secs(10);
        engine.drain(Duration::ZERO);
        while engine.stats(id).unwrap().running > 0 {
            assert!(Instant::now() < end, "canceled requests stay");
            engine.drain(Duration::from_millis(1));
        }
        let rejected = engine.submit(id, Random(0).request(&model)).map(drop);
        assert_eq!(rejected.unwrap_err().kind(), ErrorKind::Overloaded, "after draining");
    }
}

#[test]
fn two_models_share_the_threads() {
    let [first, second] =
        ["llama", "gpt2"].map(|name| model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE));
    let (engine, a) = engine(&first, Drive::Caller, &options(&first, SchedulingOptions::default(), 64));
    let b = engine.add_model(&second, &options(&second, SchedulingOptions::default(), 64)).unwrap();
    let mut random = Random(9);
    let mut requests = Vec::new();
    for index in 0..12 {
        let (id, model) = if index % 2 == 0 { (a, &first) } else { (b, &second) };
        let request = random.request(model);
        requests.push((model, request.clone(), engine.submit(id, request).unwrap()));
    }
    for (model, request, stream) in requests {
        assert!(generated(stream).0 == alone(model, &request));
    }
}

#[test]
fn models_are_replaced_within_a_memory_budget() {
    let [first, second] =
        ["llama", "gpt2"].map(|name| model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE));
    let small =
        |model: &Model| options(model, SchedulingOptions { max_running: 2, ..Default::default() }, 16);
    for drive in [Drive::Caller, Drive::Thread] {
        let measured = Engine::new(EngineOptions { threads: 2, drive, ..EngineOptions::default() }).unwrap();
        assert_eq!(measured.memory(), EngineMemory { reserved: 0, free: None });
        let [bytes, both] = [&first, &second].map(|model| {
            measured.add_model(model, &small(model)).unwrap();
            measured.memory().reserved
        });
        assert!(bytes > 10_000 && both > bytes + 10_000, "{bytes}, {both}");
        let budget = EngineOptions { threads: 2, drive, memory_budget: Some(both - 1) };
        let engine = Engine::new(budget).unwrap();
        let old = engine.add_model(&first, &small(&first)).unwrap();
        assert_eq!(engine.memory(), EngineMemory { reserved: bytes, free: Some(both - 1 - bytes) });
        let error = engine.add_model(&second, &small(&second)).unwrap_err();
        assert_eq!((error.kind(), error.location()), (ErrorKind::Memory, "budget"), "{error}");
        let request = Random(4).request(&first);
        let answer = generated(engine.submit(old, request.clone()).unwrap()).0;
        engine.trim();
        let stats = engine.stats(old).unwrap();
        assert_eq!((stats.cached_prefixes, stats.free_kv_blocks), (0, stats.kv_blocks), "{stats:?}");
        let session = engine.session(old, SessionOptions::default()).unwrap();
        let running = engine.submit(old, request.clone()).unwrap();
        engine.remove_model(old, Duration::from_secs(60)).unwrap();
        assert!(generated(running).0 == answer, "requests end before the model is removed");
        assert!(engine.stats(old).is_none() && engine.context_length(old).is_none());
        let removed = [
            engine.submit(old, request.clone()).map(drop).unwrap_err(),
            engine.remove_model(old, Duration::ZERO).unwrap_err(),
            engine.session(old, SessionOptions::default()).map(drop).unwrap_err(),
        ];
        assert!(removed.iter().all(|error| error.kind() == ErrorKind::Argument), "{removed:?}");
        let mut session = session;
        let late = session.prefill(&[1]).map(drop).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Overloaded, "{late}");
        // The session still holds the memory.
        assert!(engine.add_model(&second, &small(&second)).is_err());
        drop(session);
        let new = engine.add_model(&second, &small(&second)).unwrap();
        let request = Random(5).request(&second);
        assert!(generated(engine.submit(new, request.clone()).unwrap()).0 == alone(&second, &request));
    }
}

#[test]
fn removing_a_model_cancels_what_remains() {
    let [first, second] =
        ["llama", "gpt2"].map(|name| model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE));
    let (engine, old) = engine(&first, Drive::Thread, &options(&first, SchedulingOptions::default(), 64));
    let other = engine.add_model(&second, &options(&second, SchedulingOptions::default(), 64)).unwrap();
    let endless = GenerationRequest {
        max_tokens: 90,
        sampler: SamplerOptions::greedy(),
        ..GenerationRequest::new(PromptInput::Tokens(vec![5; 4]))
    };
    // Nothing reads them.
    let unread: Vec<_> = (0..20).map(|_| engine.submit(old, endless.clone()).unwrap()).collect();
    let request = Random(6).request(&second);
    let undisturbed = engine.submit(other, request.clone()).unwrap();
    engine.remove_model(old, Duration::ZERO).unwrap();
    assert!(unread.into_iter().map(generated).any(|(_, end)| end == StreamEnd::Canceled));
    assert!(generated(undisturbed).0 == alone(&second, &request));
}

/// Removing a model neither waits for the requests of another one nor stops them.
#[test]
fn removing_a_model_does_not_wait_for_others() {
    let [first, second] =
        ["llama", "gpt2"].map(|name| model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE));
    for drive in [Drive::Caller, Drive::Thread] {
        let (engine, old) = engine(&first, drive, &options(&first, SchedulingOptions::default(), 64));
        let other = engine.add_model(&second, &options(&second, SchedulingOptions::default(), 64)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let (engine, second, is_over) = (&engine, &second, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let request = Random(seed).request(second);
                        assert!(generated(engine.submit(other, request).unwrap()).0.len() <= 100);
                    }
                });
            }
            let request = Random(7).request(&first);
            let last = engine.submit(old, request.clone()).unwrap();
            let reader = scope.spawn(|| generated(last).0);
            let start = Instant::now();
            engine.remove_model(old, Duration::from_secs(60)).unwrap();
            let elapsed = start.elapsed();
            is_over.store(true, Ordering::Relaxed);
            assert!(elapsed < Duration::from_secs(20), "{drive:?} {elapsed:?}");
            assert!(reader.join().unwrap() == alone(&first, &request));
        });
    }
}

#[test]
fn requests_end_for_every_reason() {
    let model = model(&load("llama").file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let scheduling = SchedulingOptions { max_waiting: 3, max_running: 1, ..SchedulingOptions::default() };
    let (engine, id) = engine(&model, Drive::Caller, &options(&model, scheduling, 16));
    let request = |length: usize, max_tokens: usize| GenerationRequest {
        max_tokens,
        sampler: SamplerOptions::greedy(),
        ..GenerationRequest::new(PromptInput::Tokens(vec![5; length]))
    };
    let end = |request| generated(engine.submit(id, request).unwrap());
    let (tokens, reason) = end(request(4, 3));
    assert_eq!((tokens.len(), reason), (3, StreamEnd::Finished(FinishReason::Length)));
    let (tokens, reason) = end(request(90, 1000));
    assert_eq!((tokens.len(), reason), (11, StreamEnd::Finished(FinishReason::Context)));
    let kind = |request| engine.submit(id, request).map(drop).unwrap_err().kind();
    assert_eq!(kind(request(101, 1)), ErrorKind::TooLong);
    assert_eq!(kind(request(0, 1)), ErrorKind::Argument);
    assert_eq!(kind(request(1, 0)), ErrorKind::Argument);
    let unknown = PromptInput::Tokens(vec![u32::MAX]);
    assert_eq!(kind(GenerationRequest::new(unknown)), ErrorKind::Argument);
    let forever = GenerationRequest { timeout: Some(Duration::MAX), ..request(4, 3) };
    assert_eq!(end(forever).0.len(), 3);

    let timeout = Some(Duration::from_micros(1));
    let late = engine.submit(id, GenerationRequest { timeout, ..request(50, 50) });
    match late {
        Ok(stream) => assert_eq!(generated(stream).1, StreamEnd::DeadlineExceeded),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Overloaded),
    }

    // The queue is bounded: one request can start, three wait. A canceled one ends at once.
    let streams: Vec<_> = (0..4).map(|_| engine.submit(id, request(50, 50)).unwrap()).collect();
    assert_eq!(kind(request(1, 1)), ErrorKind::Overloaded);
    streams[1].cancel();
    let shadow = RequestClass::Shadow;
    let ends: Vec<_> = streams.into_iter().map(|stream| generated(stream).1).collect();
    assert_eq!(ends[1], StreamEnd::Canceled);
    assert_eq!(ends[2], StreamEnd::Finished(FinishReason::Length));
    assert_eq!(
        generated(engine.submit(id, GenerationRequest { class: shadow, ..request(2, 2) }).unwrap()).0.len(),
        2
    );
}
