//! Validation and row layout of whole sequences that are encoded in one batch.

use siskin_kernels::ops::attention::HIDDEN;

use super::Context;
use crate::backend::{GraphSide, TokenRow};
use crate::graph::Graph;
use crate::{Error, ErrorKind, Result};

/// The tokens of a sequence that give outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRows<'a> {
    /// None: the sequence is only stored for cross-attention.
    None,
    /// The first token.
    First,
    /// The last token.
    Last,
    /// Every token.
    All,
    /// The tokens at these distinct positions, in this order; positions beyond the sequence are ignored.
    At(&'a [usize]),
}

impl<'a> OutputRows<'a> {
    /// Refuses duplicate positions.
    pub(crate) fn check(self) -> Result<()> {
        let Self::At(list) = self else { return Ok(()) };
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::argument("wanted", format!("position {} is requested twice", pair[0]))),
            None => Ok(()),
        }
    }

    /// Returns how many tokens of a sequence of `count` tokens give outputs.
    pub(crate) fn count(self, count: usize) -> usize {
        self.of(count).count()
    }

    /// Returns the positions of the tokens that give outputs, for a sequence of `count` tokens.
    fn of(self, count: usize) -> impl Iterator<Item = usize> + 'a {
        let (range, list): (_, &[usize]) = match self {
            Self::None => (0..0, &[]),
            Self::First => (0..count.min(1), &[]),
            Self::Last => (count.saturating_sub(1)..count, &[]),
            Self::All => (0..count, &[]),
            Self::At(list) => (0..0, list),
        };
        range.chain(list.iter().copied().filter(move |&position| position < count))
    }
}

/// A whole sequence to encode.
#[derive(Clone, Copy, Debug)]
pub struct SequenceInput<'a> {
    /// The cache sequence to use.
    pub sequence: usize,
    /// All of its tokens.
    pub tokens: &'a [u32],
    /// The segment id of each token (`token_type_ids`); empty: all zero.
    pub segments: &'a [u32],
    /// The tokens that give outputs.
    pub wanted: OutputRows<'a>,
    /// Input features in frame-major order, for models that take features instead of tokens. `tokens` is empty then.
    pub features: &'a [f32],
    /// Positions with global attention, for models with local attention such as Longformer; empty: none.
    pub global: &'a [usize],
    /// For models with a convolution over token positions, the token after the last one if the sequence was padded;
    /// ignored by other models.
    pub after: Option<u32>,
}

/// A validated sequence.
pub(super) struct Listed {
    /// Its number of rows.
    count: usize,
    /// The token after the last one, if the sequence was padded.
    after: Option<u32>,
}

