//! The worker: answers requests in order.

use super::Args;
use super::answers::{Reply, tell};
use super::request::{Id, Request, RequestKind, RequestTask, TextRequest};
use super::request_queue::{Job, RequestQueue};
use crate::answer::CANCELED;
use crate::options::SamplerArgs;
use crate::{
    answer_question, classify, embed, fill_mask, memory, output, rerank, tag, text_generation, transcribe,
};
use serde_json::{Value, json};
use siskin::logits_processors::LogitsProcessorOptions;
use siskin::speech::Transcriber;
use siskin::{
    Encoder, EncoderOptions, Error, ErrorKind, FinishReason, GenerateOptions, Generation, Model, Result,
    Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions, Session,
};
use siskin_media::audio;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// A model and the state created from it so far.
pub(super) struct ModelState<'a> {
    model: Model,
    args: &'a Args,
    queue: &'a RequestQueue,
    made: Made,
    /// Number of requests so far.
    requests: usize,
}

/// State that requests need, created on first use.
#[derive(Default)]
struct Made {
    session: Option<(Settings, Session)>,
    /// Encoder without the model's head, for embeddings.
    bare: Option<Encoder>,
    encoder: Option<Encoder>,
    writer: Option<Seq2Seq>,
    transcriber: Option<Transcriber>,
}

/// The settings of a session.
#[derive(PartialEq)]
struct Settings {
    sampler: SamplerArgs,
    stop: Vec<String>,
}

/// Why a request failed.
enum Failed {
    /// An error in the request or its execution.
    Request(Error),
    /// Output is closed, so no reply can be written.
    Output(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

type Answered<T = Value> = std::result::Result<T, Failed>;

impl<'a> ModelState<'a> {
    pub(super) fn new(model: Model, args: &'a Args, queue: &'a RequestQueue) -> Self {
        Self { model, args, queue, made: Made::default(), requests: 0 }
    }

    /// Answers one request. Returns an error if no reply can be written.
    pub(super) fn answer(&mut self, job: Job) -> Result<()> {
        self.requests += 1;
        let Request { id, ask } = match job {
            Ok(request) => request,
            Err(rejection) => return tell(rejection.id.as_ref(), &Reply::Error(&rejection.error)),
        };
        let id = id.as_ref();
        match catch_unwind(AssertUnwindSafe(|| self.ask(id, ask))) {
            Ok(Ok(done)) => tell(id, &Reply::Done(done)),
            Ok(Err(Failed::Request(error))) => {
                // State that failed internally stays failed; the next request gets new state.
                if error.kind() == ErrorKind::State {
                    self.made = Made::default();
                }
                tell(id, &Reply::Error(&error))
            }
            Ok(Err(Failed::Output(error))) => Err(error),
            Err(_) => {
                // After a panic the state is inconsistent.
                self.made = Made::default();
                tell(id, &Reply::Panic("failed inside, which is an error of the program; please report it"))
            }
        }
    }

    fn ask(&mut self, id: Option<&Id>, ask: RequestKind) -> Answered {
        let results = match ask {
            RequestKind::Stats => return Ok(self.stats()),
            RequestKind::Chat { messages, template, text } => {
                let (max_tokens, begun) = (self.max_tokens(&text), Instant::now());
                let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
                let anew = text.sampler.draws() && text.sampler.has_seed();
                let session = self.session(text)?;
                if anew {
                    session.reset();
                }
                session.set_template_options(*template);
                let outcome = session.converse(&messages, options);
                return written(id, session, outcome, begun);
            }
            RequestKind::Prompt { prompt, special, text } => {
                let (max_tokens, begun) = (self.max_tokens(&text), Instant::now());
                if text.sampler.draws() && !text.sampler.has_seed() {
                    // A session draws its random seed when it is created.
                    self.made.session = None;
                }
                let session = self.session(text)?;
                session.reset();
                let outcome =
                    session.begin(&prompt, GenerateOptions { max_tokens, raw: true, parse_special: special });
                return written(id, session, outcome, begun);
            }
            RequestKind::Embed { texts, vectors, long } => {
                let options = vectors.options(&self.model, long)?;
                embed::values(self.encoder(false)?, &texts, &options)?
            }
            RequestKind::Rerank { texts, query, long } => {
                rerank::values(self.encoder(true)?, &query, &texts, long)?
            }
            RequestKind::Classify { texts, long } => classify::values(self.encoder(true)?, &texts, long)?,
            RequestKind::Tag { texts, long } => tag::values(self.encoder(true)?, &texts, long)?,
            RequestKind::Answer { texts, question, long } => {
                answer_question::values(self.encoder(true)?, &question, &texts, long)?
            }
            RequestKind::FillMask { texts, top_k } => fill_mask::values(self.encoder(true)?, &texts, top_k)?,
            RequestKind::Write { texts, task, search, long } => {
                let options = match &task {
                    RequestTask::Generate => Seq2SeqGenerateOptions::of(&self.model),
                    RequestTask::Translate { from, to } => {
                        Seq2SeqGenerateOptions::translation(&self.model, from.as_deref(), to.as_deref())
                    }
                    RequestTask::Summarize => Seq2SeqGenerateOptions::summary(&self.model),
                };
                let mut options = Seq2SeqGenerateOptions { overflow: long, ..options? };
                search.over(&self.model, &mut options, false)?;
                text_generation::values(self.writer()?, &texts, &options)?
            }
            RequestKind::Transcribe { sound, options } => {
                let sound = audio::decode(sound, audio::MAX_SAMPLES)?;
                vec![transcribe::heard(self.transcriber()?, &sound, &options.options())?]
            }
        };
        Ok(json!({ "results": results }))
    }

    /// Returns the maximum number of tokens in a response.
    fn max_tokens(&self, text: &TextRequest) -> usize {
        text.max_tokens.min(self.args.max_tokens.unwrap_or(usize::MAX))
    }

    /// Returns the session, replaced by a new one if the settings changed.
    fn session(&mut self, text: TextRequest) -> Result<&mut Session> {
        let TextRequest { stop, sampler, .. } = text;
        let settings = Settings { sampler, stop };
        let kept = self.made.session.take().filter(|(known, _)| *known == settings);
        let (_, session) = match kept {
            Some(kept) => self.made.session.insert(kept),
            None => {
                let Settings { sampler, stop } = &settings;
                let mut options = self.args.context.session(&self.args.model_args, sampler, stop)?;
                if self.model.graphs().encoder.is_some() {
                    options.sampler.logits_processors = LogitsProcessorOptions::of(&self.model)?;
                }
                let session = self.model.session(options)?;
                self.made.session.insert((settings, session))
            }
        };
        self.queue.stoppable(session.cancel_handle());
        Ok(session)
    }

    /// Returns the encoder, with or without the model's head.
    fn encoder(&mut self, head: bool) -> Result<&mut Encoder> {
        let location = if head { &mut self.made.encoder } else { &mut self.made.bare };
        let encoder = match location.take() {
            Some(encoder) => encoder,
            None => {
                let cache = self.args.model_args.kv;
                self.model.encoder(EncoderOptions { head, cache, ..EncoderOptions::default() })?
            }
        };
        self.queue.stoppable(encoder.cancel_handle());
        Ok(location.insert(encoder))
    }

    fn writer(&mut self) -> Result<&mut Seq2Seq> {
        let writer = match self.made.writer.take() {
            Some(writer) => writer,
            None => {
                let (context, cache) = (self.args.context.context, self.args.model_args.kv);
                self.model.seq2seq(Seq2SeqOptions { context, cache, ..Seq2SeqOptions::default() })?
            }
        };
        self.queue.stoppable(writer.cancel_handle());
        Ok(self.made.writer.insert(writer))
    }

    fn transcriber(&mut self) -> Result<&mut Transcriber> {
        let transcriber = match self.made.transcriber.take() {
            Some(transcriber) => transcriber,
            None => Transcriber::new(&self.model, self.args.model_args.kv)?,
        };
        self.queue.stoppable(transcriber.cancel_handle());
        Ok(self.made.transcriber.insert(transcriber))
    }

    fn stats(&self) -> Value {
        let resident = memory::resident();
        let mib = |part: Option<f64>| part.map(|part| output::round(part, 1));
        let context = self.made.session.as_ref().map(|(_, session)| session.position());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "family": self.model.family(),
            "kernels": self.model.kernels(),
            "threads": self.model.threads(),
            "requests": self.requests,
            "context_tokens": context,
            "anonymous_mib": mib(resident.map(|(anonymous, _)| anonymous)),
            "mapped_mib": mib(resident.map(|(_, mapped)| mapped)),
        })
    }
}

