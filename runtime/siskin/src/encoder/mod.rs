//! Encoders: batches of texts of any length, with results in the order of the texts.
//!
//! A batch holds the rows of several texts one after the other, without padding. It is filled with the longest texts
//! that still fit.

mod classify;
mod early_exit;
mod embed;
mod fill;
mod pooling;
mod sentence;
mod text;

pub use classify::{Entity, Scored};
pub use early_exit::ExitCriterion;
pub use embed::EmbedOptions;
pub(crate) use embed::EmbeddingWindows;
pub use fill::{AnswerSpan, MaskPrediction};
pub use sentence::Prompt;
pub use siskin_graph::Pooling;
pub use text::{OverflowMode, TextWindow};

use std::sync::Arc;

use siskin_kernels::ops::attention::CacheType;

use classify::ClassOutputs;
use sentence::Dense;

use crate::model::Model;
use crate::result_cache::ResultCache;
use crate::{Error, ErrorKind, Result};
use siskin_backend::ModelPart;
use siskin_backend::cancel::CancelHandle;
use siskin_backend::context::{Context, ContextOptions, OutputRows, Resources, SequenceInput};
use siskin_backend::thread_pool::SharedThreadPool;
use siskin_graph::arch::ConfigReader;
use siskin_graph::{AdapterSlot, OutputHead};

/// Options for opening an encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderOptions {
    /// The maximum number of tokens per batch; a longer text enlarges it.
    pub batch: usize,
    /// The type of keys and values; `None` means the model's default, normally f32.
    pub cache: Option<CacheType>,
    /// Whether outputs are those of the model's head, if it has one, instead of hidden states.
    pub head: bool,
    /// The early-exit criterion for classification, for models with intermediate heads; `None` disables it.
    pub early: Option<ExitCriterion>,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self { batch: 512, cache: None, head: true, early: None }
    }
}

/// A tokenized text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncoderInput {
    /// The token ids, including special tokens.
    pub ids: Vec<u32>,
    /// The token type id of each token; empty means all zeros.
    pub token_type_ids: Vec<u32>,
    /// For models with audio or other features as input instead of tokens: the features, frame by frame.
    pub features: Vec<f32>,
    /// For models with local attention (Longformer): the positions with global attention, such as those of a question;
    /// empty means none, or the first one if the model's head is a classifier.
    pub global_positions: Vec<usize>,
    /// For models with a convolution over positions: the token that follows the last one, as if the text were padded.
    /// Ignored by other models. `None` means zeros, however texts are batched.
    pub padding_token: Option<u32>,
    /// The adapter, of those that the model was opened with to choose from; see [`Model::adapter_slot`].
    pub adapter: AdapterSlot,
}

impl From<Vec<u32>> for EncoderInput {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, ..Self::default() }
    }
}

/// The amount of work of an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderWork {
    /// The number of batches.
    pub batches: usize,
    /// The total number of rows. Each is a token: there is no padding.
    pub rows: usize,
}

/// The output rows of a text, contiguous.
#[derive(Clone, Copy)]
pub struct TextOutputs<'a> {
    context: &'a Context,
    first: usize,
    count: usize,
}

impl<'a> TextOutputs<'a> {
    /// Returns the number of rows.
    pub fn count(self) -> usize {
        self.count
    }

    /// Returns a row.
    pub fn row(self, index: usize) -> &'a [f32] {
        if index < self.count { self.context.output(self.first + index) } else { &[] }
    }

    /// Returns an iterator over the rows.
    pub fn rows(self) -> impl Iterator<Item = &'a [f32]> {
        (0..self.count).map(move |index| self.row(index))
    }
}

/// The maximum number of tokens per batch that a caller may set: sizes computed from it do not overflow.
const MAX_ROWS: usize = 1 << 20;

/// Batches that several encoders add their texts to.
pub(crate) trait EmbeddingBatches: Send + Sync {
    /// Embeds tokenized texts with those of others.
    ///
    /// # Errors
    /// [`ErrorKind::Canceled`] if `cancel` was canceled, which is then reset; [`ErrorKind::Overloaded`] if too many texts wait.
    fn embed(
        &self,
        inputs: Vec<EncoderInput>,
        options: &EmbedOptions,
        cancel: &CancelHandle,
    ) -> Result<Vec<Vec<f32>>>;
}

