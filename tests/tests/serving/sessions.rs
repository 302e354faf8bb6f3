//! Sessions of an engine: their passes are shared with requests and with each other, and change no bit.

use super::{Generated, Random, RandomRequests, SHORT, alone, context, engine, generated, options};
use siskin::beam_search::SearchOptions;
use siskin::encoder::{EmbedOptions, EncoderInput, EncoderOptions};
use siskin::sample::SamplerOptions;
use siskin::serving::{
    Drive, Engine, EngineOptions, GenerationRequest, ModelId, PromptInput, SchedulingOptions,
    ServedModelOptions,
};
use siskin::{
    CpuFeatures, DeviceKind, ErrorKind, GenerateOptions, GenerationStep, KvBudget, Model, Session,
    SessionOptions,
};
use siskin_tests::golden::{self, load};
use siskin_tests::texts;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

fn model(name: &str) -> Model {
    golden::model(&load(name).file, DeviceKind::Cpu, 2, CpuFeatures::NONE)
}

fn session_options(model: &Model, seed: u64) -> SessionOptions {
    let sampler = SamplerOptions { seed, log_probabilities: true, ..SamplerOptions::default() };
    SessionOptions { context: context(model), sampler, forks: 4, ..SessionOptions::default() }
}

/// The memory of `count` sequences.
fn budget(model: &Model, count: usize) -> KvBudget {
    let options = SessionOptions { context: context(model), forks: count - 1, ..SessionOptions::default() };
    KvBudget { bytes: model.memory(&options).unwrap().cache }
}

fn prompt(model: &Model, seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..count).map(|_| random.next(model.config().vocabulary) as u32).collect()
}

/// Appends tokens and generates, twice: the second prompt follows what was generated.
fn two_turns(session: &mut Session, seed: u64) -> Vec<Generated> {
    let mut all = Vec::new();
    for turn in 0..2 {
        let tokens = prompt(&session.model().clone(), seed + turn, 3 + seed as usize % 11);
        session.prefill(&tokens).unwrap();
        for _ in 0..8 {
            let Some(token) = session.next_token().unwrap() else { break };
            all.push((token.id, token.log_probability.to_bits()));
        }
    }
    all
}

#[test]
fn sessions_and_requests_share_passes_and_change_no_bit() {
    for name in SHORT {
        let model = model(name);
        for drive in [Drive::Caller, Drive::Thread] {
            let options = options(&model, SchedulingOptions::default(), 16);
            let (engine, id) = engine(&model, drive, &options);
            let mut random = Random(11);
            let requests: Vec<GenerationRequest> = (0..6).map(|_| random.request(&model)).collect();
            let start = Barrier::new(4 + requests.len());
            thread::scope(|scope| {
                for seed in 0..4 {
                    let (engine, model, start) = (&engine, &model, &start);
                    scope.spawn(move || {
                        let mut own = model.session(session_options(model, seed)).unwrap();
                        let expected = two_turns(&mut own, seed);
                        let mut shared = engine.session(id, session_options(model, seed)).unwrap();
                        start.wait();
                        assert_eq!(two_turns(&mut shared, seed), expected, "{name} {drive:?} {seed}");
                        assert_eq!(shared.logits(), own.logits());
                        assert_eq!(shared.position(), own.position());
                    });
                }
                for request in requests {
                    let (engine, model, start) = (&engine, &model, &start);
                    scope.spawn(move || {
                        let expected = alone(model, &request);
                        start.wait();
                        let stream = engine.submit(id, request).unwrap();
                        assert_eq!(generated(stream).0, expected, "{name} {drive:?}");
                    });
                }
            });
        }
    }
}

/// The passes of two sessions in step are joined, not run one after the other.
#[test]
fn two_sessions_share_passes() {
    let model = model("llama");
    let (engine, id) = engine(&model, Drive::Thread, &options(&model, SchedulingOptions::default(), 16));
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (engine, model, start) = (&engine, &model, &start);
            scope.spawn(move || {
                let mut session = engine.session(id, session_options(model, seed)).unwrap();
                session.prefill(&prompt(model, seed, 4)).unwrap();
                start.wait();
                for token in prompt(model, seed + 2, 60) {
                    session.prefill(&[token]).unwrap();
                }
            });
        }
    });
    let stats = engine.stats(id).unwrap();
    assert!(stats.rows >= 128, "{stats:?}");
    assert!(stats.steps < 128, "no pass was shared: {stats:?}");
    assert_eq!((stats.running, stats.waiting), (0, 0));
}

