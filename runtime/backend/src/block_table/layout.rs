//! Which layers share blocks, and how many blocks there are: computed before anything is allocated.

use super::{CacheOptions, KvGroupKind, SlidingWindow};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{Attention, AttentionMask};
use siskin_kernels::ops::attention::BLOCK;

/// Forks of sequences with recurrent states that there are extra blocks for.
const FORKS: usize = 6;

/// A KV cache group: layers that keep the same positions and share a block pool, as in vLLM's hybrid KV cache manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGroupLayout {
    /// What the layers keep, and for how long.
    pub kind: KvGroupKind,
    /// The number of blocks.
    pub block_count: usize,
}

/// The groups of layers that keep the same positions.
#[derive(Clone, Debug)]
pub struct BlockLayout {
    /// The size that the layout is for.
    pub options: CacheOptions,
    /// The groups.
    pub groups: Vec<KvGroupLayout>,
    /// The group of each attention layer.
    layers: Vec<Option<usize>>,
    /// Positions after the Linformer projection, for sequences of any length.
    pub projected: usize,
}

/// The memory that the keys and values of all sequences may take together.
///
/// With a budget, sequences take blocks as they grow, and the longest ones that the options allow need not fit at the
/// same time; without, they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvBudget {
    /// The maximum number of bytes.
    pub bytes: usize,
}

impl BlockLayout {
    /// Groups some attention layers, and the recurrent states if there are any.
    pub fn new(attentions: &[&Attention], has_states: bool, options: CacheOptions) -> Self {
        let states = has_states.then_some(KvGroupKind::RecurrentState);
        let mut kinds: Vec<KvGroupKind> = states.into_iter().collect();
        let mut layers = Vec::new();
        for attention in attentions {
            let kind = KvGroupKind::of(attention.attention_mask, options.context_length);
            let group = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            });
            layers.resize(layers.len().max(attention.layer + 1), None);
            layers[attention.layer] = Some(group);
        }
        let projections = attentions.iter().filter_map(|attention| attention.projection);
        let projected = projections.map(|projection| projection.count).max().unwrap_or(0);
        let has_global = attentions
            .iter()
            .any(|attention| matches!(attention.attention_mask, AttentionMask::LongformerLocal(_)));
        let extent = Extent { projected, has_global };
        let group = |kind| KvGroupLayout { kind, block_count: extent.blocks(kind, &options) };
        let groups = kinds.into_iter().map(group).collect();
        Self { options, groups, layers, projected }
    }

    /// Returns the group of a layer.
    pub fn group_of(&self, layer: usize) -> Option<usize> {
        *self.layers.get(layer)?
    }

    /// Returns whether a group has a kind that `is_wanted`.
    pub fn has(&self, is_wanted: impl Fn(KvGroupKind) -> bool) -> bool {
        self.groups.iter().any(|group| is_wanted(group.kind))
    }

    /// Returns the maximum number of sequences in a decoder batch: each recurrent state takes a second block meanwhile.
    pub fn max_decoding_sequences(&self) -> usize {
        self.state_group().map_or(usize::MAX, |group| (self.groups[group].block_count / 2).max(1))
    }

    /// Returns the group of the recurrent states.
    pub fn state_group(&self) -> Option<usize> {
        self.groups.iter().position(|group| group.kind == KvGroupKind::RecurrentState)
    }

    /// Reduces the numbers of blocks in proportion, so that they take at most the bytes of `budget`. `block_bytes` has
    /// the size of a block of each group.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] if not even one sequence of the maximum length fits.
    pub fn within(mut self, budget: KvBudget, block_bytes: &[usize]) -> Result<Self> {
        let bytes_of = |blocks: &[usize]| -> u128 {
            blocks.iter().zip(block_bytes).map(|(blocks, bytes)| *blocks as u128 * *bytes as u128).sum()
        };
        let max_blocks: Vec<usize> = self.groups.iter().map(|group| group.block_count).collect();
        let (all, budget_bytes) = (bytes_of(&max_blocks), budget.bytes as u128);
        if all <= budget_bytes {
            return Ok(self);
        }
        let single = CacheOptions { max_sequences: 1, ..self.options };
        let extent = Extent { projected: self.projected, has_global: true };
        let least = |group: &KvGroupLayout| extent.blocks(group.kind, &single).min(group.block_count);
        let least: Vec<usize> = self.groups.iter().map(least).collect();
        let needed = bytes_of(&least);
        if needed > budget_bytes {
            let message = format!(
                "a sequence of {} tokens needs {needed} bytes; the budget is {}; use a smaller context",
                self.options.context_length, budget.bytes
            );
            return Err(Error::new(ErrorKind::Memory, "kv_budget", message));
        }
        // What exceeds one sequence is shared out in proportion.
        let share = (budget_bytes - needed) as f64 / (all - needed) as f64;
        for (group, least) in self.groups.iter_mut().zip(least) {
            group.block_count = least + ((group.block_count - least) as f64 * share) as usize;
        }
        Ok(self)
    }
}

/// What the number of blocks depends on besides the options.
struct Extent {
    /// Positions after the Linformer projection.
    projected: usize,
    /// Whether global tokens are stored a second time.
    has_global: bool,
}

impl Extent {
    /// Returns how many blocks a group needs if all sequences have their maximum length.
    fn blocks(&self, kind: KvGroupKind, options: &CacheOptions) -> usize {
        let CacheOptions { context_length, max_sequences, max_batch_tokens, encoder_context, .. } = *options;
        match kind {
            KvGroupKind::Full => context_length.div_ceil(BLOCK).saturating_mul(max_sequences),
            // Those that the window covers, those that a batch adds, and one at either end.
            KvGroupKind::SlidingWindow(SlidingWindow { window, sinks }) => context_length
                .min(window + sinks.next_multiple_of(BLOCK) + max_batch_tokens + 2 * BLOCK)
                .div_ceil(BLOCK)
                .saturating_mul(max_sequences),
            // The states before and after the batch, and some for forks.
            KvGroupKind::RecurrentState => max_sequences.saturating_mul(2).saturating_add(FORKS),
            // The last block of each sequence may hold only one position, and all tokens may be global.
            KvGroupKind::Transient => (encoder_context.saturating_mul(1 + usize::from(self.has_global)))
                .div_ceil(BLOCK)
                .saturating_add(max_sequences)
                .saturating_add(self.projected.div_ceil(BLOCK).saturating_mul(max_sequences)),
            KvGroupKind::CrossAttention => encoder_context.div_ceil(BLOCK).saturating_mul(max_sequences),
        }
    }
}
