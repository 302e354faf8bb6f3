//! Responses to a text, whose decoding is measured.

use super::{Args, measured};
use crate::options::OpenArgs;
use serde_json::Value;
use siskin::constraint::StructuredOutput;
use siskin::sample::SamplerOptions;
use siskin::serving::{
    Engine, EngineOptions, GenerationEvent, GenerationRequest, ModelId, PromptInput, SchedulerStats,
    ServedModelOptions, Speculation,
};
use siskin::template::{Message, RenderOptions};
use siskin::{Error, Model, Result, SessionOptions};
use std::path::Path;
use std::time::Duration;

/// An engine with one model, and the prompt that it responds to.
pub(super) struct Responses {
    pub(super) model: Model,
    engine: Engine,
    id: ModelId,
    prompt: PromptInput,
    max_tokens: usize,
}

/// One response.
pub(super) struct Response {
    pub(super) tokens: Vec<u32>,
    /// From the first token to the last.
    pub(super) elapsed: Duration,
    /// The number of forward passes.
    pub(super) passes: u64,
}

impl Responses {
    /// Opens the model. The text of the file at `path` is the prompt, as a message if the model has a chat template.
    pub(super) fn new(args: &Args, open: &OpenArgs, path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
        let model = open.model(&args.model, &args.model_args)?;
        if model.graphs().encoder.is_some() {
            return Err(Error::unsupported("model", "only decoder-only models respond to a text"));
        }
        let prompt = match model.template()? {
            Some(_) => PromptInput::Messages(vec![Message::new("user", text)], RenderOptions::default()),
            None => PromptInput::Text(text),
        };
        let draft = args.draft.open(&args.model, &args.model_args, open)?;
        let threads = args.model_args.threads;
        let engine = Engine::new(EngineOptions { threads, ..EngineOptions::default() })?;
        let mut options = ServedModelOptions { draft, ..ServedModelOptions::default() };
        options.scheduling.max_running = 1;
        options.session = SessionOptions {
            context: (prompt.tokens(&model)?.len() + args.generate).min(model.config().context),
            cache: args.model_args.kv,
            ..SessionOptions::default()
        };
        let id = engine.add_model(&model, &options)?;
        Ok(Self { model, engine, id, prompt, max_tokens: args.generate })
    }

    /// Generates a response.
    pub(super) fn generate(
        &self,
        speculation: Speculation,
        output: Option<&StructuredOutput>,
    ) -> Result<Response> {
        let request = GenerationRequest {
            max_tokens: self.max_tokens,
            sampler: SamplerOptions::greedy(),
            speculation,
            structured_output: output.cloned(),
            ..GenerationRequest::new(self.prompt.clone())
        };
        let before = self.stats().steps;
        let (mut tokens, mut times) = (Vec::new(), Vec::new());
        for event in self.engine.submit(self.id, request)? {
            if let GenerationEvent::Token { token, time, .. } = event {
                tokens.push(token.id);
                times.push(time);
            }
        }
        let passes = self.stats().steps - before;
        match times.as_slice() {
            [first, .., last] => Ok(Response { elapsed: last.saturating_sub(*first), tokens, passes }),
            _ => {
                let message = "the response has fewer than two tokens; raise --generate, or use another text";
                Err(Error::argument("file", message))
            }
        }
    }

    /// Begins a report. Opening the model was not timed.
    pub(super) fn report(&self, args: &Args) -> Vec<(&'static str, Value)> {
        let mut report = measured(args, &self.model, 0.0);
        report.retain(|(name, _)| *name != "open_ms");
        report
    }

    pub(super) fn stats(&self) -> SchedulerStats {
        self.engine.stats(self.id).unwrap_or_default()
    }
}

impl Response {
    /// Returns the tokens per second.
    pub(super) fn rate(&self) -> f64 {
        (self.tokens.len() - 1) as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the seconds per forward pass, the one of the prompt aside.
    pub(super) fn seconds_per_pass(&self) -> f64 {
        self.elapsed.as_secs_f64() / self.passes.saturating_sub(1).max(1) as f64
    }
}
