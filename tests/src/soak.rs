//! A soak test of engines: many clients for a long time, most of which do not behave.
//!
//! Clients submit requests and use sessions, cancel many of them at any time, read slowly, or send what is invalid, to
//! several models and adapters with too little memory for all. Every answer that is read to its end must have the tokens
//! and log-probabilities that the request has alone; in the end no memory may be in use that was not at the start.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::random::Random;
use siskin::sample::SamplerOptions;
use siskin::serving::{
    Admission, CacheSalt, ClientId, Drive, Engine, EngineOptions, GenerationEvent, GenerationRequest,
    GenerationStream, ModelId, PromptInput, RequestClass, SchedulingOptions, ServedModelOptions, Speculation,
    StreamEnd,
};
use siskin::{ErrorKind, KvBudget, Model, Result, SessionOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of different requests to each model.
const REQUESTS: usize = 24;
/// Requests that run at the same time.
const MAX_RUNNING: usize = 8;

/// A token and the bits of its log-probability.
pub type AnswerToken = (u32, u32);

/// What each request to each model generates alone.
pub type Answers = Vec<Vec<Vec<AnswerToken>>>;

/// What happened.
#[derive(Debug, Default)]
pub struct Counts {
    /// Answers that were read to their end, and compared.
    pub answers: AtomicU64,
    /// Answers of sessions, likewise.
    pub sessions: AtomicU64,
    /// Requests that were canceled.
    pub canceled: AtomicU64,
    /// Readers that were slow.
    pub slow: AtomicU64,
    /// Invalid requests, which were rejected.
    pub invalid: AtomicU64,
    /// Requests for which there was no place in the queue, or no memory.
    pub refused: AtomicU64,
}

/// The outcome of a soak test.
#[derive(Debug)]
pub struct Report {
    /// What happened.
    pub counts: Counts,
    /// Anonymous memory of the process in bytes after a third of the time, and at the end.
    pub memory: [u64; 2],
    /// Preemptions.
    pub preemptions: u64,
    /// Tokens that the prefix caches had.
    pub prefix_hit_tokens: u64,
}

/// The maximum length of a request.
fn context(model: &Model) -> usize {
    model.config().context.min(512)
}

/// Returns the requests to a model: prompts with common prefixes, greedy and random, with and without adapters.
fn requests(model: &Model) -> Vec<GenerationRequest> {
    let mut random = Random(7);
    let vocabulary = model.config().vocabulary;
    let adapters: Vec<_> = std::iter::once(None).chain(model.adapters().map(Some)).collect();
    let request = |index: usize| {
        let (shared, own) = (random.next(context(model) / 3), 1 + random.next(context(model) / 6));
        let mut tokens: Vec<u32> = (0..shared).map(|at| ((at * 7 + index % 3) % vocabulary) as u32).collect();
        tokens.extend((0..own).map(|_| random.next(vocabulary) as u32));
        let sampler = SamplerOptions {
            seed: index as u64,
            temperature: if index.is_multiple_of(2) { 0.0 } else { 0.9 },
            log_probabilities: true,
            ..SamplerOptions::default()
        };
        GenerationRequest {
            sampler,
            max_tokens: 1 + random.next(context(model) / 3),
            adapter: adapters[index % adapters.len()].map(str::to_owned),
            speculation: if index.is_multiple_of(3) { Speculation::Off } else { Speculation::Ngram },
            ..GenerationRequest::new(PromptInput::Tokens(tokens))
        }
    };
    (0..REQUESTS).map(request).collect()
}

fn prompt(request: &GenerationRequest) -> &[u32] {
    match &request.prompt {
        PromptInput::Tokens(tokens) => tokens,
        _ => panic!("the prompts are tokens"),
    }
}

fn session_options(model: &Model, request: &GenerationRequest) -> SessionOptions {
    SessionOptions {
        context: context(model),
        sampler: request.sampler.clone(),
        adapter: request.adapter.clone(),
        ..SessionOptions::default()
    }
}

/// Returns what a session generates for a request; `None` if there is no memory for it.
fn generate(session: &mut siskin::Session, request: &GenerationRequest) -> Option<Vec<AnswerToken>> {
    let mut tokens = Vec::new();
    let mut generate = || -> Result<()> {
        session.prefill(prompt(request))?;
        while tokens.len() < request.max_tokens {
            let Some(token) = session.next_token()? else { break };
            tokens.push((token.id, token.log_probability.to_bits()));
        }
        Ok(())
    };
    match generate() {
        Ok(()) => Some(tokens),
        Err(error) if matches!(error.kind(), ErrorKind::Memory | ErrorKind::TooLong) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns what each request to each model generates alone.
pub fn answers(models: &[Model]) -> Answers {
    let alone = |model: &Model, request: &GenerationRequest| {
        let mut session = model.session(session_options(model, request)).unwrap();
        generate(&mut session, request).unwrap()
    };
    models.iter().map(|model| requests(model).iter().map(|request| alone(model, request)).collect()).collect()
}

/// A model of the engine.
struct Served<'a> {
    id: ModelId,
    model: &'a Model,
    requests: Vec<GenerationRequest>,
    answers: &'a [Vec<AnswerToken>],
}

/// Runs `clients` clients for `duration`, and checks what is left.
///
/// # Panics
/// If an answer differs, or if anything is in use at the end.
pub fn soak(models: &[Model], answers: &Answers, clients: u64, duration: Duration) -> Report {
    let engine =
        Engine::new(EngineOptions { threads: 2, drive: Drive::Thread, ..EngineOptions::default() }).unwrap();
    let serve = |(index, model): (usize, &Model)| {
        let scheduling = SchedulingOptions {
            max_running: MAX_RUNNING,
            max_waiting: 12,
            max_sessions: 10,
            // The longest requests are of the last model, and outgrow what they are admitted with.
            admission: if index == 0 { Admission::Guarantee } else { Admission::Overcommit },
            decode_budget: Duration::from_millis(5),
            ..SchedulingOptions::default()
        };
        let session = SessionOptions { context: context(model), forks: 2, ..SessionOptions::default() };
        // Room for three requests of eight, whose prompts alone take most of it.
        let bytes = model.memory(&session).unwrap().cache;
        let kv_budget = Some(KvBudget { bytes });
        engine
            .add_model(model, &ServedModelOptions { session, scheduling, kv_budget, ..Default::default() })
            .unwrap()
    };
    let ids: Vec<ModelId> = models.iter().enumerate().map(serve).collect();
    let served: Vec<Served<'_>> = ids
        .iter()
        .zip(models)
        .zip(answers)
        .map(|((&id, model), answers)| Served { id, model, requests: requests(model), answers })
        .collect();
    let counts = Counts::default();
    let start = Instant::now();
    let mut early = 0;
    thread::scope(|scope| {
        for client in 0..clients {
            let (engine, served, counts) = (&engine, &served, &counts);
            scope.spawn(move || {
                let mut random = Random(client);
                while start.elapsed() < duration {
                    let at = random.next(served.len());
                    act(engine, &served[at], &mut random, counts);
                }
            });
        }
        thread::sleep(duration / 3);
        early = anonymous_bytes();
    });
    engine.drain(Duration::from_secs(60));
    let mut report =
        Report { counts, memory: [early, anonymous_bytes()], preemptions: 0, prefix_hit_tokens: 0 };
    for served in served {
        let stats = engine.stats(served.id).unwrap();
        assert_eq!((stats.running, stats.waiting, stats.cached_prefixes), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.free_kv_blocks, stats.kv_blocks, "blocks are in use: {stats:?}");
        report.preemptions += stats.preemptions;
        report.prefix_hit_tokens += stats.prefix_hit_tokens;
    }
    report
}

/// Does one of the things that clients do.
fn act(engine: &Engine, served: &Served<'_>, random: &mut Random, counts: &Counts) {
    let count = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
    let index = random.next(served.requests.len());
    let request = &served.requests[index];
    let what = random.next(100);
    match what {
        0..5 => {
            assert!(engine.submit(served.id, invalid(request, random)).is_err());
            return count(&counts.invalid);
        }
        5..20 => {
            let session = engine.session(served.id, session_options(served.model, request));
            let Ok(mut session) = session else { return count(&counts.refused) };
            let Ok(fork) = session.fork() else { return count(&counts.refused) };
            if random.next(2) == 0 {
                drop(fork);
            }
            if random.next(5) < 2 {
                cancel_session(&mut session, request, random);
                count(&counts.canceled);
            }
            return match generate(&mut session, request) {
                Some(tokens) => {
                    assert!(tokens == served.answers[index], "a session's answer to request {index}");
                    count(&counts.sessions);
                }
                None => count(&counts.refused),
            };
        }
        _ => {}
    }
    let classes = [RequestClass::Interactive, RequestClass::Normal, RequestClass::Batch];
    let request = GenerationRequest {
        class: classes[random.next(3)],
        client: ClientId(random.next(4) as u64),
        salt: CacheSalt([random.next(2) as u8; 16]),
        ..request.clone()
    };
    let stream = match engine.submit(served.id, request) {
        Ok(stream) => stream,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
            thread::sleep(Duration::from_millis(1));
            return count(&counts.refused);
        }
    };
    match what {
        20..60 => {
            cancel(stream, random);
            count(&counts.canceled);
        }
        _ => {
            let pause = (what >= 95).then(|| Duration::from_millis(random.next(20) as u64));
            let Some(tokens) = read(stream, pause) else { return count(&counts.refused) };
            assert!(tokens == served.answers[index], "the answer to request {index}");
            count(if pause.is_some() { &counts.slow } else { &counts.answers });
        }
    }
}

/// Cancels a session at any time, and resets it.
fn cancel_session(session: &mut siskin::Session, request: &GenerationRequest, random: &mut Random) {
    let handle = session.cancel_handle();
    let wait = Duration::from_micros(random.next(20_000) as u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(wait);
            handle.cancel();
        });
        let _ = session.prefill(prompt(request));
        while let Ok(Some(_)) = session.next_token() {
            if session.position() + 1 >= session.context_length() {
                break;
            }
        }
    });
    handle.reset();
    session.reset();
}

