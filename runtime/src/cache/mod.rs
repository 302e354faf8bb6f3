//! The KV cache (PagedAttention, arXiv:2309.06180): blocks of token positions, allocated from one pool per kind of
//! layer.
//!
//! A sequence has one block list per kind (layers with full attention, layers with a sliding window). Blocks are
//! reference-counted: a fork shares them, and the first sequence to write to a shared block copies it (copy on write).
//! Blocks that have left a sliding window return to the pool.
//!
//! Sequences that are encoded as a whole have kinds of their own: layers whose keys and values are dropped after the
//! layer, all in the same blocks, and the cross-attention keys and values, which stay until the next sequence is
//! encoded.

mod block_pool;
mod save;
mod shape;
mod state;

use crate::graph::{Attention, AttentionMask};
use crate::{Error, ErrorKind, Result};
use block_pool::Pool;
pub(crate) use save::Saved;
pub(crate) use shape::CacheShape;
use shape::KindShape;
use siskin_kernels::ops::attention::{self, BLOCK, CacheType};

/// Index of a sequence in the cache.
pub(crate) type SequenceId = usize;

/// No block: not allocated yet, or dropped from the window.
const NONE: u32 = u32::MAX;

/// The location of a layer's keys and values in the blocks of its kind.
#[derive(Clone, Copy, Debug)]
struct LayerPlace {
    kind: usize,
    offset: usize,
    /// Words of the keys (and of the values) of one head.
    head_words: usize,
}

/// The lifetime of a layer's keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// As long as the sequence, or until they leave the sliding window.
    Growing(Option<Window>),
    /// Until the layer is done with the batch.
    Passing,
    /// Cross-attention: until the next sequence is encoded.
    Memory,
    /// A recurrent state: one block, which every batch replaces. The previous block is the state before the batch.
    State,
}

/// The positions of a growing sequence that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// The number of newest positions.
    recent: usize,
    /// The number of oldest positions (attention sinks).
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

/// Layers that keep the same positions.
struct Kind {
    keep: Keep,
    cached: CacheType,
    pool: Pool,
}

impl Kind {
    /// Frees the blocks that no future token of a sequence of `length` tokens attends to.
    fn drop_unseen(&mut self, blocks: &mut [u32], length: usize) {
        let Keep::Growing(Some(Window { recent, first })) = self.keep else { return };
        let visible = (length + 1).saturating_sub(recent) / BLOCK;
        let dropped = blocks.iter_mut().take(visible).skip(first.div_ceil(BLOCK));
        for block in dropped.filter(|block| **block != NONE) {
            self.pool.release(*block);
            *block = NONE;
        }
    }

    /// Makes the blocks of positions `length..end` writable for one sequence: copies a shared block and allocates new
    /// ones.
    fn extend(&mut self, blocks: &mut Vec<u32>, length: usize, end: usize) -> Result<()> {
        if let Some(last) = blocks.get_mut(length / BLOCK) {
            *last = self.pool.own(*last)?;
        }
        while blocks.len() < end.div_ceil(BLOCK) {
            blocks.push(self.pool.take()?);
        }
        Ok(())
    }

    /// Frees the blocks after the first `length` tokens.
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
    /// Tokens in the growing kinds.
    length: usize,
    /// Positions of the encoded sequence.
    text: usize,
    /// The number of global tokens, which are stored a second time after the sequence.
    marked: usize,
    /// Length of the bidirectional prefix (prefix LM).
    prefix: usize,
    /// Tokens that the recurrent states have processed.
    stated: usize,
    /// Expected length in tokens.
    expected: usize,
    blocks: Vec<Vec<u32>>,
}

/// The element types of the KV cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheTypes {
    /// For keys and values that later batches attend to.
    pub kept: CacheType,
    /// For keys and values that are dropped after their layer.
    pub passing: CacheType,
}

impl CacheTypes {
    /// The same type for all.
    pub(crate) fn all(kind: CacheType) -> Self {
        Self { kept: kind, passing: kind }
    }

