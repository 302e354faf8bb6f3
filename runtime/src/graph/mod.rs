//! What a model computes, and nothing about how: operations over values in the order they are needed.
//!
//! A value is a table with one row per token of the batch (or per wanted row, after [`Op::SelectOutputs`]) and a
//! known number of f32 columns. No kernel, buffer or device is named here.

mod attention_mask;
mod builder;
pub mod pass;
mod rope;
mod used;

pub use attention_mask::{QueryPosition, RUNS};
pub use builder::Builder;
pub use rope::{Growth, Rope, Stretch};

/// Index of a [`Value`] in [`Graph::values`].
pub type ValueId = usize;
/// Index of a [`Weight`] in [`Graph::weights`].
pub type WeightId = usize;

/// How many rows a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One for each token of the batch.
    Batch,
    /// One for each token whose output the caller asked for.
    Outputs,
    /// One for each frame of the features that the batch's rows are made of.
    Frames,
    /// So many for each token of the batch: the experts that it chose.
    Slots(usize),
}

/// The shape of a value: its kind of rows and its number of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// How many rows.
    pub rows: Rows,
    /// How many columns.
    pub columns: usize,
}

/// How a weight is held in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A matrix in packed panels: rows are outputs (or table entries), columns are inputs.
    Matrix,
    /// Plain f32 numbers, one row.
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
    pub role: Role,
}

/// Which mean and deviation a norm takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Divide by the root of the mean square.
    Rms,
    /// Subtract the mean, then divide by the standard deviation.
    Layer,
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// x · sigmoid(x).
    Silu,
    /// The Gaussian error linear unit by the error function.
    Gelu,
    /// The same by the tanh approximation.
    GeluTanh,
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// x + 1 above zero, e^x below.
    EluPlusOne,
}

/// How gates are limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The largest number of a gate; what it is multiplied with stays within ± this.
    pub limit: f32,
    /// Factor within the sigmoid.
    pub slope: f32,
}

/// Which positions a query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionMask {
    /// Its own and those before it; with a window only so many, its own included. Tokens of a sequence's prefix see
    /// all of the prefix.
    Causal(Option<usize>),
    /// Its own and those before it in a window, and the first of the sequence.
    StreamingLlm {
        /// How many in the window, its own included.
        window: usize,
        /// How many of the first.
        first: usize,
    },
    /// The same of a text that is read at once.
    CausalEncoder(Option<usize>),
    /// All of a text that is read at once.
    Full,
    /// Those at most so far away, on either side, of a text that is read at once.
    LocalWindow(usize),
    /// Those at most so far away, on either side, of a text that is read at once, and those that the caller marked.
    LongformerLocal(usize),
    /// All of a text that is read at once, for those that the caller marked; the others do not look.
    LongformerGlobal,
    /// Of a text that is read at once, in blocks: the first and the last block, its own and those to either side; from
    /// the first and the last block all. Texts of few blocks are seen as a whole.
    BigBird {
        /// Tokens of a block.
        size: usize,
        /// How many blocks are drawn beside these: without a draw, the first block counts once more for each.
        random: usize,
    },
    /// All of a text that is read at once, its positions mixed into fewer by a [`Projection`].
    Linformer,
    /// All that an encoder remembered.
    CrossAttention,
}

/// Keys and values that are sums over the positions of a text, each with its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Sums.
    pub count: usize,
    /// Positions of the longest text: the columns of the tables.
    pub positions: usize,
    /// A row of weights for each sum of keys, one after the other.
    pub keys: WeightId,
    /// The same for values.
    pub values: WeightId,
}

/// Attention with a state of constant size: a matrix for each head, which takes in a key and a value of each token and
/// answers its query.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// Which state.
    pub state: usize,
    /// How many heads have a state.
    pub heads: usize,
    /// Heads of queries; divides `heads`.
    pub query_heads: usize,
    /// Heads of keys; divides `heads`.
    pub key_heads: usize,
    /// Heads of values; divides `heads`.
    pub value_heads: usize,
    /// Columns of a query and of a key.
    pub key_size: usize,
    /// Columns of a value.
    pub value_size: usize,
    /// How the state takes tokens in.
    pub rule: RecurrenceRule,
}

