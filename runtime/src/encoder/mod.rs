//! Reading whole texts: many at once, of any lengths, in their order.

mod classify;
mod early_exit;
mod embed;
mod fill;
mod pool;
mod sentence;
mod text;

pub use classify::{Entity, Scored};
pub use early_exit::Early;
pub use embed::EmbedOptions;
pub use fill::{Answer, Filling};
pub use pool::Pooling;
pub use sentence::Prompt;
pub use text::{Long, Part};

use std::sync::Arc;

use siskin_kernels::ops::attention::CacheType;

use classify::Classes;
use sentence::Dense;

use crate::arch::Config;
use crate::context::{Context, OutputRows, SequenceInput};
use crate::graph::Head;
use crate::model::Model;
use crate::result_cache::Memo;
use crate::session::StopHandle;
use crate::{Error, ErrorKind, Result};

/// How an encoder is opened.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// The most tokens that go through the model at once; a longer text makes room for itself.
    pub batch: usize,
    /// The type of keys and values; `None`: what suits the model, as a rule f32.
    pub cache: Option<CacheType>,
    /// Whether outputs are what the head makes of the hidden states, where the model has one.
    pub head: bool,
    /// When texts leave before the last layer while they are classified, for models that have heads for it; `None`:
    /// they do not.
    pub early: Option<Early>,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self { batch: 512, cache: None, head: true, early: None }
    }
}

/// A text as tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// The ids, special ones included.
    pub ids: Vec<u32>,
    /// The segment that each is in; empty: all in the first.
    pub segments: Vec<u32>,
    /// For models that read features instead of tokens: those, frame by frame.
    pub features: Vec<f32>,
    /// For models whose tokens see only what is near, the positions of those that see all and are seen by all, as
    /// those of a question; empty: none, or the first where the model's head gives classes.
    pub global: Vec<usize>,
    /// For models whose tokens look at those beside them, what the last one finds after it where the text was padded;
    /// others pay no heed. Without it nothing is there, however texts are read together.
    pub after: Option<u32>,
}

impl From<Vec<u32>> for Tokens {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, ..Self::default() }
    }
}

/// What went through the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Batches.
    pub batches: usize,
    /// Rows of them, all of them tokens: nothing is padded.
    pub rows: usize,
}

/// The rows that a text gave, one after the other.
#[derive(Clone, Copy)]
pub struct Outputs<'a> {
    context: &'a Context,
    first: usize,
    count: usize,
}

impl<'a> Outputs<'a> {
    /// How many rows there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// One row.
    pub fn row(self, index: usize) -> &'a [f32] {
        if index < self.count { self.context.output(self.first + index) } else { &[] }
    }

    /// All rows.
    pub fn rows(self) -> impl Iterator<Item = &'a [f32]> {
        (0..self.count).map(move |index| self.row(index))
    }
}

/// The most tokens at once that a caller may ask for: sizes computed from it do not overflow.
const MOST_ROWS: usize = 1 << 20;

/// Reads texts with a model that has an encoder.
pub struct Encoder {
    model: Model,
    options: EncoderOptions,
    facts: Facts,
    context: Option<Context>,
    sequences: Vec<usize>,
    stop: StopHandle,
    work: Work,
    /// Where vectors are looked for before they are computed.
    memo: Option<Arc<Memo>>,
    /// How many layers each text went through, where texts may leave early.
    layers: Vec<usize>,
    /// Layers behind pooling.
    dense: Vec<Dense>,
    /// The model's, where its prompts are.
    config: Config,
}

/// What the model says of itself, looked up once.
#[derive(Clone, Copy, Debug)]
struct Facts {
    head: Head,
    columns: usize,
    /// Frames that a row is made of; 0 where it is made of a token.
    frames_per_row: usize,
    /// Whether marks on tokens matter.
    marks: bool,
    /// The most tokens of a text.
    most_tokens: usize,
    /// Whether texts may leave early: classes that exclude each other have heads before the last layer.
    exits: bool,
}

impl Facts {
    fn of(model: &Model, config: &Config, with_head: bool) -> Option<Self> {
        let graph = model.graphs().encoder.as_ref()?;
        let made_for = config.count(&["sentence_transformers/most_tokens"]).ok().flatten();
        let own = model.hyper().text;
        let columns = graph.values[if with_head { graph.output } else { graph.hidden }].columns;
        Some(Self {
            head: if with_head { graph.head } else { Head::Hidden },
            columns,
            frames_per_row: graph.frames_per_row(),
            marks: graph.marks(),
            exits: with_head && !graph.exits.is_empty() && Classes::of(model, columns) == Classes::Exclusive,
            most_tokens: made_for.filter(|&most| most > 2).map_or(own, |most| most.min(own)),
        })
    }
}