/// Streams a text whose prompt is prefilled, piece by piece.
fn written(id: Option<&Id>, session: &mut Session, outcome: Result<Generation>, begun: Instant) -> Answered {
    let seconds = |since: Instant| since.elapsed().as_secs_f64();
    let prompt_seconds = seconds(begun);
    let mut generation = match outcome {
        Ok(generation) => generation,
        Err(error) if error.kind() == ErrorKind::Canceled => {
            return Ok(done(CANCELED, 0, session, prompt_seconds, 0.0));
        }
        Err(error) => return Err(error.into()),
    };
    let begun = Instant::now();
    let mut text = String::new();
    let finish_reason = loop {
        match generation.step(session, &mut text) {
            Ok(Some(_)) if text.is_empty() => {}
            Ok(Some(_)) => tell(id, &Reply::Text(&text)).map_err(Failed::Output)?,
            Ok(None) => {
                break generation.finish_reason().map_or(FinishReason::Eos.name(), FinishReason::name);
            }
            Err(error) => {
                // A partial match of a stop string at the end is text.
                generation.rest(&mut text);
                if !text.is_empty() {
                    tell(id, &Reply::Text(&text)).map_err(Failed::Output)?;
                }
                match error.kind() {
                    ErrorKind::Canceled => break CANCELED,
                    _ => return Err(error.into()),
                }
            }
        }
    };
    let tokens = generation.tokens();
    generation.finish(session);
    Ok(done(finish_reason, tokens, session, prompt_seconds, seconds(begun)))
}

fn done(finish_reason: &str, tokens: usize, session: &Session, prompt_seconds: f64, seconds: f64) -> Value {
    json!({
        "finish_reason": finish_reason,
        "tokens": tokens,
        "context_tokens": session.position(),
        "prompt_seconds": output::round(prompt_seconds, 4),
        "seconds": output::round(seconds, 4),
        "tokens_per_second": output::round(output::rate(tokens, seconds), 1),
    })
}