/// How a state takes tokens in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrenceRule {
    /// Values are added; results are divided by the query's product with the sum of the keys. Inputs: q, k, v.
    Sum,
    /// The same over a text that is read at once: all of it is taken in before the first query.
    WholeSum,
    /// What the state holds decays, and a part of what it answers to the key is replaced. Inputs: q, k, v, the decay
    /// and the part of each head.
    Delta,
}

/// Columns of a state that lie side by side.
pub(crate) const STATE_PANEL: usize = 16;

impl Recurrence {
    /// Columns of a head's state: whole panels.
    pub(crate) fn state_columns(&self) -> usize {
        let normaliser = usize::from(self.rule != RecurrenceRule::Delta);
        (self.value_size + normaliser).next_multiple_of(STATE_PANEL)
    }

    /// Numbers of a head's state.
    pub(crate) fn head_words(&self) -> usize {
        self.state_columns().saturating_mul(self.key_size)
    }
}

/// A term of the score that depends on how far the key is from the query, with coarser steps the farther it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bias {
    /// One number for each of [`Bias::buckets`] and head, head by head within a bucket.
    pub table: WeightId,
    /// Steps of distance.
    pub buckets: usize,
    /// From this distance on there is only one step.
    pub farthest: usize,
    /// Whether keys after the query have steps of their own; otherwise they count as distance zero.
    pub both_ways: bool,
}

impl Bias {
    /// The step of a distance from the query to the key: one for each small distance, then ever wider ones, evenly by
    /// logarithm.
    pub fn bucket(&self, distance: i64) -> usize {
        let (steps, first) = match self.both_ways {
            true => (self.buckets / 2, if distance > 0 { self.buckets / 2 } else { 0 }),
            false => (self.buckets, 0),
        };
        let far = if self.both_ways { distance.unsigned_abs() } else { (-distance).max(0) as u64 } as usize;
        let small = steps / 2;
        if far < small.max(1) {
            return first + far.min(steps.saturating_sub(1));
        }
        // In f32, as the models were trained: where a logarithm is a whole number, more digits would not do.
        let logarithm = |x: f32| libm::log(f64::from(x)) as f32;
        let share = logarithm(far as f32 / small.max(1) as f32);
        let whole = libm::log(self.farthest as f64 / small.max(1) as f64) as f32;
        // Where the farthest distance is no longer than the small ones, the division gives anything.
        let step = small + ((share / whole * (steps - small) as f32) as usize).min(steps - small);
        first + step.min(steps.saturating_sub(1))
    }
}

/// Attention of queries over a layer's cached keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Which cache the keys and values go to.
    pub layer: usize,
    /// Query heads, H.
    pub heads: usize,
    /// Key and value heads, K; divides H.
    pub kv_heads: usize,
    /// Columns per head, E.
    pub head_size: usize,
    /// Factor on the dot product.
    pub scale: f32,
    /// Which positions a query sees.
    pub attention_mask: AttentionMask,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// One slope per query head: `slope · (key position − query position)` is added to the score. Empty: none.
    pub alibi: Vec<f32>,
    /// What is added to the score by distance.
    pub bias: Option<Bias>,
    /// A score for each query head that takes part in the softmax and has no value.
    pub sinks: Option<WeightId>,
    /// What positions become with [`AttentionMask::Linformer`].
    pub projection: Option<Projection>,
}

/// How rows choose experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// How many there are.
    pub experts: usize,
    /// How many each row chooses.
    pub chosen: usize,
    /// Whether the weights of the chosen are brought to a sum of one.
    pub normalise: bool,
    /// The most rows of a text that an expert takes in one pass; others pass it by. A text that goes through in pieces, as
    /// one that is written token by token, finds room anew in each, as in the reference, which counts by call.
    pub capacity: Option<usize>,
}

