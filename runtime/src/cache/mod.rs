//! Keys and values of the tokens seen so far: blocks of positions from one pool per kind of layer.
//!
//! A sequence holds a list of blocks per kind (layers that see everything, layers with a window). Blocks are
//! counted by their users: a fork shares them, and the first to write into a shared block copies it. Blocks
//! that have left a window go back to the pool.
//!
//! A text that is read at once has kinds of its own: layers whose keys are gone after them, which all use the same
//! places, and what is remembered of the text until another is read.

mod pool;
mod save;
mod shape;
mod state;

use crate::graph::{Attention, AttentionMask};
use crate::{Error, ErrorKind, Result};
use pool::Pool;
pub(crate) use save::Saved;
use shape::KindShape;
pub(crate) use shape::Shape;
use siskin_kernels::ops::attention::{self, BLOCK, CacheType};

/// Which sequence of a cache.
pub(crate) type SequenceId = usize;

/// No block: not yet filled, or out of the window.
const NONE: u32 = u32::MAX;

/// Where a layer's keys and values lie in the blocks of its kind.
#[derive(Clone, Copy, Debug)]
struct LayerPlace {
    kind: usize,
    offset: usize,
    /// Words of the keys (and of the values) of one head.
    head_words: usize,
}

/// For how long layers keep what they see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// While the sequence grows, or until it has left the window.
    Growing(Option<Window>),
    /// While the layer is at work on a text.
    Passing,
    /// Until another text is read.
    Memory,
    /// As one block that every batch replaces: what is behind it is the batch before.
    State,
}

/// What of a growing sequence is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// The newest positions.
    recent: usize,
    /// The oldest.
    first: usize,
}

impl Keep {
    fn of(attention_mask: AttentionMask, context: usize) -> Self {
        match attention_mask {
            AttentionMask::Causal(window) => {
                let window = window.filter(|&window| window < context);
                Self::Growing(window.map(|recent| Window { recent, first: 0 }))
            }
            AttentionMask::StreamingLlm { window: recent, first } => Self::Growing(
                Some(Window { recent, first }).filter(|_| recent.saturating_add(first) < context),
            ),
            AttentionMask::CausalEncoder(_) | AttentionMask::Full | AttentionMask::LocalWindow(_) => {
                Self::Passing
            }
            AttentionMask::LongformerLocal(_)
            | AttentionMask::LongformerGlobal
            | AttentionMask::BigBird { .. }
            | AttentionMask::Linformer => Self::Passing,
            AttentionMask::CrossAttention => Self::Memory,
        }
    }

    fn grows(self) -> bool {
        matches!(self, Self::Growing(_))
    }
}

/// Layers that see the same positions.
struct Kind {
    keep: Keep,
    cached: CacheType,
    pool: Pool,
}

impl Kind {
    /// Gives back the blocks that a sequence of `length` tokens will not see again.
    fn drop_unseen(&mut self, blocks: &mut [u32], length: usize) {
        let Keep::Growing(Some(Window { recent, first })) = self.keep else { return };
        let visible = (length + 1).saturating_sub(recent) / BLOCK;
        let dropped = blocks.iter_mut().take(visible).skip(first.div_ceil(BLOCK));
        for block in dropped.filter(|block| **block != NONE) {
            self.pool.release(*block);
            *block = NONE;
        }
    }

    /// Makes positions `length..end` of a sequence its own to write.
    fn extend(&mut self, blocks: &mut Vec<u32>, length: usize, end: usize) -> Result<()> {
        if let Some(last) = blocks.get_mut(length / BLOCK) {
            *last = self.pool.own(*last)?;
        }
        while blocks.len() < end.div_ceil(BLOCK) {
            blocks.push(self.pool.take()?);
        }
        Ok(())
    }

    /// Gives back the blocks behind the first `length` tokens.
    fn cut(&mut self, blocks: &mut Vec<u32>, length: usize) {
        for block in blocks.drain(length.div_ceil(BLOCK).min(blocks.len())..) {
            if block != NONE {
                self.pool.release(block);
            }
        }
    }
}

/// The blocks of one sequence, one list per kind.
struct Sequence {
    /// Tokens of what grows.
    length: usize,
    /// Positions of the text that was read at once.
    text: usize,
    /// How many of them are marked: they have places of their own behind the text.
    marked: usize,
    /// The first tokens that see each other both ways.
    prefix: usize,
    /// Tokens that its states have taken in.
    stated: usize,
    /// Tokens that it is about to have.
    expected: usize,
    blocks: Vec<Vec<u32>>,
}

