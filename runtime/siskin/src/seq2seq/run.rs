//! Runs the texts of a call through the model, as many at once as there is room for.

use std::sync::Arc;

use super::{Seq2Seq, Seq2SeqGenerateOptions, Seq2SeqOptions};
use crate::beam_search::{
    BeamSearch, BeamSettings, Beams, FinishedHypothesis, SampledTexts, SamplingSettings, feed,
};
use crate::sample::SamplerOptions;
use crate::session::with_breakers;
use crate::{Error, ErrorKind, Result};
use siskin_backend::ModelPart;
use siskin_backend::block_table::CacheOptions;
use siskin_backend::context::{Context, OutputRows, SequenceInput};

/// The default maximum number of decoder tokens.
const USUAL_CONTEXT: usize = 1024;
/// Tokens that are reserved for the text after a prompt if no maximum length is set.
const MIN_LEFT: usize = 1;
/// Memory for the logits of a batch, in bytes.
const LOGIT_BYTES: usize = 64 << 20;

/// The model inputs of one text.
pub(super) struct Seq2SeqInput {
    /// The encoder input; empty for decoder-only models.
    pub source: Vec<u32>,
    /// The tokens that the decoder starts with.
    pub prompt: Vec<u32>,
    /// The maximum number of tokens after the prompt.
    pub max_tokens: usize,
}

/// The decoding method of a call.
enum DecodingMethod {
    Search(Arc<BeamSettings>),
    Draw(Arc<SamplingSettings>),
}

/// A text that is being generated.
enum Task {
    Search(BeamSearch),
    Draw(SampledTexts),
}

impl Task {
    fn width(&self) -> usize {
        match self {
            Self::Search(hunt) => hunt.width(),
            Self::Draw(draws) => draws.width(),
        }
    }

    fn settle(&mut self, context: &mut Context) -> Result<()> {
        match self {
            Self::Search(hunt) => hunt.settle(context),
            Self::Draw(draws) => draws.settle(context),
        }
    }

    fn step(&mut self, context: &mut Context, first: usize, scratch: &mut Vec<f32>) -> Result<()> {
        match self {
            Self::Search(hunt) => hunt.step(context, first, scratch),
            Self::Draw(draws) => draws.step(context, first)?,
        }
        self.settle(context)
    }

    fn finish(self, context: &mut Context) -> Vec<FinishedHypothesis> {
        match self {
            Self::Search(hunt) => hunt.finish(context),
            Self::Draw(draws) => draws.finish(context),
        }
    }
}

impl Seq2Seq {
    /// Returns the maximum number of tokens in a source.
    pub(super) fn max_source(&self) -> usize {
        let model_limit = self.model.config().encoder_context;
        if self.options.source == 0 { model_limit } else { self.options.source.min(model_limit) }
    }

    /// Returns the maximum number of decoder tokens.
    fn max_context(&self) -> usize {
        let model_limit = self.model.config().context.max(1);
        if self.options.context == 0 {
            model_limit.min(USUAL_CONTEXT)
        } else {
            self.options.context.min(model_limit)
        }
    }

    /// Returns the maximum number of tokens in a prompt that is continued.
    pub(super) fn max_prompt(&self, writing: &Seq2SeqGenerateOptions) -> usize {
        let context = self.max_context();
        let left = match writing.search.max_tokens {
            usize::MAX => MIN_LEFT,
            // The last token need not be processed. At most half of the context is reserved for the text.
            max_tokens => (max_tokens - 1).min(context / 2),
        };
        context.saturating_sub(left + writing.decoder_prefix.len())
    }