/// Runs texts through an encoder model.
pub struct Encoder {
    model: Model,
    options: EncoderOptions,
    facts: ModelProperties,
    context: Option<Context>,
    /// What the context shares with others; `None`: nothing.
    resources: Option<Resources>,
    /// The engine that embeds texts, if it is on one.
    shared_batches: Option<Box<dyn EmbeddingBatches>>,
    sequences: Vec<usize>,
    cancel: CancelHandle,
    work: EncoderWork,
    /// The cache of embeddings.
    result_cache: Option<Arc<ResultCache>>,
    /// How many layers each text passed, if early exit is enabled.
    layers: Vec<usize>,
    /// Dense layers after pooling.
    dense: Vec<Dense>,
    /// The model config, which holds its prompts.
    config: ConfigReader,
}

/// Properties of the model, looked up once.
#[derive(Clone, Copy, Debug)]
struct ModelProperties {
    head: OutputHead,
    columns: usize,
    /// Frames per row; 0 for token input.
    frames_per_row: usize,
    /// Whether global attention has an effect.
    marks: bool,
    /// The maximum number of tokens in a text.
    max_tokens: usize,
    /// Whether early exit is possible: mutually exclusive classes with heads before the last layer.
    exits: bool,
}

impl ModelProperties {
    fn of(model: &Model, config: &ConfigReader, with_head: bool) -> Option<Self> {
        let graph = model.graphs().encoder.as_ref()?;
        let made_for = config.count(&["sentence_transformers/most_tokens"]).ok().flatten();
        let encoder_context = model.config().encoder_context;
        let columns = graph.values[if with_head { graph.output } else { graph.hidden }].columns;
        Some(Self {
            head: if with_head { graph.head } else { OutputHead::Hidden },
            columns,
            frames_per_row: graph.frames_per_row(),
            marks: graph.has_global_attention(),
            exits: with_head
                && !graph.exits.is_empty()
                && ClassOutputs::of(model, columns) == ClassOutputs::Exclusive,
            max_tokens: made_for
                .filter(|&max| max > 2)
                .map_or(encoder_context, |max| max.min(encoder_context)),
        })
    }
}

impl ModelProperties {
    /// Rejects an early-exit criterion that is out of range, or any if the model has no heads for it.
    fn check_early_exit(&self, early: Option<ExitCriterion>) -> Result<()> {
        let Some(early) = early else { return Ok(()) };
        early.check()?;
        if self.exits {
            return Ok(());
        }
        Err(Error::unsupported("model", "it has no classification heads on intermediate layers"))
    }
}

impl Model {
    /// Creates an encoder for whole sequences.
    pub fn encoder(&self, options: EncoderOptions) -> Result<Encoder> {
        Encoder::new(self.clone(), options)
    }

    /// Allocates an encoder context for `rows` tokens per batch, of which `outputs` give outputs.
    pub(crate) fn reading_context(
        &self,
        options: &EncoderOptions,
        rows: usize,
        outputs: usize,
        resources: Option<&Resources>,
    ) -> Result<Context> {
        let options = ContextOptions {
            with_head: options.head,
            early_exit: options.early.is_some(),
            ..ContextOptions::encoder(self.loaded().cache_types(options.cache), rows, outputs)
        };
        self.create_context(&options, resources)
    }
}

