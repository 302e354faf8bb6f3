//! The sizes of a cache, computed before it is allocated.

use super::{CacheOptions, Keep, LayerPlace, Window};
use crate::graph::{Attention, AttentionMask};
use crate::{Error, Result};
use siskin_kernels::ops::attention::BLOCK;

/// Forks of sequences with recurrent states that there are extra blocks for.
const FORKS: usize = 6;

/// The blocks of one kind.
pub(super) struct KindShape {
    pub keep: Keep,
    /// Words of a block.
    pub words: usize,
    /// The number of blocks.
    pub blocks: usize,
}

/// The layout of a cache.
pub(crate) struct CacheShape {
    pub(super) layers: Vec<Option<LayerPlace>>,
    pub(super) states: Vec<usize>,
    pub(super) mixed: usize,
    pub(super) kinds: Vec<KindShape>,
}

impl CacheShape {
    /// Computes the layout for some attention layers and recurrent states, given their sizes in words.
    pub(crate) fn new<'a>(
        attentions: impl Iterator<Item = &'a Attention>,
        state_words: impl Iterator<Item = (usize, usize)>,
        options: &CacheOptions,
    ) -> Result<Self> {
        let mut keeps: Vec<Keep> = Vec::new();
        let mut words: Vec<usize> = Vec::new();
        let mut layers = Vec::new();
        let mut marks = false;
        // The two graphs of a model reuse state indices, but at different times.
        let mut sizes: Vec<usize> = Vec::new();
        for (state, size) in state_words {
            sizes.resize(sizes.len().max(state + 1), 0);
            sizes[state] = sizes[state].max(size.div_ceil(16).saturating_mul(16));
        }
        let mut states = Vec::new();
        if !sizes.is_empty() {
            keeps.push(Keep::State);
            let mut end = 0_usize;
            for size in sizes {
                states.push(end);
                end = end.saturating_add(size);
            }
            words.push(end);
        }
        let mut mixed = 0;
        for attention in attentions {
            mixed = mixed.max(attention.projection.map_or(0, |projection| projection.count));
            marks |= matches!(attention.attention_mask, AttentionMask::LongformerLocal(_));
            let keep = Keep::of(attention.attention_mask, options.context);
            let kind = keeps.iter().position(|known| *known == keep).unwrap_or_else(|| {
                keeps.push(keep);
                words.push(0);
                keeps.len() - 1
            });
            let cached = options.types.of(keep);
            if attention.head_size > cached.most_columns() {
                let message = format!("does not support heads of {} columns; use f16", attention.head_size);
                return Err(Error::unsupported("cache", message));
            }
            let head_words = cached.words(attention.head_size);
            let layer_words = 2 * head_words * attention.kv_heads;
            let offset = if keep == Keep::Passing { 0 } else { words[kind] };
            words[kind] = words[kind].max(offset + layer_words);
            layers.resize(layers.len().max(attention.layer + 1), None);
            layers[attention.layer] = Some(LayerPlace { kind, offset, head_words });
        }
        let kind = |(keep, words): (Keep, usize)| {
            let blocks = match keep {
                Keep::Growing(None) => options.context.div_ceil(BLOCK).saturating_mul(options.sequences),
                // Blocks of a window: those it covers, those that a batch adds, and one at either end.
                Keep::Growing(Some(Window { recent, first })) => options
                    .context
                    .min(recent + first.next_multiple_of(BLOCK) + options.batch + 2 * BLOCK)
                    .div_ceil(BLOCK)
                    .saturating_mul(options.sequences),
                // The states before and after the batch, and some for forks.
                Keep::State => options.sequences.saturating_mul(2).saturating_add(FORKS),
                // The last block of each sequence may hold only one position, and all tokens may be global.
                Keep::Passing => (options.text.saturating_mul(1 + usize::from(marks)))
                    .div_ceil(BLOCK)
                    .saturating_add(options.sequences)
                    .saturating_add(mixed.div_ceil(BLOCK).saturating_mul(options.sequences)),
                Keep::Memory => options.text.div_ceil(BLOCK).saturating_mul(options.sequences),
            };
            KindShape { keep, words, blocks }
        };
        let kinds = keeps.into_iter().zip(words).map(kind).collect();
        Ok(Self { layers, states, mixed, kinds })
    }

    /// Returns the bytes of all blocks, saturating.
    pub(crate) fn bytes(&self) -> usize {
        let of = |kind: &KindShape| kind.words.saturating_mul(kind.blocks).saturating_mul(4);
        self.kinds.iter().map(of).fold(0, usize::saturating_add)
    }
}