    fn of(self, keep: Keep) -> CacheType {
        if keep == Keep::Passing { self.passing } else { self.kept }
    }
}

/// The size of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheOptions {
    /// The element types.
    pub types: CacheTypes,
    /// The maximum sequence length in positions.
    pub context: usize,
    /// The number of sequences that can reach that length at the same time.
    pub sequences: usize,
    /// The maximum number of rows in a decoder batch.
    pub batch: usize,
    /// The maximum number of positions in an encoder batch.
    pub text: usize,
}

/// The keys, values and recurrent states of all layers and sequences.
pub(crate) struct KvCache {
    pub options: CacheOptions,
    layers: Vec<Option<LayerPlace>>,
    /// Offset of each recurrent state in the block of its kind.
    states: Vec<usize>,
    /// Positions after the Linformer projection, for sequences of any length.
    mixed: usize,
    kinds: Vec<Kind>,
    sequences: Vec<Option<Sequence>>,
}

impl KvCache {
    /// Creates an empty cache for some attention layers and recurrent states, given their sizes in words. Memory is
    /// reserved, and committed by the system as it fills.
    pub(crate) fn new<'a>(
        attentions: impl Iterator<Item = &'a Attention>,
        state_words: impl Iterator<Item = (usize, usize)>,
        options: CacheOptions,
    ) -> Result<Self> {
        let CacheShape { layers, states, mixed, kinds } = CacheShape::new(attentions, state_words, &options)?;
        let kind = |KindShape { keep, words, blocks }| {
            Ok(Kind { keep, cached: options.types.of(keep), pool: Pool::new(words, blocks)? })
        };
        let kinds = kinds.into_iter().map(kind).collect::<Result<Vec<_>>>()?;
        Ok(Self { options, layers, states, mixed, kinds, sequences: Vec::new() })
    }

    /// Returns the reserved bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.kinds.iter().map(|kind| kind.pool.bytes()).sum()
    }

    /// Creates an empty sequence.
    pub(crate) fn create(&mut self) -> SequenceId {
        let most = self.most_blocks();
        let blocks = self.kinds.iter().map(|_| Vec::with_capacity(most)).collect();
        self.place(Sequence { length: 0, text: 0, marked: 0, prefix: 0, stated: 0, expected: 0, blocks })
    }

    /// Forks a sequence: the new one shares all blocks of `of`.
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

    /// Returns the maximum number of blocks of one kind per sequence.
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

    /// Frees a sequence and its blocks.
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

    /// Returns the number of tokens in a sequence.
    pub(crate) fn length(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.length)
    }

    /// Returns the length of the encoded sequence in positions.
    pub(crate) fn text(&self, id: SequenceId) -> Result<usize> {
        Ok(self.sequence(id)?.text)
    }

    /// Returns the number of global tokens of the encoded sequence.
    pub(crate) fn marked(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.marked)
    }

    /// Returns the length of a sequence's bidirectional prefix (prefix LM).
    pub(crate) fn prefix(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.prefix)
    }

    /// Returns the expected length of a sequence.
    pub(crate) fn expected(&self, id: SequenceId) -> usize {
        self.sequence(id).map_or(0, |sequence| sequence.expected)
    }

    /// Sets the expected length of a sequence.
    pub(crate) fn expect(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        sequence.expected = length;
        Ok(())
    }

    /// Makes the first `count` tokens of an empty sequence attend to each other bidirectionally.
    pub(crate) fn set_prefix(&mut self, id: SequenceId, count: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if sequence.length > 0 {
            let message = "the sequence has tokens already; reset it first";
            return Err(Error::new(ErrorKind::State, "prefix", message));
        }
        sequence.prefix = count;
        Ok(())
    }

    /// Allocates blocks to encode a sequence of `count` positions, of which `marked` are global tokens, plus one
    /// unattended position if it was padded; drops the previously encoded sequence.
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

    /// Frees the blocks that were only needed while encoding.
    pub(crate) fn pass(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            if kind.keep == Keep::Passing || kind.keep == Keep::State && sequence.length == 0 {
                kind.cut(blocks, 0);
            }
        }
    }

    /// Drops all but the first `length` tokens.
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

    /// Allocates `count` more positions: drops blocks that have left windows, copies a shared block before it is
    /// written, allocates new blocks. On an error the sequence is unchanged except for dropped blocks.
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
                format!("the prefix of {} tokens must be in one batch; use a larger batch", sequence.prefix),
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
            // Free the blocks of this call, so that none lies beyond the length.
            sequence.grown(&mut self.kinds).for_each(|(kind, blocks)| kind.cut(blocks, length));
        } else {
            sequence.length = end;
        }
        extended
    }

    /// Commits the states that a batch computed for a sequence.
    pub(crate) fn settle(&mut self, id: SequenceId) {
        let Some(sequence) = self.sequences.get_mut(id).and_then(Option::as_mut) else { return };
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            if kind.keep == Keep::State {
                kind.settle(blocks);
            }
        }
        sequence.stated = sequence.length;
    }

    /// Returns the layer's keys and values of a sequence, for reading and storing.
    pub(crate) fn layer(&self, attention: &Attention, id: SequenceId) -> Option<LayerView<'_>> {
        let place = (*self.layers.get(attention.layer)?)?;
        let kind = self.kinds.get(place.kind)?;
        let blocks = self.sequences.get(id)?.as_ref()?.blocks.get(place.kind)?;
        Some(LayerView { place, pool: &kind.pool, blocks, cached: kind.cached })
    }
}