#[test]
fn forks_scores_searches_and_snapshots_are_those_of_other_sessions() {
    for name in SHORT {
        let model = model(name);
        let (engine, id) = engine(&model, Drive::Caller, &options(&model, SchedulingOptions::default(), 16));
        let outcomes = [true, false].map(|is_shared| {
            let options = session_options(&model, 5);
            let mut session = match is_shared {
                true => engine.session(id, options).unwrap(),
                false => model.session(options).unwrap(),
            };
            session.prefill(&prompt(&model, 1, 12)).unwrap();
            let mut fork = session.fork().unwrap();
            let forked = two_turns(&mut fork, 3);
            let search = SearchOptions { beams: 3, max_tokens: 6, ..SearchOptions::default() };
            let found = session.search(&search).unwrap();
            let mut scored = Vec::new();
            session.score(&prompt(&model, 9, 8), &mut |_, logits| scored.push(logits[0].to_bits())).unwrap();
            let saved = session.save().unwrap();
            let after = two_turns(&mut session, 6);
            session.restore(&saved).unwrap();
            assert_eq!(two_turns(&mut session, 6), after, "{name}");
            // Recurrent states cannot be rewound.
            let rewound = session.rewind(7).map(|()| two_turns(&mut session, 8));
            session.reset();
            let tokens = prompt(&model, 4, 9);
            let bidirectional =
                session.prefill_bidirectional(&tokens).map(|()| session.logits().to_vec()).ok();
            session.reset();
            assert_eq!(session.position(), 0);
            (bidirectional, forked, found, scored, saved, after, rewound, two_turns(&mut session, 2))
        });
        let [shared, own] = outcomes;
        assert_eq!(shared, own, "{name}");
    }
}

/// Cached prefixes fill the KV cache; they make room for sessions, also for passes that the engine does not run.
#[test]
fn cached_prefixes_make_room_for_sessions() {
    let model = model("llama");
    let options = ServedModelOptions {
        kv_budget: Some(budget(&model, 2)),
        ..options(&model, SchedulingOptions::default(), 16)
    };
    let (engine, id) = engine(&model, Drive::Caller, &options);
    let fill = |seed: u64| {
        for at in 0..6 {
            let tokens = PromptInput::Tokens(prompt(&model, seed + at, 70));
            let request = GenerationRequest { max_tokens: 2, ..GenerationRequest::new(tokens) };
            let _ = generated(engine.submit(id, request).unwrap());
        }
        assert!(engine.stats(id).unwrap().cached_prefixes > 0);
    };
    fill(100);
    let mut own = model.session(session_options(&model, 1)).unwrap();
    let mut shared = engine.session(id, session_options(&model, 1)).unwrap();
    assert_eq!(two_turns(&mut shared, 1), two_turns(&mut own, 1));
    fill(200);
    let mut scores = [Vec::new(), Vec::new()];
    for (session, scores) in [&mut own, &mut shared].into_iter().zip(&mut scores) {
        let tokens = prompt(&model, 7, 40);
        session.score(&tokens, &mut |_, logits| scores.push(logits[1].to_bits())).unwrap();
    }
    assert_eq!(scores[0], scores[1]);
    fill(300);
    let saved = own.save().unwrap();
    shared.restore(&saved).unwrap();
    let search = SearchOptions { beams: 2, max_tokens: 4, ..SearchOptions::default() };
    assert_eq!(shared.search(&search).unwrap(), own.search(&search).unwrap());
}

