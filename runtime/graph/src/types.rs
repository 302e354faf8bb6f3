//! The types that operations are described with: values, weights, masks, routing.

/// Index of a [`ValueShape`] in [`Graph::values`](crate::Graph::values).
pub type ValueId = usize;
/// Index of a [`Weight`] in [`Graph::weights`](crate::Graph::weights).
pub type WeightId = usize;

/// The kind of rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// One for each token of the batch.
    Tokens,
    /// One for each token whose output was requested.
    Outputs,
    /// One for each frame of the features that the batch's rows are computed from.
    Frames,
    /// This many for each token of the batch: one for each selected expert.
    Slots(usize),
}

/// The numbers of rows of a batch, or of the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Tokens.
    pub tokens: usize,
    /// Tokens whose output is requested.
    pub outputs: usize,
    /// Frames of the features.
    pub frames: usize,
}

impl RowCounts {
    /// Returns the number of rows of a kind, saturating.
    pub fn of(&self, rows: RowKind) -> usize {
        match rows {
            RowKind::Tokens => self.tokens,
            RowKind::Outputs => self.outputs,
            RowKind::Frames => self.frames,
            RowKind::Slots(top_k) => self.tokens.saturating_mul(top_k),
        }
    }
}

/// The shape of a value: its kind of rows and its number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueShape {
    /// The kind of rows.
    pub rows: RowKind,
    /// The number of columns.
    pub columns: usize,
}

/// How a weight is stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRole {
    /// A matrix in packed panels: rows are outputs (or table entries), columns are inputs.
    Matrix,
    /// f32 values, one row.
    Vector,
}

/// A tensor that the graph needs from the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Weight {
    /// The name in the file, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Output rows; 1 for a vector.
    pub rows: usize,
    /// Input columns, or the length of a vector.
    pub columns: usize,
    /// Packed matrix or plain vector.
    pub role: WeightRole,
}

/// The kind of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// RMSNorm: divides by the root mean square.
    Rms,
    /// LayerNorm: subtracts the mean, then divides by the standard deviation.
    Layer,
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

/// Linear attention: each head has a state matrix of constant size, which is updated with the key and value of each
/// token and read with its query.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// Index of the state.
    pub state: usize,
    /// The number of heads with a state.
    pub heads: usize,
    /// Query heads; divides `heads`.
    pub query_heads: usize,
    /// Key heads; divides `heads`.
    pub key_heads: usize,
    /// Value heads; divides `heads`.
    pub value_heads: usize,
    /// Columns of a query and of a key.
    pub key_size: usize,
    /// Columns of a value.
    pub value_size: usize,
    /// The update rule of the state.
    pub rule: RecurrenceRule,
}

/// The update rule of a recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrenceRule {
    /// Linear attention (arXiv:2006.16236): adds `k · vᵀ`; results are divided by the product of the query with the sum
    /// of the keys. Inputs: q, k, v.
    Sum,
    /// The same, bidirectional: the state takes the whole sequence before the first query.
    WholeSum,
    /// Gated delta rule: the state decays, then a fraction of its value for the key is replaced.
    /// Inputs: q, k, v, and the decay and the fraction (beta) of each head.
    Delta,
}

/// Columns of a state panel.
pub const STATE_PANEL: usize = 16;

impl Recurrence {
    /// Returns the columns of a head's state, rounded up to whole panels.
    pub fn state_columns(&self) -> usize {
        let normalizer = usize::from(self.rule != RecurrenceRule::Delta);
        (self.value_size + normalizer).next_multiple_of(STATE_PANEL)
    }

    /// Returns the number of f32 values of a head's state.
    pub fn head_words(&self) -> usize {
        self.state_columns().saturating_mul(self.key_size)
    }
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

/// MoE routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// The number of experts.
    pub experts: usize,
    /// Experts selected per row (top-k).
    pub top_k: usize,
    /// Whether the weights of the selected experts are normalized to a sum of 1.
    pub normalize: bool,
    /// Expert capacity: the maximum number of rows of a sequence that an expert takes in one pass; further rows skip
    /// it. It is counted per pass, as in the reference implementation, so each batch of a sequence that is fed in
    /// several starts anew.
    pub capacity: Option<usize>,
}