impl Sequence {
    /// Checks that all but the first `length` tokens can be dropped.
    fn check_cut(&self, kinds: &[Kind], length: usize) -> Result<()> {
        if length < self.prefix.min(self.length) {
            let message = "is within the prefix, whose tokens attend to each other; reset and prefill again";
            return Err(Error::new(ErrorKind::State, "length", message));
        }
        for (kind, blocks) in kinds.iter().zip(&self.blocks) {
            let seen = match kind.keep {
                Keep::Growing(Some(Window { recent, .. })) => {
                    let first = (length + 1).saturating_sub(recent) / BLOCK;
                    blocks.get(first..length.div_ceil(BLOCK)).is_none_or(|seen| !seen.contains(&NONE))
                }
                Keep::State if length != self.stated => {
                    let message = "recurrent states cannot be rewound; reset and prefill again";
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

    /// Iterates over the block lists that grow with the sequence, with their kinds.
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

/// A layer's keys and values of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct LayerView<'a> {
    place: LayerPlace,
    pool: &'a Pool,
    blocks: &'a [u32],
    cached: CacheType,
}

impl<'a> LayerView<'a> {
    /// Returns the element type.
    pub(crate) fn cached(self) -> CacheType {
        self.cached
    }

    /// Returns the keys and values of one head.
    pub(crate) fn head(self, head: usize) -> HeadView<'a> {
        HeadView { offset: self.place.offset + 2 * head * self.place.head_words, layer: self }
    }
}

/// The keys and values of one head.
#[derive(Clone, Copy)]
pub(crate) struct HeadView<'a> {
    layer: LayerView<'a>,
    offset: usize,
}

impl attention::HeadCache for HeadView<'_> {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[block];
        self.layer.pool.words(index, self.offset, 2 * words).split_at(words)
    }
}

impl HeadView<'_> {
    /// Stores keys and values from a position on; all must lie in one block.
    ///
    /// # Safety
    /// During the call, no other thread may read or write this head's part of the block that holds `position`.
    pub(crate) unsafe fn store(&self, position: usize, pairs: &[attention::Pair<'_>]) {
        debug_assert!(position % BLOCK + pairs.len() <= BLOCK, "pairs beyond their block");
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[position / BLOCK];
        // SAFETY: these are the head's keys and values in the block, which no other thread accesses (see `# Safety`).
        let part = unsafe { self.layer.pool.words_mut(index, self.offset, 2 * words) };
        let (keys, values) = part.split_at_mut(words);
        attention::store(self.layer.cached, position % BLOCK, pairs, keys, values);
    }
}

#[cfg(test)]
mod tests;
