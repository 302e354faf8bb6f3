//! Seq2Seq: translations, summaries and continuations of many texts at once, returned in their order.
//!
//! A [`Seq2Seq`] tokenizes texts, encodes those of similar length together if the model has an encoder, and decodes all
//! of them in one batch; when a text is finished, the next one takes its place (continuous batching).

mod join;
mod language;
mod options;
mod run;
mod source;

pub use options::{Seq2SeqGenerateOptions, Seq2SeqOptions};

use crate::beam_search::FinishedHypothesis;
use crate::encoder::OverflowMode;
use crate::model::Model;
use crate::session::{FinishReason, start_tokens};
use crate::{Error, ErrorKind, Result};
use run::Seq2SeqInput;
use siskin_backend::block_table::CacheOptions;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::Context;
use siskin_backend::context::ContextOptions;
use siskin_tokenizer::DecodeOptions;

/// The maximum number of rows per batch that a caller may set: sizes computed from it do not overflow.
const MAX_ROWS: usize = 1 << 20;

/// A generated text.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedText {
    /// The text; for a source in several parts, the texts of its parts joined by spaces.
    pub text: String,
    /// Its tokens, forced prefix included.
    pub tokens: Vec<u32>,
    /// The sum of the log-probabilities of its tokens, divided by a power of its length; the mean over parts.
    pub score: f64,
    /// Why it ended: [`FinishReason::Eos`] or [`FinishReason::Length`].
    pub finish_reason: FinishReason,
}

/// Generates texts from texts.
///
/// ```no_run
/// let model = siskin::Model::open("opus-mt-de-en.siskin")?;
/// let mut seq2seq = model.seq2seq(Default::default())?;
/// for candidates in seq2seq.translate(&["Guten Morgen.", "Wie geht es dir?"], "de", "en")? {
///     println!("{}", candidates[0].text);
/// }
/// # Ok::<(), siskin::Error>(())
/// ```
pub struct Seq2Seq {
    model: Model,
    options: Seq2SeqOptions,
    context: Option<Context>,
    cancel: CancelHandle,
}

impl Model {
    /// Creates a sequence-to-sequence generator.
    pub fn seq2seq(&self, options: Seq2SeqOptions) -> Result<Seq2Seq> {
        Seq2Seq::new(self.clone(), options)
    }

    /// Allocates a generation context for many sequences, of which `rows` give outputs per batch.
    pub(crate) fn writing_context(&self, cache: CacheOptions, rows: usize) -> Result<Context> {
        self.create_context(&ContextOptions::decoder(cache, rows), None)
    }
}

impl Seq2Seq {
    pub(crate) fn new(model: Model, options: Seq2SeqOptions) -> Result<Self> {
        if model.graphs().decoder.is_none() {
            let message = "it is encoder-only and cannot generate text; use an encoder";
            return Err(Error::unsupported("model", message));
        }
        model.loaded().check_cache(options.cache, None)?;
        model.tokenizer()?;
        let options = Seq2SeqOptions { batch: options.batch.clamp(1, MAX_ROWS), ..options };
        Ok(Self { model, options, context: None, cancel: CancelHandle::new() })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns a handle that cancels a running call from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Returns the generated texts for each input, best first: the output of an encoder–decoder model, or the
    /// continuation by a decoder-only model.
    pub fn generate<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        writing: &Seq2SeqGenerateOptions,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        self.generate_with(texts, writing, &mut |_| Ok(()))
    }

