//! Decode speed of sessions on an engine.

use super::{Args, median};
use crate::output::{self, round};
use siskin::serving::{Engine, EngineOptions, ModelId, SchedulingOptions, ServedModelOptions};
use siskin::{Model, Result, Session, SessionOptions};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Tokens that one session generates before the other has its turn.
const TURN: usize = 16;

/// An engine with one model.
pub(super) struct SessionEngine {
    engine: Engine,
    model: ModelId,
}

impl SessionEngine {
    /// Creates an engine for `count` sessions.
    pub(super) fn new(model: &Model, session: SessionOptions, count: usize) -> Result<Self> {
        let engine = Engine::new(EngineOptions { threads: model.threads(), ..EngineOptions::default() })?;
        let scheduling =
            SchedulingOptions { max_running: 1, max_sessions: count, ..SchedulingOptions::default() };
        let options = ServedModelOptions { session, scheduling, ..ServedModelOptions::default() };
        let model = engine.add_model(model, &options)?;
        Ok(Self { engine, model })
    }

    pub(super) fn session(&self) -> Result<Session> {
        self.engine.session(self.model, SessionOptions::default())
    }

    /// Returns the median rate in tokens per second, of all sessions together, at which `--sequences` sessions, each on a
    /// thread of its own, generate `--generate` tokens each.
    pub(super) fn decode(&self, args: &Args, ids: &[u32]) -> Result<f64> {
        let count = usize::from(args.sequences);
        let begin = || {
            let mut session = self.session()?;
            session.prefill(&ids[..args.depth])?;
            Ok(session)
        };
        let sessions = (0..count).map(|_| begin()).collect::<Result<Vec<_>>>()?;
        let start = &Barrier::new(count + 1);
        let run = |index: usize, mut session: Session| {
            let before = session.position();
            // Errors do not leave the others waiting.
            let mut outcome = Ok(());
            for _ in 0..args.repeat {
                start.wait();
                // The sessions have different tokens.
                let mut tokens = (0..args.generate).map(|step| ids[(step + 7 * index) % ids.len()]);
                outcome = outcome.and_then(|()| tokens.try_for_each(|token| session.prefill(&[token])));
                start.wait();
                outcome = outcome.and_then(|()| session.truncate(before));
            }
            outcome
        };
        thread::scope(|scope| {
            let run = &run;
            let threads = sessions.into_iter().enumerate();
            let threads: Vec<_> =
                threads.map(|(index, session)| scope.spawn(move || run(index, session))).collect();
            let mut rates = Vec::new();
            for _ in 0..args.repeat {
                start.wait();
                let begun = Instant::now();
                start.wait();
                rates.push(output::rate(count * args.generate, begun.elapsed().as_secs_f64()));
            }
            let finish = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            threads.into_iter().try_for_each(finish)?;
            Ok(round(median(rates), 1))
        })
    }
}

/// Returns the decode speed of a session on an engine as a multiple of that of `alone`, which has none: the median over turns
/// of [`TURN`] tokens, so that other load on the machine affects both alike.
pub(super) fn relative_speed(
    args: &Args,
    on_engine: &mut Session,
    alone: &mut Session,
    ids: &[u32],
) -> Result<f64> {
    alone.prefill(&ids[..args.depth])?;
    let (cached, generated) = (args.depth, &ids[..args.generate]);
    let mut ratios = Vec::new();
    for round in 0..usize::from(args.repeat) {
        on_engine.truncate(cached)?;
        alone.truncate(cached)?;
        for (index, tokens) in generated.chunks(TURN).enumerate() {
            let seconds = |session: &mut Session| -> Result<f64> {
                let start = Instant::now();
                tokens.iter().try_for_each(|&token| session.prefill(&[token]))?;
                Ok(start.elapsed().as_secs_f64())
            };
            let (with, without) = match (round + index) % 2 {
                0 => (seconds(on_engine)?, seconds(alone)?),
                _ => {
                    let without = seconds(alone)?;
                    (seconds(on_engine)?, without)
                }
            };
            ratios.push(without / with);
        }
    }
    on_engine.truncate(cached)?;
    Ok(round(median(ratios), 3))
}