impl Encoder {
    pub(crate) fn new(model: Model, options: EncoderOptions) -> Result<Self> {
        let config = model.config_reader();
        let Some(facts) = ModelProperties::of(&model, &config, options.head) else {
            let message = "decoder-only models cannot encode texts; use an encoder model";
            return Err(Error::unsupported("model", message));
        };
        model.loaded().check_cache(options.cache, None)?;
        facts.check_early_exit(options.early)?;
        let bare = model.external_model().is_none_or(|engine| engine.interface().hidden.is_some());
        if !options.head && !bare {
            let message = "it does not output hidden states; it was exported with its head";
            return Err(Error::unsupported("model", message));
        }
        let options = EncoderOptions { batch: options.batch.min(MAX_ROWS), ..options };
        let dense = match facts.head {
            OutputHead::Hidden => Dense::of(&model, &config, facts.columns)?,
            _ => Vec::new(),
        };
        Ok(Self {
            dense,
            config,
            model,
            options,
            facts,
            context: None,
            resources: None,
            shared_batches: None,
            sequences: Vec::new(),
            cancel: CancelHandle::new(),
            work: EncoderWork::default(),
            result_cache: None,
            layers: Vec::new(),
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns what the rows of [`Encoder::encode`] are.
    pub fn head(&self) -> OutputHead {
        self.facts.head
    }

    /// Returns the number of columns of the rows of [`Encoder::encode`].
    pub fn columns(&self) -> usize {
        self.facts.columns
    }

    /// Returns the size of the vectors of [`Encoder::embed`], without truncation.
    pub fn embedding_dimensions(&self) -> usize {
        self.dense.last().map_or(self.facts.columns, |last| last.outputs)
    }

    /// Returns the maximum number of tokens in a text, including special tokens: the model's own, or the smaller value
    /// that it was trained for.
    pub fn max_tokens(&self) -> usize {
        self.facts.max_tokens
    }

    /// Returns the number of rows of a text: its tokens, or its features after downsampling.
    pub fn rows_of(&self, text: &EncoderInput) -> usize {
        match self.facts.frames_per_row {
            0 => text.ids.len(),
            per_row => (text.features.len() / self.model.config().features.max(1)).div_ceil(per_row),
        }
    }

    /// Returns the type of keys and values.
    pub fn cache_type(&self) -> CacheType {
        self.model.loaded().cache_types(self.options.cache).transient
    }

    /// Sets a cache in which [`Encoder::embed`] looks up vectors before computing them and stores those that it
    /// computes. A cached vector has the same bits.
    pub fn set_cache(&mut self, result_cache: Arc<ResultCache>) {
        self.result_cache = Some(result_cache);
    }

    /// Computes on a thread pool that others use, too.
    pub(crate) fn set_thread_pool(&mut self, thread_pool: SharedThreadPool) {
        self.resources = Some(Resources { thread_pool, kv_budget: None, pass_scheduler: None });
        self.context = None;
        self.sequences.clear();
    }

    /// Embeds texts in these batches. `cancel` wakes the thread that waits for them.
    pub(crate) fn share_batches(&mut self, batches: Box<dyn EmbeddingBatches>, cancel: CancelHandle) {
        (self.shared_batches, self.cancel) = (Some(batches), cancel);
    }

    /// Returns the maximum number of tokens per batch, except for longer texts.
    pub(crate) fn batch_rows(&self) -> usize {
        self.options.batch
    }

    /// Sets when a text has passed enough layers to be classified; `None`: after all.
    ///
    /// # Errors
    /// If the criterion is out of range, or the model has no heads on intermediate layers; nothing changes then.
    pub fn set_early_exit(&mut self, early: Option<ExitCriterion>) -> Result<()> {
        self.facts.check_early_exit(early)?;
        if self.options.early.is_some() != early.is_some() {
            // Its passes are those of the other kind.
            self.context = None;
            self.sequences.clear();
        }
        self.options.early = early;
        self.layers.clear();
        Ok(())
    }

    /// Returns a handle that cancels a running call from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Returns the amount of work so far.
    pub fn work(&self) -> EncoderWork {
        self.work
    }

    /// Runs `texts` through the model in batches, and calls `each` with the index of each text and its output rows, in
    /// the order in which texts finish.
    pub fn encode(
        &mut self,
        texts: &[EncoderInput],
        output_rows: OutputRows<'_>,
        each: &mut dyn FnMut(usize, TextOutputs<'_>) -> Result<()>,
    ) -> Result<()> {
        output_rows.check()?;
        let lengths = self.lengths(texts)?;
        self.batches(&lengths)
            .iter()
            .try_for_each(|batch| self.batch(texts, &lengths, batch, output_rows, each))
    }

    /// Returns the number of rows of each text; an error if a text is invalid or too long.
    fn lengths(&self, texts: &[EncoderInput]) -> Result<Vec<usize>> {
        let max = self.model.config().encoder_context;
        let lengths: Vec<usize> = texts.iter().map(|text| self.rows_of(text)).collect();
        for (index, &rows) in lengths.iter().enumerate() {
            if rows > max {
                let message = format!("{rows} rows; the model supports at most {max}");
                return Err(Error::new(ErrorKind::TooLong, format!("text {index}"), message));
            }
            if rows == 0 {
                let message = match self.facts.frames_per_row {
                    0 => "no tokens, which the model requires",
                    _ => "no features, which the model requires instead of tokens",
                };
                return Err(Error::argument(format!("text {index}"), message));
            }
        }
        Ok(lengths)
    }

    /// Groups texts into batches: always takes the longest text that still fits.
    fn batches(&self, lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_unstable_by_key(|&index| (std::cmp::Reverse(lengths[index]), index));
        // The remaining texts by length; groups that become empty are removed.
        let mut runs: Vec<&[usize]> = order.chunk_by(|&a, &b| lengths[a] == lengths[b]).collect();
        let length = |run: &[usize]| run.first().map_or(0, |&index| lengths[index]);
        let mut batches = Vec::new();
        while let Some(longest) = runs.first() {
            let mut room = self.options.batch.max(length(longest));
            let mut batch = Vec::new();
            loop {
                let at = runs.partition_point(|run| length(run) > room);
                let Some((&index, rest)) = runs.get(at).and_then(|run| run.split_first()) else { break };
                match rest {
                    [] => _ = runs.remove(at),
                    _ => runs[at] = rest,
                }
                batch.push(index);
                room -= lengths[index];
            }
            batches.push(batch);
        }
        batches
    }

    /// Runs the texts with the indices in `batch`.
    fn batch(
        &mut self,
        texts: &[EncoderInput],
        lengths: &[usize],
        batch: &[usize],
        output_rows: OutputRows<'_>,
        each: &mut dyn FnMut(usize, TextOutputs<'_>) -> Result<()>,
    ) -> Result<()> {
        let outputs = |index: &usize| output_rows.count(lengths[*index]);
        let rows: usize = batch.iter().map(|&index| lengths[index]).sum();
        let padded = batch.iter().filter(|&&index| texts[index].padding_token.is_some()).count();
        self.make_room(rows + padded, batch.iter().map(outputs).sum())?;
        self.make_sequences(batch.len());
        let Some(context) = &mut self.context else { return Ok(()) };
        let text =
            |(&index, &sequence): (&usize, &usize)| early_exit::text(&texts[index], sequence, output_rows);
        let pieces: Vec<SequenceInput<'_>> = batch.iter().zip(&self.sequences).map(text).collect();
        context.encode(&pieces)?;
        self.work.batches += 1;
        self.work.rows += rows;
        let mut first = 0;
        for index in batch {
            let count = outputs(index);
            each(*index, TextOutputs { context, first, count })?;
            first += count;
        }
        Ok(())
    }

    /// Creates sequences of the context until there are `count`.
    fn make_sequences(&mut self, count: usize) {
        let Some(context) = &mut self.context else { return };
        while self.sequences.len() < count {
            self.sequences.push(context.create());
        }
    }

    /// Creates a context for `rows` rows with `outputs` outputs if necessary.
    fn make_room(&mut self, rows: usize, outputs: usize) -> Result<()> {
        let limits = |context: &Context| context.passes().max_rows(ModelPart::Encoder);
        let (have, max) = self.context.as_ref().map_or((0, 0), limits);
        if rows > have || outputs > max {
            let (rows, outputs) = (rows.max(self.options.batch).max(have), outputs.max(max));
            // The old context is dropped first: both at once would need too much memory.
            self.context = None;
            self.sequences.clear();
            let mut context =
                self.model.reading_context(&self.options, rows, outputs, self.resources.as_ref())?;
            context.set_cancel_handle(&self.cancel);
            self.context = Some(context);
        }
        Ok(())
    }
}