    /// Translates. Languages are given by the model's own names for them, or by the code that such a name begins with.
    pub fn translate<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        from: &str,
        to: &str,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        let writing = Seq2SeqGenerateOptions::translation(&self.model, Some(from), Some(to))?;
        self.generate(texts, &writing)
    }

    /// Summarizes texts.
    pub fn summarize<T: AsRef<str>>(&mut self, texts: &[T]) -> Result<Vec<Vec<GeneratedText>>> {
        let writing = Seq2SeqGenerateOptions::summary(&self.model)?;
        self.generate(texts, &writing)
    }

    /// Like [`Seq2Seq::generate`]; calls `each` with the number of finished texts whenever one finishes.
    pub fn generate_with<T: AsRef<str>>(
        &mut self,
        texts: &[T],
        writing: &Seq2SeqGenerateOptions,
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Vec<GeneratedText>>> {
        writing.validate()?;
        let (mut jobs, mut owners) = (Vec::new(), Vec::new());
        let mut parts_of = vec![0; texts.len()];
        for (index, text) in texts.iter().enumerate() {
            let sources = self.sources(text.as_ref(), writing);
            for source in sources.map_err(|error| error.within(&format!("text {index}")))? {
                jobs.push(self.job(source, writing).map_err(|error| error.within(&format!("text {index}")))?);
                owners.push(index);
                parts_of[index] += 1;
            }
        }
        let mut found: Vec<Option<Vec<FinishedHypothesis>>> = vec![None; jobs.len()];
        let (mut rest, mut done) = (parts_of.clone(), 0);
        self.run(&jobs, writing, &mut |job, texts| {
            found[job] = Some(texts);
            rest[owners[job]] -= 1;
            done += usize::from(rest[owners[job]] == 0);
            if rest[owners[job]] == 0 { each(done) } else { Ok(()) }
        })?;
        let mut parts = vec![Vec::new(); texts.len()];
        for (&owner, found) in owners.iter().zip(found) {
            let found: Vec<FinishedHypothesis> = found.unwrap_or_default();
            let found = found.into_iter().map(|found| self.candidate(found, writing));
            parts[owner].push(found.collect::<Result<Vec<_>>>()?);
        }
        let searched = writing.search.beams > 1;
        Ok(parts
            .into_iter()
            .map(|parts| join::join(parts, searched, writing.search.num_return_sequences))
            .collect())
    }

    /// Returns the model inputs for a source.
    fn job(&self, source: Vec<u32>, writing: &Seq2SeqGenerateOptions) -> Result<Seq2SeqInput> {
        let max_tokens = writing.search.max_tokens;
        if self.model.graphs().encoder.is_none() {
            let prompt = [source, writing.decoder_prefix.clone()].concat();
            return Ok(Seq2SeqInput { source: Vec::new(), prompt, max_tokens });
        }
        let start = match writing.start.is_empty() {
            true => start_tokens(&self.model)?,
            false => writing.start.clone(),
        };
        Ok(Seq2SeqInput { source, prompt: [start, writing.decoder_prefix.clone()].concat(), max_tokens })
    }

    /// Decodes a hypothesis to text.
    fn candidate(
        &self,
        FinishedHypothesis { tokens, score }: FinishedHypothesis,
        writing: &Seq2SeqGenerateOptions,
    ) -> Result<GeneratedText> {
        let ended =
            tokens.last().is_some_and(|last| writing.search.logits_processors.eos_token_ids.contains(last));
        let finish_reason = if ended { FinishReason::Eos } else { FinishReason::Length };
        let tokens = [writing.decoder_prefix.as_slice(), &tokens].concat();
        let bytes = self.model.tokenizer()?.decode(&tokens, DecodeOptions { skip_special: true })?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let text = match self.model.graphs().encoder {
            Some(_) => text.trim().to_owned(),
            None => text,
        };
        Ok(GeneratedText { text, tokens, score, finish_reason })
    }

    /// Returns the sources of a text: one, unless it is too long.
    fn sources(&self, text: &str, writing: &Seq2SeqGenerateOptions) -> Result<Vec<Vec<u32>>> {
        let reads = self.model.graphs().encoder.is_some();
        if !reads && matches!(writing.overflow, OverflowMode::Window { .. }) {
            let message = "a decoder-only model continues whole texts and does not support windows; use error or truncate";
            return Err(Error::unsupported("overflow", message));
        }
        let max_tokens = match reads {
            true => self.max_source(),
            false => self.max_prompt(writing),
        };
        if max_tokens == 0 {
            return Err(Error::new(
                ErrorKind::TooLong,
                "context",
                "no room for a text; use a larger context",
            ));
        }
        source::parts(self.model.tokenizer()?, text, writing, max_tokens)
    }
}