/// The types of cached numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheTypes {
    /// Of what later tokens see.
    pub kept: CacheType,
    /// Of what only the rows of one batch see, while their layer is at work.
    pub passing: CacheType,
}

impl CacheTypes {
    /// The same for all.
    pub(crate) fn all(kind: CacheType) -> Self {
        Self { kept: kind, passing: kind }
    }

    fn of(self, keep: Keep) -> CacheType {
        if keep == Keep::Passing { self.passing } else { self.kept }
    }
}

/// How large a cache is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheOptions {
    /// The types of cached numbers.
    pub types: CacheTypes,
    /// Positions of the longest sequence.
    pub context: usize,
    /// Sequences that may fill their context at the same time.
    pub sequences: usize,
    /// Rows of the largest batch.
    pub batch: usize,
    /// Positions of all texts that are read in one batch.
    pub text: usize,
}

/// The keys and values of all layers and sequences.
pub(crate) struct Cache {
    pub options: CacheOptions,
    layers: Vec<Option<LayerPlace>>,
    /// Where states lie in the block of their kind.
    states: Vec<usize>,
    /// Positions that a text of any length is mixed into.
    mixed: usize,
    kinds: Vec<Kind>,
    sequences: Vec<Option<Sequence>>,
}

impl Cache {
    /// An empty cache for some attention layers and states, each with its number of words. Its memory is reserved, and
    /// used as it fills.
    pub(crate) fn new<'a>(
        attentions: impl Iterator<Item = &'a Attention>,
        state_words: impl Iterator<Item = (usize, usize)>,
        options: CacheOptions,
    ) -> Result<Self> {
        let Shape { layers, states, mixed, kinds } = Shape::new(attentions, state_words, &options)?;
        let kind = |KindShape { keep, words, blocks }| {
            Ok(Kind { keep, cached: options.types.of(keep), pool: Pool::new(words, blocks)? })
        };
        let kinds = kinds.into_iter().map(kind).collect::<Result<Vec<_>>>()?;
        Ok(Self { options, layers, states, mixed, kinds, sequences: Vec::new() })
    }

    /// Bytes that are reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.kinds.iter().map(|kind| kind.pool.bytes()).sum()
    }

    /// A new, empty sequence.
    pub(crate) fn create(&mut self) -> SequenceId {
        let most = self.most_blocks();
        let blocks = self.kinds.iter().map(|_| Vec::with_capacity(most)).collect();
        self.place(Sequence { length: 0, text: 0, marked: 0, prefix: 0, stated: 0, expected: 0, blocks })
    }

    /// A new sequence that shares all that `of` has.
    pub(crate) fn fork(&mut self, of: SequenceId) -> Result<SequenceId> {
        let most = self.most_blocks();
        let source = self.sequence(of)?;
        let copy = |blocks: &Vec<u32>| {
            let mut copy = Vec::with_capacity(most);
            copy.extend_from_slice(blocks);
            copy
        };
        let blocks = source.blocks.iter().map(copy).collect();
        let fork = Sequence { blocks, ..*source };
        for (kind, blocks) in self.kinds.iter_mut().zip(&fork.blocks) {
            blocks.iter().filter(|&&block| block != NONE).for_each(|&block| kind.pool.share(block));
        }
        Ok(self.place(fork))
    }

    /// Blocks of one kind that a sequence may have.
    fn most_blocks(&self) -> usize {
        self.options.context.max(self.options.text).div_ceil(BLOCK).max(2)
    }

    fn place(&mut self, sequence: Sequence) -> SequenceId {
        match self.sequences.iter().position(Option::is_none) {
            Some(free) => {
                self.sequences[free] = Some(sequence);
                free
            }
            None => {
                self.sequences.push(Some(sequence));
                self.sequences.len() - 1
            }
        }
    }

    /// Gives a sequence's blocks back.
    pub(crate) fn remove(&mut self, id: SequenceId) {
        if let Some(sequence) = self.sequences.get_mut(id).and_then(Option::take) {
            for (kind, blocks) in self.kinds.iter_mut().zip(sequence.blocks) {
                blocks.into_iter().filter(|&block| block != NONE).for_each(|block| kind.pool.release(block));
            }
        }
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence> {
        self.sequences.get(id).and_then(Option::as_ref).ok_or_else(|| no_sequence(id))
    }

    /// Tokens that a sequence holds.
    pub(crate) fn length(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.length)
    }

    /// Positions of the text that a sequence has read at once.
    pub(crate) fn text(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.text)
    }

    /// How many positions of that text are marked.
    pub(crate) fn marked(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.marked)
    }

    /// The first tokens of a sequence, which see each other both ways.
    pub(crate) fn prefix(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.prefix)
    }

    /// Tokens that a sequence is about to have.
    pub(crate) fn expected(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.expected)
    }

    /// Says that a sequence is about to have `length` tokens.
    pub(crate) fn expect(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        sequence.expected = length;
        Ok(())
    }

    /// Lets the first `count` tokens of an empty sequence see each other both ways.
    pub(crate) fn set_prefix(&mut self, id: SequenceId, count: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if sequence.length > 0 {
            let message = "the sequence has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "prefix", message));
        }
        sequence.prefix = count;
        Ok(())
    }

    /// Makes room for a text of `count` positions that is read at once, of which `marked` are marked, and
    /// where it was padded for one more that nobody sees; the text before it is forgotten.
    pub(crate) fn read(&mut self, id: SequenceId, count: usize, marked: usize, padded: bool) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        (sequence.text, sequence.marked) = (0, 0);
        let mixed = self.mixed;
        let kinds = self.kinds.iter_mut().zip(&mut sequence.blocks).filter(|(kind, _)| !kind.keep.grows());
        for (kind, blocks) in kinds {
            if kind.keep == Keep::State && sequence.length > 0 {
                let message = "the sequence has tokens already; reset it first";
                return Err(Error::new(ErrorKind::State, "sequence", message));
            }
            kind.cut(blocks, 0);
            if kind.keep == Keep::State {
                blocks.extend([NONE, kind.pool.take()?]);
                continue;
            }
            let count = if kind.keep == Keep::Passing { count.max(mixed) } else { count };
            let behind = if kind.keep == Keep::Passing { marked } else { 0 } + usize::from(padded);
            if let Err(error) = kind.extend(blocks, 0, count + behind) {
                kind.cut(blocks, 0);
                return Err(error);
            }
        }
        (sequence.text, sequence.marked) = (count, marked);
        Ok(())
    }

    /// Gives back what only the reading of a text needed.
    pub(crate) fn pass(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            if kind.keep == Keep::Passing || kind.keep == Keep::State && sequence.length == 0 {
                kind.cut(blocks, 0);
            }
        }
    }

    /// Forgets all but the first `length` tokens.
    pub(crate) fn truncate(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if length > sequence.length {
            return Err(Error::argument(
                "length",
                format!("the sequence has only {} tokens", sequence.length),
            ));
        }
        if length > 0 {
            sequence.check_cut(&self.kinds, length)?;
        }
        sequence.grown(&mut self.kinds).for_each(|(kind, blocks)| kind.cut(blocks, length));
        (sequence.length, sequence.expected) = (length, 0);
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            if kind.keep == Keep::State {
                kind.undo(blocks, length);
                sequence.stated = length;
            }
        }
        Ok(())
    }

    /// Makes room for `count` more tokens: drops what has left windows, copies a shared block that would be
    /// written, takes new blocks. On an error the sequence is as it was, but for dropped blocks.
    pub(crate) fn extend(&mut self, id: SequenceId, count: usize) -> Result<()> {
        let context = self.options.context;
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        let end = sequence.length + count;
        if end > context {
            return Err(Error::new(
                ErrorKind::TooLong,
                "tokens",
                format!(
                    "{end} tokens do not fit into the context of {context}; open a larger one or truncate"
                ),
            ));
        }
        let length = sequence.length;
        if length < sequence.prefix && (length > 0 || count < sequence.prefix) {
            return Err(Error::argument(
                "tokens",
                format!("the prefix of {} tokens must go in at once; open a larger batch", sequence.prefix),
            ));
        }
        let states = self.kinds.iter_mut().zip(&mut sequence.blocks);
        for (kind, blocks) in states.filter(|(kind, _)| kind.keep == Keep::State) {
            kind.renew(blocks)?;
        }
        sequence.grown(&mut self.kinds).for_each(|(kind, blocks)| kind.drop_unseen(blocks, length));
        let extended =
            sequence.grown(&mut self.kinds).try_for_each(|(kind, blocks)| kind.extend(blocks, length, end));
        if extended.is_err() {
            // What was taken for this call goes back, so that no block stands behind the length.
            sequence.grown(&mut self.kinds).for_each(|(kind, blocks)| kind.cut(blocks, length));
        } else {
            sequence.length = end;
        }
        extended
    }

    /// Keeps what a batch made of a sequence's states.
    pub(crate) fn settle(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            if kind.keep == Keep::State {
                kind.settle(blocks);
            }
        }
        sequence.stated = sequence.length;
    }

    /// Where the layer's keys and values of a sequence are, for reading and for storing.
    pub(crate) fn layer(&self, attention: &Attention, id: SequenceId) -> Option<LayerView<'_>> {
        let place = (*self.layers.get(attention.layer)?)?;
        let kind = self.kinds.get(place.kind)?;
        let blocks = self.sequences.get(id)?.as_ref()?.blocks.get(place.kind)?;
        Some(LayerView { place, pool: &kind.pool, blocks, cached: kind.cached })
    }
}