    /// Generates the texts of all `jobs`, the longest first, and calls `each` with the index of each job and its
    /// hypotheses when it finishes.
    pub(super) fn run(
        &mut self,
        jobs: &[Seq2SeqInput],
        writing: &Seq2SeqGenerateOptions,
        each: &mut dyn FnMut(usize, Vec<FinishedHypothesis>) -> Result<()>,
    ) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let width = writing.width();
        let rows = self.make_room(jobs, width)?;
        let Some(mut context) = self.context.take() else { return Ok(()) };
        let mut flow =
            Flow { jobs, manner: self.manner(writing)?, options: self.options, scratch: Vec::new() };
        flow.run(&mut context, rows, width, each)?;
        // After an error the context still holds sequences, so it is dropped and replaced by the next call.
        self.context = Some(context);
        Ok(())
    }

    fn manner(&self, writing: &Seq2SeqGenerateOptions) -> Result<DecodingMethod> {
        let choices = self.model.choices();
        let search = &writing.search;
        if search.beams > 1 {
            return BeamSettings::new(search, choices, self.model.kernel_table()).map(DecodingMethod::Search);
        }
        let sampler =
            SamplerOptions { logits_processors: search.logits_processors.clone(), ..writing.sampler.clone() };
        let sampler = with_breakers(&sampler, &writing.dry_breakers, self.model.tokenizer()?)?;
        SamplingSettings::new(&sampler, search.num_return_sequences, choices, search.length_penalty)
            .map(DecodingMethod::Draw)
    }

    /// Creates a context for these jobs if necessary; returns the number of rows per batch.
    fn make_room(&mut self, jobs: &[Seq2SeqInput], width: usize) -> Result<usize> {
        let longest = |length: &dyn Fn(&Seq2SeqInput) -> usize| jobs.iter().map(length).max().unwrap_or(0);
        let prompt = longest(&|job| job.prompt.len());
        let context = longest(&|job| job.prompt.len().saturating_add(job.max_tokens)).min(self.max_context());
        if prompt > context || prompt == 0 {
            let message = format!("the prompt has {prompt} tokens; expected 1 to {context}");
            return Err(Error::new(ErrorKind::TooLong, "prompt", message));
        }
        let source = longest(&|job| job.source.len());
        let affordable = LOGIT_BYTES / (4 * self.model.config().vocabulary.max(1));
        let texts = self.options.rows.min(affordable).div_euclid(width).max(1).min(jobs.len());
        let rows = texts * width;
        let reads = self.model.graphs().encoder.is_some();
        let batch = if reads { rows.max(prompt) } else { rows.max(self.options.batch.min(prompt)) };
        let fits = self.context.as_ref().is_some_and(|have| {
            let (max_tokens, max_outputs) = have.decoder_limits();
            max_tokens >= batch
                && max_outputs >= rows
                && have.block_table().context_length() >= context
                && have.passes().max_rows(ModelPart::Encoder).0 >= source
        });
        if !fits {
            // The old context is dropped first: both at once would need too much memory.
            self.context = None;
            let encoder_context = if reads { source.max(self.options.batch) } else { 0 };
            let cache = CacheOptions {
                types: self.model.loaded().cache_types(self.options.cache),
                context_length: context,
                max_sequences: rows,
                max_batch_tokens: batch,
                encoder_context,
            };
            let mut context = self.model.writing_context(cache, rows)?;
            context.set_cancel_handle(&self.cancel);
            self.context = Some(context);
        }
        Ok(rows)
    }
}

/// The waiting and running jobs of a call.
struct Flow<'a> {
    jobs: &'a [Seq2SeqInput],
    manner: DecodingMethod,
    options: Seq2SeqOptions,
    scratch: Vec<f32>,
}