/// Sessions that hold the whole KV cache: whatever comes next is an error that says so, and it works once one is dropped.
#[test]
fn a_full_kv_cache_is_an_error() {
    let model = model("llama");
    let options = ServedModelOptions {
        kv_budget: Some(budget(&model, 1)),
        ..options(&model, SchedulingOptions::default(), 16)
    };
    let (engine, id) = engine(&model, Drive::Caller, &options);
    let mut first = engine.session(id, session_options(&model, 1)).unwrap();
    first.prefill(&prompt(&model, 1, 90)).unwrap();
    let mut second = engine.session(id, session_options(&model, 2)).unwrap();
    let error = second.prefill(&prompt(&model, 2, 90)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory);
    assert_eq!(second.position(), 0);
    let request = GenerationRequest::new(PromptInput::Tokens(prompt(&model, 3, 80)));
    let (tokens, end) = generated(engine.submit(id, request).unwrap());
    assert!(tokens.is_empty() && format!("{end:?}").contains("Memory"), "{end:?}");
    drop(first);
    second.prefill(&prompt(&model, 2, 90)).unwrap();
    assert_eq!(second.position(), 90);
}

/// A canceled prompt leaves the session as it was, whether its passes are its own or shared.
#[test]
fn a_canceled_session_is_unchanged() {
    let model = model("llama");
    for drive in [Drive::Caller, Drive::Thread] {
        let (engine, id) = engine(&model, drive, &options(&model, SchedulingOptions::default(), 16));
        let mut session = engine.session(id, session_options(&model, 1)).unwrap();
        session.prefill(&prompt(&model, 1, 10)).unwrap();
        let before = session.logits().to_vec();
        session.cancel_handle().cancel();
        let error = session.prefill(&prompt(&model, 2, 40)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Canceled);
        assert_eq!((session.position(), session.logits()), (10, before.as_slice()));
        let mut own = model.session(session_options(&model, 1)).unwrap();
        own.prefill(&prompt(&model, 1, 10)).unwrap();
        assert_eq!(two_turns(&mut session, 4), two_turns(&mut own, 4));
    }
}

/// Canceled at any time while others run: the sessions of others and what the session does next are unharmed.
#[test]
fn sessions_are_canceled_beside_others() {
    let model = model("llama");
    let (engine, id) = engine(&model, Drive::Thread, &options(&model, SchedulingOptions::default(), 16));
    let mut own = model.session(session_options(&model, 3)).unwrap();
    let expected = two_turns(&mut own, 3);
    thread::scope(|scope| {
        for at in 0..3 {
            let (engine, model, expected) = (&engine, &model, &expected);
            scope.spawn(move || {
                let mut random = Random(at);
                for _ in 0..20 {
                    let mut session = engine.session(id, session_options(model, 3)).unwrap();
                    let handle = session.cancel_handle();
                    let wait = Duration::from_micros(random.next(3000) as u64);
                    let canceler = scope.spawn(move || {
                        thread::sleep(wait);
                        handle.cancel();
                    });
                    let tokens = prompt(model, at, 90);
                    let _ = session.prefill(&tokens);
                    canceler.join().unwrap();
                    session.cancel_handle().reset();
                    session.reset();
                    assert_eq!(two_turns(&mut session, 3), *expected);
                }
            });
        }
    });
    assert_eq!(engine.stats(id).unwrap().running, 0);
}