impl Sequence {
    /// Whether all but the first `length` tokens can be forgotten.
    fn check_cut(&self, kinds: &[Kind], length: usize) -> Result<()> {
        if length < self.prefix.min(self.length) {
            let message = "the tokens before it have seen those after it; reset and prefill again";
            return Err(Error::new(ErrorKind::State, "length", message));
        }
        for (kind, blocks) in kinds.iter().zip(&self.blocks) {
            let seen = match kind.keep {
                Keep::Growing(Some(Window { recent, .. })) => {
                    let first = (length + 1).saturating_sub(recent) / BLOCK;
                    blocks.get(first..length.div_ceil(BLOCK)).is_none_or(|seen| !seen.contains(&NONE))
                }
                Keep::State if length != self.stated => {
                    let message = "a state of constant size does not go back; reset and prefill again";
                    return Err(Error::new(ErrorKind::State, "length", message));
                }
                _ => true,
            };
            if !seen {
                let message =
                    "a sliding window has already dropped the tokens before it; reset and prefill again";
                return Err(Error::new(ErrorKind::State, "length", message));
            }
        }
        Ok(())
    }

    /// The blocks that grow with the sequence, and their kinds.
    fn grown<'a>(
        &'a mut self,
        kinds: &'a mut [Kind],
    ) -> impl Iterator<Item = (&'a mut Kind, &'a mut Vec<u32>)> {
        kinds.iter_mut().zip(&mut self.blocks).filter(|(kind, _)| kind.keep.grows())
    }
}

