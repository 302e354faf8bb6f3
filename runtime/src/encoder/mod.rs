//! Reading whole texts: many at once, of any lengths, in their order.

mod classify;
mod embed;
mod fill;
mod pool;
mod text;

pub use classify::{Entity, Scored};
pub use embed::EmbedOptions;
pub use fill::{Answer, Filling};
pub use pool::Pooling;
pub use text::{Long, Part};

use siskin_kernels::ops::attention::CacheType;

use crate::context::{Context, Text, Wanted};
use crate::graph::{Graph, Head};
use crate::model::Model;
use crate::session::StopHandle;
use crate::{Error, ErrorKind, Result};

/// How an encoder is opened.
#[derive(Clone, Copy, Debug)]
pub struct EncoderOptions {
    /// The most tokens that go through the model at once; a longer text makes room for itself.
    pub batch: usize,
    /// The type of keys and values; `None`: f16, or f32 for models whose weights are f32.
    pub cache: Option<CacheType>,
    /// Whether outputs are what the head makes of the hidden states, where the model has one.
    pub head: bool,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self { batch: 512, cache: None, head: true }
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
    /// those of a question; empty: the first.
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
    context: Option<Context>,
    sequences: Vec<usize>,
    stop: StopHandle,
    work: Work,
}

impl Encoder {
    pub(crate) fn new(model: Model, options: EncoderOptions) -> Result<Self> {
        if model.graphs().encoder.is_none() {
            let message = "the model reads tokens one after the other; it has no encoder";
            return Err(Error::unsupported("model", message));
        }
        let bare = model.engine().is_none_or(|engine| engine.outline().hidden.is_some());
        if !options.head && !bare {
            let message = "its hidden states do not come out; it was exported with its head alone";
            return Err(Error::unsupported("model", message));
        }
        let options = EncoderOptions { batch: options.batch.min(MOST_ROWS), ..options };
        Ok(Self {
            model,
            options,
            context: None,
            sequences: Vec::new(),
            stop: StopHandle::new(),
            work: Work::default(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What the rows are that [`Encoder::read`] gives.
    pub fn head(&self) -> Head {
        let head = self.model.graphs().encoder.as_ref().map(|graph| graph.head).unwrap_or_default();
        if self.options.head { head } else { Head::Hidden }
    }

    /// Columns of the rows that [`Encoder::read`] gives.
    pub fn columns(&self) -> usize {
        let Some(graph) = &self.model.graphs().encoder else { return 0 };
        graph.values[if self.options.head { graph.output } else { graph.hidden }].columns
    }

    /// The rows that a text becomes: its tokens, or what its features are brought together to.
    pub fn rows_of(&self, text: &Tokens) -> usize {
        let per_row = self.model.graphs().encoder.as_ref().map_or(0, Graph::frames_per_row);
        let frames = text.features.len() / self.model.hyper().features.max(1);
        if per_row == 0 { text.ids.len() } else { frames.div_ceil(per_row) }
    }

    /// Stops a running call from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// What went through the model so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Reads `texts`, those of like length together, and calls `each` with the number of each text and the rows
    /// of it that are wanted. The calls come in the order in which texts are done.
    pub fn read(
        &mut self,
        texts: &[Tokens],
        wanted: Wanted<'_>,
        each: &mut dyn FnMut(usize, Outputs<'_>) -> Result<()>,
    ) -> Result<()> {
        let most = self.model.hyper().text;
        for (index, text) in texts.iter().enumerate() {
            let rows = self.rows_of(text);
            if rows > most {
                let message = format!("{rows} rows; the model was made for {most}");
                return Err(Error::new(ErrorKind::TooLong, format!("text {index}"), message));
            }
            if rows == 0 {
                return Err(Error::argument(format!("text {index}"), "has no tokens"));
            }
        }
        let lengths: Vec<usize> = texts.iter().map(|text| self.rows_of(text)).collect();
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
        let mut rest = order.as_slice();
        while let Some(&longest) = rest.first() {
            let room = self.options.batch.max(lengths[longest]);
            let mut rows = 0;
            let count = rest.iter().take_while(|&&index| {
                rows += lengths[index];
                rows <= room
            });
            let (batch, after) = rest.split_at(count.count());
            self.batch(texts, &lengths, batch, wanted, each)?;
            rest = after;
        }
        Ok(())
    }

    /// Reads the texts numbered in `batch`.
    fn batch(
        &mut self,
        texts: &[Tokens],
        lengths: &[usize],
        batch: &[usize],
        wanted: Wanted<'_>,
        each: &mut dyn FnMut(usize, Outputs<'_>) -> Result<()>,
    ) -> Result<()> {
        let outputs = |index: &usize| wanted.count(lengths[*index]);
        let rows: usize = batch.iter().map(|&index| lengths[index]).sum();
        let padded = batch.iter().filter(|&&index| texts[index].after.is_some()).count();
        self.make_room(rows + padded, batch.iter().map(outputs).sum())?;
        let Some(context) = &mut self.context else { return Ok(()) };
        while self.sequences.len() < batch.len() {
            self.sequences.push(context.create());
        }
        let text = |(&index, &sequence): (&usize, &usize)| Text {
            sequence,
            tokens: &texts[index].ids,
            segments: &texts[index].segments,
            features: &texts[index].features,
            global: &texts[index].global,
            after: texts[index].after,
            wanted,
        };
        let pieces: Vec<Text<'_>> = batch.iter().zip(&self.sequences).map(text).collect();
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