impl Flow<'_> {
    fn run(
        &mut self,
        context: &mut Context,
        rows: usize,
        width: usize,
        each: &mut dyn FnMut(usize, Vec<FinishedHypothesis>) -> Result<()>,
    ) -> Result<()> {
        let texts = rows / width;
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        let length = |job: usize| self.jobs[job].source.len() + self.jobs[job].prompt.len();
        order.sort_unstable_by_key(|&job| (std::cmp::Reverse(length(job)), job));
        let mut waiting = order.as_slice();
        let mut tasks: Vec<(usize, Task)> = Vec::new();
        while !waiting.is_empty() || !tasks.is_empty() {
            let free = texts - tasks.len();
            // Sources are encoded in groups, not one whenever a text finishes.
            if tasks.is_empty() || 2 * free >= texts {
                let (next, rest) = waiting.split_at(free.min(waiting.len()));
                self.admit(context, next, &mut tasks)?;
                waiting = rest;
            }
            self.advance(context, &mut tasks)?;
            let (done, rest): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|(_, task)| task.width() == 0);
            tasks = rest;
            done.into_iter().try_for_each(|(job, task)| each(job, task.finish(context)))?;
        }
        Ok(())
    }

    /// Runs the last tokens of all tasks through the model in one batch.
    fn advance(&mut self, context: &mut Context, tasks: &mut [(usize, Task)]) -> Result<()> {
        let mut pieces = Vec::new();
        for (_, task) in tasks.iter() {
            match task {
                Task::Search(hunt) => pieces.extend(hunt.pieces(self.options.adapter)),
                Task::Draw(draws) => pieces.extend(draws.pieces(self.options.adapter)),
            }
        }
        if pieces.is_empty() {
            return Ok(());
        }
        context.forward(&pieces)?;
        let mut first = 0;
        for (_, task) in tasks {
            let width = task.width();
            task.step(context, first, &mut self.scratch)?;
            first += width;
        }
        Ok(())
    }

    /// Encodes the sources and processes the prompts of jobs, and starts their generation.
    fn admit(&mut self, context: &mut Context, jobs: &[usize], tasks: &mut Vec<(usize, Task)>) -> Result<()> {
        let sequences: Vec<usize> = jobs.iter().map(|_| context.create()).collect();
        self.read(context, jobs, &sequences)?;
        let pieces: Vec<(usize, &[u32])> = jobs
            .iter()
            .zip(&sequences)
            .map(|(&job, &sequence)| (sequence, &*self.jobs[job].prompt))
            .collect();
        let room = context.block_table().context_length();
        let mut begun: Vec<Option<Task>> = jobs.iter().map(|_| None).collect();
        let mut failed = Ok(());
        let (manner, scratch, all) = (&self.manner, &mut self.scratch, self.jobs);
        feed(context, &pieces, self.options.adapter, &mut |index, logits| {
            let (job, sequence) = (&all[jobs[index]], sequences[index]);
            // The last token need not be processed.
            let max_tokens = job.max_tokens.min(room + 1 - job.prompt.len().min(room));
            let task = match manner {
                DecodingMethod::Search(settings) => {
                    let beams =
                        Beams::new(settings, sequence, &job.prompt, job.source.as_slice().into(), max_tokens);
                    Ok(Task::Search(BeamSearch::begin(beams, sequence, logits, scratch)))
                }
                DecodingMethod::Draw(drawing) => {
                    SampledTexts::begin(drawing, sequence, (&job.prompt, &job.source, max_tokens), logits)
                        .map(Task::Draw)
                }
            };
            match task {
                Ok(task) => begun[index] = Some(task),
                Err(error) => failed = Err(error),
            }
        })?;
        failed?;
        for (mut task, &job) in begun.into_iter().flatten().zip(jobs) {
            task.settle(context)?;
            tasks.push((job, task));
        }
        Ok(())
    }

    /// Encodes the sources of jobs, if there are any.
    fn read(&self, context: &mut Context, jobs: &[usize], sequences: &[usize]) -> Result<()> {
        let text = |(&job, &sequence): (&usize, &usize)| SequenceInput {
            sequence,
            tokens: &self.jobs[job].source,
            token_type_ids: &[],
            outputs: OutputRows::None,
            features: &[],
            global_positions: &[],
            padding_token: None,
            adapter: self.options.adapter,
        };
        let texts: Vec<SequenceInput<'_>> =
            jobs.iter().zip(sequences).map(text).filter(|text| !text.tokens.is_empty()).collect();
        let mut rest = texts.as_slice();
        while let Some(longest) = rest.first() {
            let room = self.options.batch.max(longest.tokens.len());
            let mut rows = 0;
            let count = rest.iter().take_while(|text| {
                rows += text.tokens.len();
                rows <= room
            });
            let (batch, after) = rest.split_at(count.count());
            context.encode(batch)?;
            rest = after;
        }
        Ok(())
    }
}
