//! Decode speed with and without draft tokens, for a text.

use super::{Args, finish, measured, median};
use crate::options::OpenArgs;
use crate::output::round;
use serde_json::Value;
use siskin::sample::SamplerOptions;
use siskin::serving::{
    Engine, EngineOptions, GenerationEvent, GenerationRequest, ModelId, PromptInput, SchedulerStats,
    ServedModelOptions, Speculation,
};
use siskin::template::{Message, RenderOptions};
use siskin::{Error, ErrorKind, Model, Result, SessionOptions};
use std::path::Path;
use std::time::Duration;

/// One run.
struct Run {
    tokens: Vec<u32>,
    /// From the first token to the last.
    elapsed: Duration,
}

/// Generates with and without draft tokens in turns, and prints the report. The text of the file at `path` is the prompt, as a
/// message if the model has a chat template.
pub(super) fn report(args: &Args, open: &OpenArgs, path: &Path) -> Result<()> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
    let model = open.model(&args.model, &args.model_args)?;
    if model.graphs().encoder.is_some() {
        return Err(Error::unsupported("--speculate", "only decoder-only models draft tokens"));
    }
    let prompt = match model.template()? {
        Some(_) => PromptInput::Messages(vec![Message::new("user", text)], RenderOptions::default()),
        None => PromptInput::Text(text),
    };
    let draft = args.draft.open(&args.model, &args.model_args, open)?;
    let (engine, id) = engine(args, &model, draft, &prompt)?;
    let run = |speculation| run(args, &engine, id, &prompt, speculation);
    // Fills the prefix cache, and learns how long passes take.
    let expected = run(Speculation::Auto)?.tokens;
    run(Speculation::Off)?;
    let before = engine.stats(id).unwrap_or_default();
    let (mut plain, mut drafted, mut gains) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.repeat {
        let runs = [run(Speculation::Off)?, run(Speculation::Auto)?];
        if runs.iter().any(|run| run.tokens != expected) {
            let message =
                "speculation changed the tokens, which is an error of the program; please report it";
            return Err(Error::new(ErrorKind::State, "speculation", message));
        }
        let [one, other] = runs.map(|run| run.rate());
        plain.push(one);
        drafted.push(other);
        gains.push(other / one);
    }
    let after = engine.stats(id).unwrap_or_default();
    let count = |of: fn(&SchedulerStats) -> u64| of(&after) - of(&before);
    let mut report = measured(args, &model, 0.0);
    report.retain(|(name, _)| *name != "open_ms");
    let mut add = |name: &'static str, value: Value| report.push((name, value));
    add("generated_tokens", expected.len().into());
    add("generate_tok_s", round(median(plain), 1).into());
    add("speculative_tok_s", round(median(drafted), 1).into());
    add("speedup", round(median(gains), 3).into());
    add("draft_tokens", (count(|stats| stats.drafted_tokens) / u64::from(args.repeat)).into());
    add("accepted_tokens", (count(|stats| stats.accepted_tokens) / u64::from(args.repeat)).into());
    finish(args, &model, report)
}

fn engine(
    args: &Args,
    model: &Model,
    draft: Option<Model>,
    prompt: &PromptInput,
) -> Result<(Engine, ModelId)> {
    let engine = Engine::new(EngineOptions { threads: args.model_args.threads, ..EngineOptions::default() })?;
    let mut options = ServedModelOptions { draft, ..ServedModelOptions::default() };
    options.scheduling.max_running = 1;
    options.session = SessionOptions {
        context: (prompt.tokens(model)?.len() + args.generate).min(model.config().context),
        cache: args.model_args.kv,
        ..SessionOptions::default()
    };
    let id = engine.add_model(model, &options)?;
    Ok((engine, id))
}

fn run(
    args: &Args,
    engine: &Engine,
    id: ModelId,
    prompt: &PromptInput,
    speculation: Speculation,
) -> Result<Run> {
    let request = GenerationRequest {
        max_tokens: args.generate,
        sampler: SamplerOptions::greedy(),
        speculation,
        ..GenerationRequest::new(prompt.clone())
    };
    let (mut tokens, mut times) = (Vec::new(), Vec::new());
    for event in engine.submit(id, request)? {
        if let GenerationEvent::Token { token, time, .. } = event {
            tokens.push(token.id);
            times.push(time);
        }
    }
    match times.as_slice() {
        [first, .., last] => Ok(Run { elapsed: last.saturating_sub(*first), tokens }),
        _ => Err(Error::argument("--speculate", "the response has fewer than two tokens; use another text")),
    }
}

impl Run {
    fn rate(&self) -> f64 {
        (self.tokens.len() - 1) as f64 / self.elapsed.as_secs_f64()
    }
}