/// One semantic operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Rows of a table, chosen by token id.
    Embed {
        /// V × D.
        table: WeightId,
    },
    /// Rows of a table, chosen by the segment of the text that a token is in.
    EmbedSegment {
        /// Segments × D.
        table: WeightId,
    },
    /// Sines, then cosines of a rotary table's angles at a position.
    EmbedSine {
        /// Index into [`Graph::ropes`].
        rope: usize,
        /// Added to the position.
        offset: usize,
    },
    /// The features that the caller gave, frame by frame.
    Features,
    /// Rows that another part of the graph gave, which the caller carried over.
    ExternalInput,
    /// Rows that stand near each other in a sequence, side by side; zeros where there is none.
    Im2col {
        /// How far each is from the row that goes with the output.
        offsets: Vec<isize>,
        /// Input rows for each output row.
        stride: usize,
    },
    /// Rows of a table, chosen by position.
    EmbedPosition {
        /// Positions × D.
        table: WeightId,
        /// Added to the position before the look-up.
        offset: usize,
    },
    /// Normalises each run of `group` columns.
    Norm {
        /// Which norm.
        kind: NormKind,
        /// Factor per column of the group (or of the whole row where it is longer).
        weight: WeightId,
        /// Term per column.
        bias: Option<WeightId>,
        /// Added to the variance.
        epsilon: f32,
        /// Columns that are normalised together.
        group: usize,
    },
    /// Products with one or more matrices, their outputs side by side.
    Linear {
        /// The matrices and biases.
        parts: Vec<(WeightId, Option<WeightId>)>,
    },
    /// Input: a score for each expert. The weights and the numbers of the experts that a row chooses.
    Route(Routing),
    /// Inputs: rows, what was routed. The row of each slot.
    Dispatch(Routing),
    /// Inputs: slots, what was routed. The product of each slot with the matrix of its expert.
    ExpertLinear {
        /// How they were chosen.
        routing: Routing,
        /// One matrix for each expert.
        weights: Vec<WeightId>,
        /// One vector for each expert, or none.
        biases: Vec<WeightId>,
    },
    /// Inputs: slots, what was routed. The weighted sum of each row's slots.
    Combine(Routing),
    /// Some neighbouring columns.
    SliceColumns {
        /// The first.
        start: usize,
    },
    /// Rotary positions on each head of `head_size` columns.
    Rope {
        /// Index into [`Graph::ropes`].
        rope: usize,
        /// Columns per head.
        head_size: usize,
    },
    /// Inputs q, k, v: stores k and v in the cache and attends. With [`AttentionMask::CrossAttention`] only q: the others are there.
    /// With [`AttentionMask::LongformerGlobal`] also what rows that are not marked have in the end, which nothing else may read.
    Attention(Attention),
    /// Inputs k, v: stores them as what the attention with [`AttentionMask::CrossAttention`] of another graph sees.
    StoreCrossKv(Attention),
    /// A function of each number.
    Activate(ActivationKind),
    /// Inputs gate, up: `activation(gate) · up`.
    Gate(ActivationKind),
    /// Inputs gate, up: `g · sigmoid(slope · g) · (u + 1)` of what the limits leave of them.
    GateLimited(Limits),
    /// Every column as many times, side by side.
    RepeatColumns(usize),
    /// Each run of `group` columns brought to length one, times a factor.
    L2Normalize {
        /// Columns of a run.
        group: usize,
        /// Added to the square of the length.
        epsilon: f32,
        /// The length that is wanted.
        factor: f32,
    },
    /// A factor between zero and one: `exp(−exp(log) · softplus(x + bias))`.
    DecayGate {
        /// Per column.
        log: WeightId,
        /// Per column.
        bias: WeightId,
    },
    /// Each column's sum over its last numbers of the sequence, those before the first being zero.
    CausalConv1d {
        /// Which state.
        state: usize,
        /// How many numbers, the newest included.
        taps: usize,
        /// Factors of each column, the oldest first.
        weight: WeightId,
    },
    /// Attention with a state of constant size.
    LinearAttention(Recurrence),
    /// The sum of two values.
    Add,
    /// Every number times a factor of its column, plus a term of its column, rounded once.
    Affine {
        /// Factor per column.
        weight: WeightId,
        /// Term per column.
        bias: WeightId,
    },
    /// Every number times a constant.
    Scale(f32),
    /// Every number x becomes `cap · tanh(x / cap)`.
    Softcap(f32),
    /// Every number limited to ± the constant.
    Clamp(f32),
    /// Keeps the rows whose output is wanted.
    SelectOutputs,
}

/// An operation, its inputs and its one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// From which values.
    pub inputs: Vec<ValueId>,
    /// Into which value.
    pub output: ValueId,
}

/// A model's computation. Nodes stand in an order in which they can run.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// What is computed, in order.
    pub nodes: Vec<Node>,
    /// The values between the nodes.
    pub values: Vec<Value>,
    /// The tensors needed from the file.
    pub weights: Vec<Weight>,
    /// The rotary tables in use.
    pub ropes: Vec<Rope>,
    /// The value that leaves the graph.
    pub output: ValueId,
    /// What its rows are.
    pub head: Head,
    /// What goes into the head.
    pub hidden: ValueId,
    /// Where a text may leave early, in order of layer.
    pub exits: Vec<Exit>,
}

