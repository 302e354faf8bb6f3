//! Attention over cached keys and values, and rotary position embedding.

use super::operation::check;
use super::{Operands, Operation, ShapeCheck};
use crate::types::{ValueShape, Weight, WeightId};

/// RoPE on each head of `head_size` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Index into [`Graph::ropes`](crate::Graph::ropes).
    pub rope: usize,
    /// Columns per head.
    pub head_size: usize,
}

/// The attention mask: which key positions a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Causal; with a sliding window, only this many, its own position included. Tokens of the sequence's prefix attend
    /// to the whole prefix.
    Causal(Option<usize>),
    /// Causal with a sliding window and attention sinks (StreamingLLM, arXiv:2309.17453).
    StreamingLlm {
        /// Length of the window, the query's own position included.
        window: usize,
        /// The number of sink tokens at the start of the sequence.
        sinks: usize,
    },
    /// Causal, for a sequence that is encoded as a whole.
    CausalEncoder(Option<usize>),
    /// Bidirectional: the whole sequence.
    Full,
    /// Bidirectional: positions up to this distance on either side.
    LocalWindow(usize),
    /// Longformer, local part: positions up to this distance on either side, and the global tokens.
    LongformerLocal(usize),
    /// Longformer, global part: global tokens attend to the whole sequence; other rows are skipped.
    LongformerGlobal,
    /// BigBird, block-sparse: the first and the last block, the query's own and its two neighbors.
    /// Queries of the first and the last block attend to everything, as do all queries of short sequences.
    BigBird {
        /// Tokens per block.
        size: usize,
        /// The number of random blocks. None are drawn here: the first block counts once more for each.
        random: usize,
    },
    /// Linformer (arXiv:2006.04768): the whole sequence, its positions projected to fewer by a [`LinformerProjection`].
    Linformer,
    /// Cross-attention: all stored encoder positions.
    CrossAttention,
}

/// A score bias by key position that comes with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBias {
    /// Longformer: masks global tokens at their own positions.
    GlobalTokens,
    /// BigBird: counts the first block once more for each random block.
    Blocks {
        /// Tokens per block.
        size: usize,
        /// The number of random blocks.
        random: usize,
    },
}

impl AttentionMask {
    /// Returns the score bias by key position, if the mask has one.
    #[inline]
    pub fn key_bias(self) -> Option<KeyBias> {
        match self {
            Self::LongformerLocal(_) => Some(KeyBias::GlobalTokens),
            Self::BigBird { size, random } => Some(KeyBias::Blocks { size, random }),
            Self::Causal(_)
            | Self::StreamingLlm { .. }
            | Self::CausalEncoder(_)
            | Self::Full
            | Self::LocalWindow(_)
            | Self::LongformerGlobal
            | Self::Linformer
            | Self::CrossAttention => None,
        }
    }
}

/// Linformer projection: keys and values become weighted sums over the positions of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinformerProjection {
    /// The number of projected positions.
    pub count: usize,
    /// The maximum sequence length: the columns of the matrices.
    pub positions: usize,
    /// The projection of the keys: one row of weights for each projected position.
    pub keys: WeightId,
    /// The projection of the values.
    pub values: WeightId,
}

/// Relative position bias (T5): a term of the attention score by distance, bucketed more coarsely for
/// larger distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelativePositionBias {
    /// One value for each bucket and head: rows are buckets, columns heads.
    pub table: WeightId,
    /// The number of buckets.
    pub buckets: usize,
    /// Distances from here on share the last bucket.
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own; otherwise they count as distance 0.
    pub bidirectional: bool,
}

impl RelativePositionBias {
    /// Checks that the table has a value for each bucket and head. It may have more buckets, which are not read.
    fn check(&self, operands: &Operands<'_>, heads: usize) -> ShapeCheck {
        let Weight { name, columns, .. } = &operands.weights[self.table];
        let buckets = self.buckets;
        let is_whole = heads > 0 && columns.is_multiple_of(heads) && columns / heads >= buckets;
        check(is_whole, || {
            format!("{name} has {columns} values, which are not those of {buckets} buckets for {heads} heads")
        })
    }

