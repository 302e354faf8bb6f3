//! The inputs of forward passes: their validation and their rows in the batch.

use siskin_kernels::ops::attention::HIDDEN;

use crate::cancel::CancelHandle;
use crate::{Batch, TokenRow};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::arch::ModelConfig;
use siskin_graph::{AdapterSlot, Graph, OutputHead};

/// The tokens of a sequence that give outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRows<'a> {
    /// None: a chunk of a prompt before its last, or a sequence that is only stored for cross-attention.
    None,
    /// The first token.
    First,
    /// The last token.
    Last,
    /// The tokens from this position on.
    From(usize),
    /// Every token.
    All,
    /// The tokens at these distinct positions, in this order; positions beyond the sequence are ignored.
    At(&'a [usize]),
}

impl<'a> OutputRows<'a> {
    /// Rejects duplicate positions.
    pub fn check(self) -> Result<()> {
        let Self::At(list) = self else { return Ok(()) };
        let mut sorted = list.to_vec();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::argument("outputs", format!("position {} is requested twice", pair[0]))),
            None => Ok(()),
        }
    }

    /// Returns how many tokens of a sequence of `count` tokens give outputs.
    pub fn count(self, count: usize) -> usize {
        self.of(count).count()
    }

    /// Returns the positions of the tokens that give outputs, for a sequence of `count` tokens.
    pub(super) fn of(self, count: usize) -> impl Iterator<Item = usize> + 'a {
        let (range, list): (_, &[usize]) = match self {
            Self::None => (0..0, &[]),
            Self::First => (0..count.min(1), &[]),
            Self::Last => (count.saturating_sub(1)..count, &[]),
            Self::From(first) => (first.min(count)..count, &[]),
            Self::All => (0..count, &[]),
            Self::At(list) => (0..0, list),
        };
        range.chain(list.iter().copied().filter(move |&position| position < count))
    }
}

/// The next tokens of one sequence in a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry<'a> {
    /// The sequence.
    pub sequence: usize,
    /// Its next tokens.
    pub tokens: &'a [u32],
    /// The tokens that give logits.
    pub outputs: OutputRows<'a>,
    /// The adapter that applies to the tokens.
    pub adapter: AdapterSlot,
    /// Cancels the sequence of this entry alone: the others of the batch are not repeated. See [`Context::is_canceled`](super::Context::is_canceled).
    pub cancel: Option<&'a CancelHandle>,
}

impl<'a> BatchEntry<'a> {
    /// Creates an entry whose adapter is that of the model, and which cannot be canceled by itself.
    pub fn new(sequence: usize, tokens: &'a [u32], outputs: OutputRows<'a>) -> Self {
        Self { sequence, tokens, outputs, adapter: AdapterSlot::MODEL, cancel: None }
    }

    /// Returns an error unless the entry can be a part of a batch of a model with `adapters` adapters.
    pub(super) fn check(&self, adapters: usize) -> Result<()> {
        check_adapter(self.adapter, adapters)?;
        self.outputs.check()
    }
}

/// A whole sequence to encode.
#[derive(Clone, Copy, Debug)]
pub struct SequenceInput<'a> {
    /// The cache sequence to use.
    pub sequence: usize,
    /// All of its tokens.
    pub tokens: &'a [u32],
    /// The token type id of each token; empty: all zero.
    pub token_type_ids: &'a [u32],
    /// The tokens that give outputs.
    pub outputs: OutputRows<'a>,
    /// Input features in frame-major order, for models that take features instead of tokens. `tokens` is empty then.
    pub features: &'a [f32],
    /// Positions with global attention, for models with local attention such as Longformer; empty: none, or the first
    /// one if the graph's head is a classifier.
    pub global_positions: &'a [usize],
    /// For models with a convolution over token positions, the padding token after the sequence if it was padded; ignored
    /// by other models.
    pub padding_token: Option<u32>,
    /// The adapter that applies to the tokens.
    pub adapter: AdapterSlot,
}

/// A validated sequence.
pub(super) struct CheckedInput<'a> {
    /// Its number of rows.
    pub count: usize,
    /// Its positions with global attention.
    pub global_positions: &'a [usize],
    /// The padding token after the sequence, if it was padded.
    pub padding_token: Option<u32>,
}

/// What a model accepts.
pub(super) struct InputRules<'a> {
    pub config: &'a ModelConfig,
    pub graph: &'a Graph,
    /// The number of adapters that a sequence can choose from.
    pub adapters: usize,
}