impl Encoder {
    pub(crate) fn new(model: Model, options: EncoderOptions) -> Result<Self> {
        let config = model.config();
        let Some(facts) = Facts::of(&model, &config, options.head) else {
            let message = "the model reads tokens one after the other; it has no encoder";
            return Err(Error::unsupported("model", message));
        };
        model.check_engine(options.cache, None)?;
        if let Some(early) = options.early {
            early.check()?;
            if !facts.exits {
                let message = "it has no heads on layers before the last that tell classes apart";
                return Err(Error::unsupported("model", message));
            }
        }
        let bare = model.engine().is_none_or(|engine| engine.outline().hidden.is_some());
        if !options.head && !bare {
            let message = "its hidden states do not come out; it was exported with its head alone";
            return Err(Error::unsupported("model", message));
        }
        let options = EncoderOptions { batch: options.batch.min(MOST_ROWS), ..options };
        let dense = match facts.head {
            Head::Hidden => Dense::of(&model, &config, facts.columns)?,
            _ => Vec::new(),
        };
        Ok(Self {
            dense,
            config,
            model,
            options,
            facts,
            context: None,
            sequences: Vec::new(),
            stop: StopHandle::new(),
            work: Work::default(),
            memo: None,
            layers: Vec::new(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the rows are that [`Encoder::read`] gives.
    pub fn head(&self) -> Head {
        self.facts.head
    }

    /// Columns of the rows that [`Encoder::read`] gives.
    pub fn columns(&self) -> usize {
        self.facts.columns
    }

    /// Columns of the vectors that [`Encoder::embed`] gives, where none are cut off.
    pub fn embedding_columns(&self) -> usize {
        self.dense.last().map_or(self.facts.columns, |last| last.outputs)
    }

    /// The most tokens of a text, special ones included: the model's own, or fewer where it was made for fewer.
    pub fn most_tokens(&self) -> usize {
        self.facts.most_tokens
    }

    /// The rows that a text becomes: its tokens, or what its features are brought together to.
    pub fn rows_of(&self, text: &Tokens) -> usize {
        match self.facts.frames_per_row {
            0 => text.ids.len(),
            per_row => (text.features.len() / self.model.hyper().features.max(1)).div_ceil(per_row),
        }
    }

    /// The type of keys and values.
    pub fn cache_type(&self) -> CacheType {
        self.model.cache_types(self.options.cache).passing
    }

    /// Looks for the vectors of texts in `memo` before it computes them, and stores those that it computes. A vector
    /// that is found has the same bits.
    pub fn remember(&mut self, memo: Arc<Memo>) {
        self.memo = Some(memo);
    }

    /// Stops a running call from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// What went through the model so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Reads `texts`, as many together as there is room for, and calls `each` with the number of each text and the rows
    /// of it that are wanted. The calls come in the order in which texts are done.
    pub fn read(
        &mut self,
        texts: &[Tokens],
        wanted: OutputRows<'_>,
        each: &mut dyn FnMut(usize, Outputs<'_>) -> Result<()>,
    ) -> Result<()> {
        wanted.check()?;
        let lengths = self.lengths(texts)?;
        self.batches(&lengths).iter().try_for_each(|batch| self.batch(texts, &lengths, batch, wanted, each))
    }

    /// The rows of each text, where all can be read.
    fn lengths(&self, texts: &[Tokens]) -> Result<Vec<usize>> {
        let most = self.model.hyper().text;
        let lengths: Vec<usize> = texts.iter().map(|text| self.rows_of(text)).collect();
        for (index, &rows) in lengths.iter().enumerate() {
            if rows > most {
                let message = format!("{rows} rows; the model was made for {most}");
                return Err(Error::new(ErrorKind::TooLong, format!("text {index}"), message));
            }
            if rows == 0 {
                let message = match self.facts.frames_per_row {
                    0 => "has no tokens, which the model reads",
                    _ => "has no features, which the model reads in the place of tokens",
                };
                return Err(Error::argument(format!("text {index}"), message));
            }
        }
        Ok(lengths)
    }

    /// The texts that are read at once: always the longest of those that there is still room for.
    fn batches(&self, lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
        // What is left of the texts of each length, none without any.
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

    /// Reads the texts numbered in `batch`.
    fn batch(
        &mut self,
        texts: &[Tokens],
        lengths: &[usize],
        batch: &[usize],
        wanted: OutputRows<'_>,
        each: &mut dyn FnMut(usize, Outputs<'_>) -> Result<()>,
    ) -> Result<()> {
        let outputs = |index: &usize| wanted.count(lengths[*index]);
        let rows: usize = batch.iter().map(|&index| lengths[index]).sum();
        let padded = batch.iter().filter(|&&index| texts[index].after.is_some()).count();
        self.make_room(rows + padded, batch.iter().map(outputs).sum())?;
        self.make_sequences(batch.len());
        let Some(context) = &mut self.context else { return Ok(()) };
        let marks_first = self.facts.marks && self.facts.head == Head::Class;
        let text = |(&index, &sequence): (&usize, &usize)| {
            let text = early_exit::text(&texts[index], sequence, wanted);
            let global = if marks_first && text.global.is_empty() { &[0] } else { text.global };
            SequenceInput { global, ..text }
        };
        let pieces: Vec<SequenceInput<'_>> = batch.iter().zip(&self.sequences).map(text).collect();
        context.read(&pieces)?;
        self.work.batches += 1;
        self.work.rows += rows;
        let mut first = 0;
        for index in batch {
            let count = outputs(index);
            each(*index, Outputs { context, first, count })?;
            first += count;
        }
        Ok(())
    }

    /// At least `count` sequences of the context.
    fn make_sequences(&mut self, count: usize) {
        let Some(context) = &mut self.context else { return };
        while self.sequences.len() < count {
            self.sequences.push(context.create());
        }
    }

    /// A context that takes `rows` rows with `outputs` outputs.
    fn make_room(&mut self, rows: usize, outputs: usize) -> Result<()> {
        let (have, most) = self.context.as_ref().map_or((0, 0), Context::text_limits);
        if rows > have || outputs > most {
            let (rows, outputs) = (rows.max(self.options.batch).max(have), outputs.max(most));
            // The old one goes first: both at once would be too much.
            self.context = None;
            self.sequences.clear();
            let mut context = self.model.reading_context(&self.options, rows, outputs)?;
            context.listen_to(self.stop.flag());
            self.context = Some(context);
        }
        Ok(())
    }
}
