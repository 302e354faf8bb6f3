//! Keys and values of the tokens seen so far: blocks of positions from one pool per kind of layer.
//!
//! A sequence holds a list of blocks per kind (layers that see everything, layers with a window). Blocks are
//! counted by their users: a fork shares them, and the first to write into a shared block copies it. Blocks
//! that have left a window go back to the pool.

mod pool;

use crate::graph::{Attention, Graph};
use crate::{Error, ErrorKind, Result};
use pool::Pool;
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

/// Layers that see the same positions.
struct Kind {
    window: Option<usize>,
    pool: Pool,
}

impl Kind {
    /// Gives back the blocks that a sequence of `length` tokens will not see again.
    fn drop_unseen(&mut self, blocks: &mut [u32], length: usize) {
        let Some(window) = self.window else { return };
        let visible = (length + 1).saturating_sub(window) / BLOCK;
        for block in blocks.iter_mut().take(visible).filter(|block| **block != NONE) {
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
    length: usize,
    blocks: Vec<Vec<u32>>,
}

/// How large a cache is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheOptions {
    /// The type of cached numbers.
    pub kind: CacheType,
    /// Positions of the longest sequence.
    pub context: usize,
    /// Sequences that may fill their context at the same time.
    pub sequences: usize,
    /// Rows of the largest batch.
    pub batch: usize,
}

/// The keys and values of all layers and sequences.
pub(crate) struct Cache {
    pub options: CacheOptions,
    layers: Vec<LayerPlace>,
    kinds: Vec<Kind>,
    sequences: Vec<Option<Sequence>>,
}

impl Cache {
    /// An empty cache for the attention layers of `graph`. Its memory is reserved, and used as it fills.
    pub(crate) fn new(graph: &Graph, options: CacheOptions) -> Result<Self> {
        let mut windows: Vec<Option<usize>> = Vec::new();
        let mut words: Vec<usize> = Vec::new();
        let mut layers = Vec::new();
        for attention in graph.attentions() {
            let window = attention.window.filter(|&window| window < options.context);
            let kind = windows.iter().position(|known| *known == window).unwrap_or_else(|| {
                windows.push(window);
                words.push(0);
                windows.len() - 1
            });
            if attention.head_size > options.kind.most_columns() {
                let message = format!("heads of {} columns do not go into it; use f16", attention.head_size);
                return Err(Error::unsupported("cache", message));
            }
            let head_words = options.kind.words(attention.head_size);
            layers.push(LayerPlace { kind, offset: words[kind], head_words });
            words[kind] += 2 * head_words * attention.kv_heads;
        }
        let kinds = windows.into_iter().zip(words).map(|(window, words)| {
            // A window's blocks: those it covers, those a batch adds, and one at either end.
            let reach = window
                .map_or(options.context, |window| options.context.min(window + options.batch + 2 * BLOCK));
            let count = reach.div_ceil(BLOCK).saturating_mul(options.sequences);
            Ok(Kind { window, pool: Pool::new(words, count)? })
        });
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        Ok(Self { options, layers, kinds, sequences: Vec::new() })
    }

    /// Bytes that are reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.kinds.iter().map(|kind| kind.pool.bytes()).sum()
    }

    /// A new, empty sequence.
    pub(crate) fn create(&mut self) -> SequenceId {
        let most = self.options.context.div_ceil(BLOCK);
        let blocks = self.kinds.iter().map(|_| Vec::with_capacity(most)).collect();
        self.place(Sequence { length: 0, blocks })
    }

    /// A new sequence that shares all that `of` has.
    pub(crate) fn fork(&mut self, of: SequenceId) -> Result<SequenceId> {
        let most = self.options.context.div_ceil(BLOCK);
        let source = self.sequence(of)?;
        let copy = |blocks: &Vec<u32>| {
            let mut copy = Vec::with_capacity(most);
            copy.extend_from_slice(blocks);
            copy
        };
        let fork = Sequence { length: source.length, blocks: source.blocks.iter().map(copy).collect() };
        for (kind, blocks) in self.kinds.iter_mut().zip(&fork.blocks) {
            blocks.iter().filter(|&&block| block != NONE).for_each(|&block| kind.pool.share(block));
        }
        Ok(self.place(fork))
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

    /// Forgets all but the first `length` tokens.
    pub(crate) fn truncate(&mut self, id: SequenceId, length: usize) -> Result<()> {
        let sequence = self.sequences.get_mut(id).and_then(Option::as_mut).ok_or_else(|| no_sequence(id))?;
        if length > sequence.length {
            return Err(Error::argument(
                "length",
                format!("the sequence has only {} tokens", sequence.length),
            ));
        }
        for (kind, blocks) in self.kinds.iter().zip(&sequence.blocks) {
            let Some(window) = kind.window else { continue };
            let first = (length + 1).saturating_sub(window) / BLOCK;
            if length > 0
                && blocks.get(first..length.div_ceil(BLOCK)).is_some_and(|seen| seen.contains(&NONE))
            {
                return Err(Error::new(
                    ErrorKind::State,
                    "length",
                    "a sliding window has already dropped the tokens before it; reset and prefill again",
                ));
            }
        }
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            kind.cut(blocks, length);
        }
        sequence.length = length;
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
        for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
            kind.drop_unseen(blocks, length);
        }
        for index in 0..self.kinds.len() {
            if let Err(error) = self.kinds[index].extend(&mut sequence.blocks[index], length, end) {
                // What was taken for this call goes back, so that no block stands behind the length.
                for (kind, blocks) in self.kinds.iter_mut().zip(&mut sequence.blocks) {
                    kind.cut(blocks, length);
                }
                return Err(error);
            }
        }
        sequence.length = end;
        Ok(())
    }

    /// Where the layer's keys and values of a sequence are, for reading and for storing.
    pub(crate) fn layer(&self, attention: &Attention, id: SequenceId) -> Option<LayerView<'_>> {
        let place = *self.layers.get(attention.layer)?;
        let kind = self.kinds.get(place.kind)?;
        let blocks = self.sequences.get(id)?.as_ref()?.blocks.get(place.kind)?;
        Some(LayerView { place, pool: &kind.pool, blocks, cache: self.options.kind })
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
    cache: CacheType,
}

impl<'a> LayerView<'a> {
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
    /// Stores a key and a value.
    ///
    /// # Safety
    /// While this runs, nobody else may read or write this head's part of the block that holds `position`.
    pub(crate) unsafe fn store(&self, position: usize, key: &[f32], value: &[f32]) {
        let words = self.layer.place.head_words;
        let index = self.layer.blocks[position / BLOCK];
        // SAFETY: the caller's promise.
        let part = unsafe { self.layer.pool.words_mut(index, self.offset, 2 * words) };
        let (keys, values) = part.split_at_mut(words);
        attention::store(self.layer.cache, position % BLOCK, key, value, keys, values);
    }
}

#[cfg(test)]
mod tests;