impl InputRules<'_> {
    /// Validates whole sequences.
    pub(super) fn check<'a>(&self, texts: &[SequenceInput<'a>]) -> Result<Vec<CheckedInput<'a>>> {
        let has_convolution = self.graph.has_convolution();
        let classifies = self.graph.head == OutputHead::Class && self.graph.has_global_attention();
        let check = |(index, text): (usize, &SequenceInput<'a>)| {
            let count = self.rows_of(text)?;
            let padding_token = text.padding_token.filter(|_| has_convolution);
            let global_positions = match text.global_positions {
                [] if classifies && count > 0 => &[0],
                positions => positions,
            };
            let checked = CheckedInput { count, global_positions, padding_token };
            self.check_text(text, &checked)?;
            if texts[..index].iter().any(|other| other.sequence == text.sequence) {
                return Err(Error::argument("texts", "two of them name the same sequence"));
            }
            Ok(checked)
        };
        texts.iter().enumerate().map(check).collect()
    }

    fn check_text(&self, text: &SequenceInput<'_>, checked: &CheckedInput<'_>) -> Result<()> {
        let count = checked.count;
        check_adapter(text.adapter, self.adapters)?;
        text.outputs.check()?;
        check_tokens(text.tokens, self.config.vocabulary)?;
        check_tokens(checked.padding_token.as_slice(), self.config.vocabulary)?;
        if !text.token_type_ids.is_empty() && text.token_type_ids.len() != count {
            let message = format!("{} token type ids for {count} tokens", text.token_type_ids.len());
            return Err(Error::argument("token_type_ids", message));
        }
        let token_types = self.config.token_types;
        if let Some(token_type) =
            text.token_type_ids.iter().find(|&&token_type| token_type as usize >= token_types.max(1))
        {
            let message = format!("token type {token_type}; the model has {token_types}");
            return Err(Error::argument("token_type_ids", message));
        }
        let max_rows = self.config.encoder_context;
        if count > max_rows {
            let message = format!("{count} rows; the model supports at most {max_rows}");
            return Err(Error::new(ErrorKind::TooLong, "text", message));
        }
        if !self.graph.has_global_attention() && !text.global_positions.is_empty() {
            let message = "only for models with local attention; leave it empty";
            return Err(Error::argument("global_positions", message));
        }
        if let Some(position) = text.global_positions.iter().find(|&&position| position >= count) {
            let message = format!("position {position} is beyond the {count} tokens of the text");
            return Err(Error::argument("global_positions", message));
        }
        Ok(())
    }

    /// Returns how many rows a sequence has.
    fn rows_of(&self, text: &SequenceInput<'_>) -> Result<usize> {
        match self.graph.frames_per_row() {
            0 if text.features.is_empty() => Ok(text.tokens.len()),
            0 => Err(Error::argument("features", "the model takes tokens; leave them empty")),
            _ if !text.tokens.is_empty() => {
                Err(Error::argument("tokens", "the model takes features; leave them empty"))
            }
            per_row => {
                let columns = self.config.features.max(1);
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
}

/// Returns an error if a model with `adapters` adapters has none in this slot.
pub fn check_adapter(slot: AdapterSlot, adapters: usize) -> Result<()> {
    if usize::from(slot.0) <= adapters {
        return Ok(());
    }
    let message = format!("adapter slot {} is out of range: the model has {adapters} adapters", slot.0);
    Err(Error::argument("adapter", message))
}

/// Returns an error if a token is not in the vocabulary.
pub(super) fn check_tokens(tokens: &[u32], vocabulary: usize) -> Result<()> {
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        Some(token) => {
            let message = format!("token {token} is out of range for a vocabulary of {vocabulary} tokens");
            Err(Error::argument("tokens", message))
        }
        None => Ok(()),
    }
}

impl Batch {
    /// Appends the tokens of an entry, whose sequence has `start` tokens before them and will have `expected`.
    pub(super) fn push_entry(&mut self, entry: &BatchEntry<'_>, start: usize, expected: usize) {
        let first = self.rows.len();
        self.output_rows.extend(entry.outputs.of(entry.tokens.len()).map(|token| first + token));
        let &BatchEntry { sequence, adapter, .. } = entry;
        for (index, &token) in entry.tokens.iter().enumerate() {
            let position = start + index;
            let rope_length = expected.max(position + 1);
            let (token_type, global_index) = (0, None);
            self.push(TokenRow { sequence, position, token, token_type, global_index, rope_length, adapter });
        }
    }

    /// Appends the rows of a validated sequence. `before` is the number of global rows before those that
    /// [`Batch::mark_global`] marked for it; `columns` is the number of features of a frame.
    pub(super) fn push_text(
        &mut self,
        text: &SequenceInput<'_>,
        checked: &CheckedInput<'_>,
        before: usize,
        columns: usize,
    ) {
        let &CheckedInput { count, padding_token, .. } = checked;
        let &SequenceInput { sequence, adapter, .. } = text;
        let rope_length = count;
        let first = self.rows.len();
        self.output_rows.extend(text.outputs.of(count).map(|token| first + token));
        for position in 0..count {
            let at = |list: &[u32]| list.get(position).copied().unwrap_or(0);
            let (token, token_type) = (at(text.tokens), at(text.token_type_ids));
            let global_index = self.global_rows[before..].binary_search(&(first + position)).ok();
            self.push(TokenRow { sequence, position, token, token_type, global_index, rope_length, adapter });
        }
        if let Some(token) = padding_token {
            // Stored after all positions that are attended to.
            let position = count + self.global_rows.len() - before;
            let (token_type, global_index) = (0, None);
            self.push(TokenRow { sequence, position, token, token_type, global_index, rope_length, adapter });
        }
        let first = self.frames.len();
        let end = first + text.features.len() / columns.max(1);
        self.frames.resize(end, (first, end));
        self.row_frames.resize(self.rows.len(), first);
        self.features.extend_from_slice(text.features);
    }

    /// Marks global-attention rows of the sequence of `count` rows that is appended next.
    pub(super) fn mark_global(&mut self, global: &[usize], count: usize) {
        let first = self.rows.len();
        let mask = &mut self.global_token_mask;
        mask.resize(first + count, 0.0);
        global.iter().for_each(|&position| mask[first + position] = HIDDEN);
        self.global_rows.extend((first..first + count).filter(|&row| mask[row] != 0.0));
    }
}