    /// Returns the bucket of a distance from the query to the key: one for each small distance, then logarithmically
    /// spaced.
    pub fn bucket(&self, distance: i64) -> usize {
        let (steps, first) = match self.bidirectional {
            true => (self.buckets / 2, if distance > 0 { self.buckets / 2 } else { 0 }),
            false => (self.buckets, 0),
        };
        let far =
            if self.bidirectional { distance.unsigned_abs() } else { (-distance).max(0) as u64 } as usize;
        let small = steps / 2;
        if far < small.max(1) {
            return first + far.min(steps.saturating_sub(1));
        }
        // In f32, as the models were trained: where a logarithm is close to an integer, more precision gives another
        // bucket.
        let logarithm = |x: f32| libm::log(f64::from(x)) as f32;
        let share = logarithm(far as f32 / small.max(1) as f32);
        let whole = libm::log(self.max_distance as f64 / small.max(1) as f64) as f32;
        // If the maximum distance does not exceed the exact buckets, the division may give any value.
        let step = small + ((share / whole * (steps - small) as f32) as usize).min(steps - small);
        first + step.min(steps.saturating_sub(1))
    }
}

/// Attention of queries over the cached keys and values of a layer.
///
/// Inputs q, k, v: stores k and v in the KV cache, then attends. With cross-attention only q: keys and values are
/// already stored. With the mask of Longformer's global tokens a fourth input: the output of all
/// other rows, which no other node may read.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The KV cache layer.
    pub layer: usize,
    /// Query heads, H.
    pub heads: usize,
    /// Key and value heads, K; divides H (GQA).
    pub kv_heads: usize,
    /// Columns per head, E.
    pub head_size: usize,
    /// Factor on the dot product.
    pub scale: f32,
    /// The attention mask.
    pub attention_mask: AttentionMask,
    /// Softcap: scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// ALiBi: one slope per query head; `slope · (key position − query position)` is added to the
    /// score. Empty: none.
    pub alibi: Vec<f32>,
    /// Relative position bias.
    pub bias: Option<RelativePositionBias>,
    /// One logit for each query head that takes part in the softmax without a value.
    pub sinks: Option<WeightId>,
    /// The projection of [`AttentionMask::Linformer`].
    pub projection: Option<LinformerProjection>,
}

impl Attention {
    /// Returns causal attention of layer 0 without a window, with as many key and value heads as query heads, the scale
    /// 1/√E, and nothing else.
    pub fn causal(heads: usize, head_size: usize) -> Self {
        Self {
            layer: 0,
            heads,
            kv_heads: heads,
            head_size,
            scale: 1.0 / (head_size as f32).sqrt(),
            attention_mask: AttentionMask::Causal(None),
            softcap: None,
            alibi: Vec::new(),
            bias: None,
            sinks: None,
            projection: None,
        }
    }
}

/// Inputs k, v: stores them for the cross-attention of another graph.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreCrossKv {
    /// The attention that reads them.
    pub attention: Attention,
}

impl Operation for Rope {
    fn each_weight(&mut self, _: &mut dyn FnMut(&mut WeightId)) {}

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        operands.has_whole_groups(self.head_size)?;
        let (rotated, size) = (2 * operands.ropes[self.rope].frequencies.len(), self.head_size);
        check(rotated <= size, || format!("rotates {rotated} columns of heads of {size}"))
    }
}

impl Operation for Attention {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        let bias = self.bias.iter_mut().map(|bias| &mut bias.table);
        let projection = self.projection.iter_mut();
        let projection = projection.flat_map(|projection| [&mut projection.keys, &mut projection.values]);
        bias.chain(&mut self.sinks).chain(projection).for_each(change);
    }

    fn input_counts(&self) -> &'static [usize] {
        &[1, 3, 4]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let Self { heads, kv_heads, head_size, .. } = *self;
        let shared = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        check(shared, || format!("{heads} heads on {kv_heads} KV heads"))?;
        operands.input_has(0, heads.saturating_mul(head_size))?;
        if operands.inputs.len() > 1 {
            let columns = kv_heads.saturating_mul(head_size);
            operands.input_has(1, columns)?;
            operands.input_has(2, columns)?;
        }
        self.bias.map_or(Ok(()), |bias| bias.check(operands, heads))?;
        self.sinks.map_or(Ok(()), |sinks| operands.weight_has(sinks, heads))
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(self.heads * self.head_size)
    }
}

impl Operation for StoreCrossKv {
    fn each_weight(&mut self, change: &mut dyn FnMut(&mut WeightId)) {
        self.attention.each_weight(change);
    }

    fn input_counts(&self) -> &'static [usize] {
        &[2]
    }

    fn check(&self, operands: &Operands<'_>) -> ShapeCheck {
        let columns = self.attention.kv_heads.saturating_mul(self.attention.head_size);
        operands.input_has(0, columns)?;
        operands.input_has(1, columns)
    }

    fn output(&self, operands: &Operands<'_>) -> ValueShape {
        operands.with_columns(0)
    }
}