impl Context {
    /// Encodes whole sequences in one batch, each in a cache sequence of its own that drops what it encoded before.
    /// [`Context::output`] then has one row for each requested token, in order. If validation fails nothing changes; if
    /// the pass fails, the cache sequences are empty.
    pub fn read(&mut self, texts: &[SequenceInput<'_>]) -> Result<()> {
        let listed = self.check_texts(texts)?;
        self.batch.clear();
        let outcome = self.list(texts, &listed).and_then(|()| self.run(self.pass(GraphSide::Encoder)?));
        for text in texts {
            self.cache.pass(text.sequence);
            if outcome.is_err() {
                // Never fails: a sequence of zero tokens needs no blocks.
                let _ = self.cache.read(text.sequence, 0, 0, false);
            }
        }
        if outcome.is_err() {
            self.batch.clear();
        }
        self.settle(outcome)
    }

    /// Validates sequences before they are encoded.
    pub(super) fn check_texts(&self, texts: &[SequenceInput<'_>]) -> Result<Vec<Listed>> {
        let graph = &self.graph_pass(GraphSide::Encoder)?.graph;
        let has_convolution = graph.has_convolution();
        let list = |text: &SequenceInput<'_>| {
            let after = text.after.filter(|_| has_convolution);
            Ok(Listed { count: self.rows_of(graph, text)?, after })
        };
        let listed = texts.iter().map(list).collect::<Result<Vec<_>>>()?;
        let pairs = || texts.iter().zip(&listed);
        let rows = listed.iter().map(|text| text.count + usize::from(text.after.is_some())).sum::<usize>();
        let wanted = pairs().map(|(text, listed)| text.wanted.count(listed.count)).sum();
        pairs().try_for_each(|(text, listed)| self.check_text(graph, text, listed))?;
        self.check_batch(GraphSide::Encoder, rows, wanted)?;
        for (index, text) in texts.iter().enumerate() {
            if texts[..index].iter().any(|other| other.sequence == text.sequence) {
                return Err(Error::argument("texts", "two of them name the same sequence"));
            }
        }
        Ok(listed)
    }

    fn check_text(&self, graph: &Graph, text: &SequenceInput<'_>, listed: &Listed) -> Result<()> {
        let count = listed.count;
        self.cache.text(text.sequence)?;
        text.wanted.check()?;
        self.check_tokens(text.tokens)?;
        self.check_tokens(listed.after.as_slice())?;
        if !text.segments.is_empty() && text.segments.len() != count {
            let message = format!("{} segments for {count} tokens", text.segments.len());
            return Err(Error::argument("segments", message));
        }
        let segments = self.model.hyper.segments;
        if let Some(segment) = text.segments.iter().find(|&&segment| segment as usize >= segments.max(1)) {
            let message = format!("segment {segment}; the model has {segments}");
            return Err(Error::argument("segments", message));
        }
        let most = self.model.hyper.text;
        if count > most {
            let message = format!("{count} rows; the model supports at most {most}");
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        if !graph.marks() && !text.global.is_empty() {
            let message = "is for models with local attention; leave it empty";
            return Err(Error::argument("global", message));
        }
        if let Some(position) = text.global.iter().find(|&&position| position >= count) {
            let message = format!("position {position} is beyond the {count} tokens of the text");
            return Err(Error::argument("global", message));
        }
        Ok(())
    }

    /// Returns how many rows a sequence has.
    fn rows_of(&self, graph: &Graph, text: &SequenceInput<'_>) -> Result<usize> {
        match graph.frames_per_row() {
            0 if text.features.is_empty() => Ok(text.tokens.len()),
            0 => Err(Error::argument("features", "the model takes tokens; leave them empty")),
            _ if !text.tokens.is_empty() => {
                Err(Error::argument("tokens", "the model takes features; leave them empty"))
            }
            per_row => {
                let columns = self.model.hyper.features.max(1);
                if !text.features.len().is_multiple_of(columns) {
                    let message = format!(
                        "{} values are not a multiple of the {columns} mel bins",
                        text.features.len()
                    );
                    return Err(Error::argument("features", message));
                }
                Ok((text.features.len() / columns).div_ceil(per_row))
            }
        }
    }

    /// Reserves KV cache blocks and lists the rows of validated sequences.
    pub(super) fn list(&mut self, texts: &[SequenceInput<'_>], listed: &[Listed]) -> Result<()> {
        let marks = self.graph_pass(GraphSide::Encoder)?.graph.marks();
        for (text, &Listed { count, after }) in texts.iter().zip(listed) {
            let first = self.batch.rows.len();
            let before = self.batch.marked.len();
            let marked = if marks { self.mark(text.global, count) } else { 0 };
            self.cache.read(text.sequence, count, marked, after.is_some())?;
            self.batch.wanted.extend(text.wanted.of(count).map(|token| first + token));
            for position in 0..count {
                let at = |list: &[u32]| list.get(position).copied().unwrap_or(0);
                let (token, segment) = (at(text.tokens), at(text.segments));
                let mark = self.batch.marked[before..].binary_search(&(first + position)).ok();
                let sequence = text.sequence;
                self.batch.push(TokenRow { sequence, position, token, segment, mark, length: count });
            }
            if let Some(token) = after {
                // Stored after all positions that are attended to.
                let position = count + marked;
                let (sequence, length) = (text.sequence, count);
                self.batch.push(TokenRow { sequence, position, token, segment: 0, mark: None, length });
            }
            let first = self.batch.frames.len();
            let end = first + text.features.len() / self.model.hyper.features.max(1);
            self.batch.frames.resize(end, (first, end));
            self.batch.row_frames.resize(self.batch.rows.len(), first);
            self.batch.features.extend_from_slice(text.features);
        }
        Ok(())
    }

    /// Marks global-attention rows of the sequence of `count` rows that is listed next, and returns how many there are.
    fn mark(&mut self, global: &[usize], count: usize) -> usize {
        let first = self.batch.rows.len();
        let (hidden, before) = (&mut self.batch.hidden, self.batch.marked.len());
        hidden.resize(first + count, 0.0);
        global.iter().for_each(|&position| hidden[first + position] = HIDDEN);
        self.batch.marked.extend((first..first + count).filter(|&row| hidden[row] != 0.0));
        self.batch.marked.len() - before
    }
}