/// Encoders, sequence-to-sequence models and sessions of other models take turns on the engine's threads.
#[test]
fn attached_models_compute_the_same() {
    let engine =
        Engine::new(EngineOptions { threads: 2, drive: Drive::Thread, ..EngineOptions::default() }).unwrap();
    let decoder = model("llama");
    let id: ModelId =
        engine.add_model(&decoder, &options(&decoder, SchedulingOptions::default(), 16)).unwrap();
    let request = |seed| {
        let prompt = PromptInput::Tokens(prompt(&decoder, seed, 20));
        GenerationRequest { max_tokens: 60, ..GenerationRequest::new(prompt) }
    };
    let streams: Vec<_> = (0..3).map(|seed| engine.submit(id, request(seed)).unwrap()).collect();
    let qwen = model("qwen2");
    let mut own = qwen.session(session_options(&qwen, 1)).unwrap();
    let mut attached = engine.attach(&qwen).unwrap().session(session_options(&qwen, 1)).unwrap();
    assert_eq!(two_turns(&mut attached, 1), two_turns(&mut own, 1));
    let file = &texts::load("t5", None).file;
    let t5 = golden::model(file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let source = EncoderInput { ids: vec![5, 9, 2, 1], ..EncoderInput::default() };
    let [own, attached] = [t5.clone(), engine.attach(&t5).unwrap()].map(|model| {
        let mut session = model.session(SessionOptions::default()).unwrap();
        session.encode(&source).unwrap();
        session.prefill(&[0]).unwrap();
        let mut encoder = model.encoder(EncoderOptions::default()).unwrap();
        let embeddings =
            encoder.embed_tokens(std::slice::from_ref(&source), &EmbedOptions::of(&model).unwrap()).unwrap();
        (session.logits().to_vec(), embeddings.concat())
    });
    assert_eq!(own, attached);
    for (seed, stream) in (0..3).zip(streams) {
        assert_eq!(generated(stream).0, alone(&decoder, &request(seed)));
    }
}

/// Encoders of an engine compute what others do, in shared batches, and can be canceled.
#[test]
fn encoders_on_an_engine_share_batches() {
    let file = &texts::load("bert", None).file;
    let model = golden::model(file, DeviceKind::Cpu, 2, CpuFeatures::NONE);
    let options = EncoderOptions { head: false, ..EncoderOptions::default() };
    let embed = EmbedOptions::of(&model).unwrap();
    let inputs = |seed: u64| -> Vec<EncoderInput> {
        let input =
            |at| EncoderInput { ids: prompt(&model, seed * 10 + at, 3 + at as usize), ..Default::default() };
        (0..5).map(input).collect()
    };
    for drive in [Drive::Caller, Drive::Thread] {
        let engine = Engine::new(EngineOptions { threads: 2, drive, ..EngineOptions::default() }).unwrap();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for seed in 0..4 {
                let (engine, model, start, inputs, embed) = (&engine, &model, &start, &inputs, &embed);
                scope.spawn(move || {
                    let mut shared = engine.encoder(model, options).unwrap();
                    let mut own = model.encoder(options).unwrap();
                    let expected = own.embed_tokens(&inputs(seed), embed).unwrap();
                    start.wait();
                    for _ in 0..8 {
                        assert_eq!(shared.embed_tokens(&inputs(seed), embed).unwrap(), expected);
                    }
                });
            }
        });
        let mut canceled = engine.encoder(&model, options).unwrap();
        canceled.cancel_handle().cancel();
        let error = canceled.embed_tokens(&inputs(1), &embed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Canceled);
        assert_eq!(canceled.embed_tokens(&inputs(1), &embed).unwrap().len(), 5);
        let wrong = EncoderInput::default();
        assert_eq!(canceled.embed_tokens(&[wrong], &embed).unwrap_err().kind(), ErrorKind::Argument);
        engine.drain(Duration::from_secs(1));
        let error = canceled.embed_tokens(&inputs(1), &embed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
    }
}

/// A whole generation with text, as an app runs it.
#[test]
fn a_generation_of_a_session_can_be_stepped() {
    let model = model("llama");
    let (engine, id) = engine(&model, Drive::Caller, &options(&model, SchedulingOptions::default(), 16));
    let run = |mut session: Session| {
        let options = GenerateOptions { max_tokens: 30, ..GenerateOptions::default() };
        let mut generation = session.begin_tokens(&prompt(&model, 2, 30), options).unwrap();
        let (mut text, mut ids) = (String::new(), Vec::new());
        while let Some(step) = generation.step(&mut session, &mut text).unwrap() {
            if let GenerationStep::Token(token) = step {
                ids.push(token.id);
            }
        }
        (ids, generation.finish_reason())
    };
    let shared = run(engine.session(id, session_options(&model, 8)).unwrap());
    assert_eq!(shared, run(model.session(session_options(&model, 8)).unwrap()));
}

/// When the engine is drained, sessions get an error instead of waiting.
#[test]
fn a_drained_engine_refuses_sessions() {
    let model = model("llama");
    let (engine, id) = engine(&model, Drive::Thread, &options(&model, SchedulingOptions::default(), 16));
    let mut session = engine.session(id, session_options(&model, 1)).unwrap();
    session.prefill(&[1, 2, 3]).unwrap();
    let start = Instant::now();
    engine.drain(Duration::from_secs(1));
    let error = session.prefill(&[4]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(session.position(), 3);
}