fn no_sequence(id: SequenceId) -> Error {
    Error::argument("sequence", format!("there is no sequence {id}"))
}

/// A layer's cache of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct LayerView<'a> {
    place: LayerPlace,
    pool: &'a Pool,
    blocks: &'a [u32],
    cached: CacheType,
}

impl<'a> LayerView<'a> {
    /// The type of its numbers.
    pub(crate) fn cached(self) -> CacheType {
        self.cached
    }

    /// The cache of one head.
    pub(crate) fn head(self, head: usize) -> HeadView<'a> {
        HeadView { offset: self.place.offset + 2 * head * self.place.head_words, layer: self }
    }
}

/// One head's keys and values.
#[derive(Clone, Copy)]
pub(crate) struct HeadView<'a> {
    layer: LayerView<'a>,
    offset: usize,
}

impl attention::Cache for HeadView<'_> {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[block];
        self.layer.pool.words(index, self.offset, 2 * words).split_at(words)
    }
}

impl HeadView<'_> {
    /// Stores keys and values from a position on; all lie in one block.
    ///
    /// # Safety
    /// While this runs, nobody else may read or write this head's part of the block that holds `position`.
    pub(crate) unsafe fn store(&self, position: usize, pairs: &[attention::Pair<'_>]) {
        debug_assert!(position % BLOCK + pairs.len() <= BLOCK, "pairs beyond their block");
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[position / BLOCK];
        // SAFETY: the caller's promise.
        let part = unsafe { self.layer.pool.words_mut(index, self.offset, 2 * words) };
        let (keys, values) = part.split_at_mut(words);
        attention::store(self.layer.cached, position % BLOCK, pairs, keys, values);
    }
}

#[cfg(test)]
mod tests;