/// Returns a request that must be rejected.
fn invalid(request: &GenerationRequest, random: &mut Random) -> GenerationRequest {
    match random.next(4) {
        0 => GenerationRequest { prompt: PromptInput::Tokens(Vec::new()), ..request.clone() },
        1 => GenerationRequest { prompt: PromptInput::Tokens(vec![u32::MAX]), ..request.clone() },
        2 => GenerationRequest { prompt: PromptInput::Tokens(vec![0; 100_000]), ..request.clone() },
        _ => GenerationRequest { adapter: Some("none".to_owned()), ..request.clone() },
    }
}

/// Reads some events, and cancels a request in one of three ways.
fn cancel(mut stream: GenerationStream, random: &mut Random) {
    for _ in 0..random.next(12) {
        if matches!(stream.next_event(), None | Some(GenerationEvent::End { .. })) {
            return;
        }
    }
    match random.next(3) {
        0 => drop(stream),
        1 => {
            stream.cancel();
            while let Some(GenerationEvent::Token { .. }) = stream.next_event() {}
        }
        _ => {
            thread::sleep(Duration::from_micros(random.next(3000) as u64));
            stream.cancel();
        }
    }
}

/// Reads a whole answer, and waits before each token; `None` if there is no memory for it.
fn read(stream: GenerationStream, pause: Option<Duration>) -> Option<Vec<AnswerToken>> {
    let mut tokens = Vec::new();
    for event in stream {
        match event {
            GenerationEvent::Prompt { .. } => {}
            GenerationEvent::Token { token, .. } => {
                tokens.push((token.id, token.log_probability.to_bits()));
                pause.into_iter().for_each(thread::sleep);
            }
            GenerationEvent::End { end: StreamEnd::Finished(_), .. } => return Some(tokens),
            // Sessions hold the rest of the memory.
            GenerationEvent::End { end: StreamEnd::Failed(error), .. }
                if error.kind() == ErrorKind::Memory =>
            {
                return None;
            }
            GenerationEvent::End { end, .. } => panic!("{end:?}"),
        }
    }
    panic!("an answer ends with an event")
}

/// Returns the anonymous memory of this process in bytes; 0 where that is unknown.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