/// A head on top of a layer that is not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How many layers come before it.
    pub layers: usize,
    /// What these give: one row for each token.
    pub hidden: ValueId,
    /// Scores of classes, from the first token of a text.
    pub output: ValueId,
}

/// What the rows that leave a graph are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// The last hidden state of each token.
    #[default]
    Hidden,
    /// Scores of the token that comes next.
    Next,
    /// Scores of the token that stands there.
    Token,
    /// Scores of classes, from the first token of a text.
    Class,
    /// Scores of labels for each token.
    Label,
    /// Two scores for each token: that an answer begins with it, and that it ends.
    Span,
}

impl Graph {
    /// The attention of every layer that has a cache, in order of layer.
    pub fn attentions(&self) -> impl Iterator<Item = &Attention> {
        self.nodes.iter().filter_map(|node| match &node.op {
            Op::Attention(attention) => Some(attention),
            _ => None,
        })
    }

    /// The states of the sequence, each with its number of words.
    pub(crate) fn states(&self) -> impl Iterator<Item = (usize, usize)> {
        self.nodes.iter().filter_map(|node| match &node.op {
            Op::LinearAttention(recurrence) => {
                Some((recurrence.state, recurrence.heads.saturating_mul(recurrence.head_words())))
            }
            Op::CausalConv1d { state, taps, .. } => {
                Some((*state, taps.saturating_sub(1) * self.values[node.output].columns))
            }
            _ => None,
        })
    }

    /// Whether frequencies change with the length of the sequence.
    pub(crate) fn stretches(&self) -> Option<usize> {
        self.ropes.iter().filter_map(|rope| Some(rope.stretch.as_ref()?.length)).min()
    }

    /// The length beyond which a sequence has other frequencies as a whole.
    pub(crate) fn switches(&self) -> Option<usize> {
        let stretches = self.ropes.iter().filter_map(|rope| rope.stretch.as_ref());
        stretches
            .filter(|stretch| matches!(stretch.growth, Growth::Other(_)))
            .map(|stretch| stretch.length)
            .min()
    }

    /// Whether the caller's marks on tokens matter.
    pub fn marks(&self) -> bool {
        self.attentions().any(|attention| {
            matches!(
                attention.attention_mask,
                AttentionMask::LongformerLocal(_) | AttentionMask::LongformerGlobal
            )
        })
    }

    /// Whether tokens look at those beside them before anything else.
    pub fn looks_beside(&self) -> bool {
        let beside = |node: &Node| {
            let of_tokens = |&value: &ValueId| self.values[value].rows == Rows::Batch;
            matches!(node.op, Op::Im2col { .. }) && node.inputs.iter().all(of_tokens)
        };
        self.nodes.iter().any(beside)
    }

    /// How many frames a row of the batch is made of; 0 where it is made of a token.
    pub fn frames_per_row(&self) -> usize {
        let strides = self.nodes.iter().map(|node| match &node.op {
            Op::Features => 1,
            Op::Im2col { stride, .. } => *stride,
            _ => 0,
        });
        let has_features = self.nodes.iter().any(|node| node.op == Op::Features);
        if has_features { strides.max().unwrap_or(0) } else { 0 }
    }

    /// The same computation without what another graph needs of it.
    pub fn without_memory(&self) -> Self {
        let nodes = self.nodes.iter().filter(|node| !matches!(node.op, Op::StoreCrossKv(_)));
        Self { nodes: nodes.cloned().collect(), ..self.clone() }
    }

    /// The same computation, but that tokens see no more than the `recent` newest before them and the `first`.
    pub fn within(&self, recent: usize, first: usize) -> Self {
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            if let Op::Attention(attention) = &mut node.op
                && let AttentionMask::Causal(window) = attention.attention_mask
                && window.is_none_or(|window| window > recent)
            {
                attention.attention_mask = AttentionMask::StreamingLlm { window: recent, first };
            }
        }
        graph
    }

    /// The same computation up to the last hidden state, without the head.
    pub fn without_head(&self) -> Self {
        Self { output: self.hidden, head: Head::Hidden, exits: Vec::new(), ..self.clone() }
    }
}
