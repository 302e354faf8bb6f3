//! Builds a graph; the calls read like a model's forward pass.

use std::collections::HashMap;

use crate::graph::{Exit, Graph, OutputHead};
use crate::op::{
    Activate, Add, Affine, Attention, CausalConv1d, Clamp, ClampedGate, Combine, DecayGate, Dispatch, Embed,
    EmbedPosition, EmbedSegment, ExpertLinear, Gate, Im2col, InputFeatures, L2Normalize, Linear,
    LinearAttention, Norm, NormKind, Op, RepeatColumns, Rope, Route, Routing, Scale, SelectOutputs,
    SinusoidalPositions, SliceColumns, Softcap, StoreCrossKv,
};
use crate::rope::RopeTable;
use crate::types::{ValueId, Weight, WeightId, WeightRole};
use siskin_kernels::functions::{ActivationFunction, GateLimits};

/// Appends operations to a graph; each method returns the new value.
///
/// Shapes follow from the operations' rules. [`Graph::check`] checks them when the graph is complete.
pub struct Builder<'a> {
    graph: Graph,
    /// Index of each weight: MoE models have tens of thousands.
    weight_ids: HashMap<Weight, WeightId>,
    has: &'a dyn Fn(&str) -> bool,
}

impl<'a> Builder<'a> {
    /// Creates an empty graph. `has` says whether the source has a tensor.
    pub fn new(has: &'a dyn Fn(&str) -> bool) -> Self {
        Self { graph: Graph::default(), weight_ids: HashMap::new(), has }
    }

    /// Returns whether the source has the tensor `name`.
    pub fn has(&self, name: &str) -> bool {
        (self.has)(name)
    }

    /// Finishes the graph of a decoder with the logits of the next token as output.
    pub fn finish(self, output: ValueId) -> Graph {
        self.finish_with(OutputHead::Next, output, output)
    }

    /// Finishes the graph with `output`, which `head` computes from `hidden`.
    pub fn finish_with(mut self, head: OutputHead, hidden: ValueId, output: ValueId) -> Graph {
        self.graph.output = output;
        self.graph.head = head;
        self.graph.hidden = hidden;
        self.graph
    }

    /// Adds an early exit after `layers` layers, with their output `hidden` and the scores `output`.
    pub fn exit(&mut self, layers: usize, hidden: ValueId, output: ValueId) {
        self.graph.exits.push(Exit { layers, hidden, output });
    }

    /// Returns the early exits added so far.
    pub fn exits(&self) -> &[Exit] {
        &self.graph.exits
    }

    /// Returns the number of columns of a value.
    pub fn columns(&self, value: ValueId) -> usize {
        self.graph.values[value].columns
    }

    /// Registers a matrix with `rows` outputs.
    pub fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> WeightId {
        self.weight(name, rows, columns, WeightRole::Matrix)
    }

    /// Registers a vector.
    pub fn vector(&mut self, name: &str, columns: usize) -> WeightId {
        self.weight(name, 1, columns, WeightRole::Vector)
    }

    fn weight(&mut self, name: &str, rows: usize, columns: usize, role: WeightRole) -> WeightId {
        let weight = Weight { name: name.to_owned(), rows, columns, role };
        if let Some(&id) = self.weight_ids.get(&weight) {
            return id;
        }
        let id = self.graph.weights.len();
        self.weight_ids.insert(weight.clone(), id);
        self.graph.weights.push(weight);
        id
    }

    /// Registers a RoPE table.
    pub fn rope_table(&mut self, rope: RopeTable) -> usize {
        if let Some(known) = self.graph.ropes.iter().position(|other| *other == rope) {
            return known;
        }
        self.graph.ropes.push(rope);
        self.graph.ropes.len() - 1
    }

    fn node(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.push(op, inputs)
    }

    /// Looks up token embeddings in the table `name`.
    pub fn embed(&mut self, name: &str, vocabulary: usize, width: usize) -> ValueId {
        let table = self.matrix(name, vocabulary, width);
        self.node(Embed { table }, &[])
    }

    /// Looks up segment embeddings in the table `name`.
    pub fn embed_token_type(&mut self, name: &str, token_types: usize, width: usize) -> ValueId {
        let table = self.matrix(name, token_types, width);
        self.node(EmbedSegment { table }, &[])
    }

    /// Adds sinusoidal position embeddings: sines, then cosines of the angles of a RoPE table at position plus
    /// `offset`.
    pub fn embed_sine(&mut self, rope: usize, offset: usize) -> ValueId {
        self.node(SinusoidalPositions { rope, offset }, &[])
    }

    /// Adds the caller's input features of `columns` columns.
    pub fn features(&mut self, columns: usize) -> ValueId {
        self.node(InputFeatures { columns }, &[])
    }

    /// Im2col: concatenates the rows at `offsets` from each row, or from every `stride`th row.
    pub fn im2col(&mut self, x: ValueId, offsets: &[isize], stride: usize) -> ValueId {
        self.node(Im2col { offsets: offsets.to_vec(), stride }, &[x])
    }

    /// Looks up learned position embeddings in the table `name`.
    pub fn embed_position(&mut self, name: &str, positions: usize, width: usize, offset: usize) -> ValueId {
        let table = self.matrix(name, positions + offset, width);
        self.node(EmbedPosition { table, offset }, &[])
    }

    /// Normalizes groups of `group` columns with `<name>.weight`, and `<name>.bias` if the source has it.
    pub fn norm_of(&mut self, kind: NormKind, x: ValueId, name: &str, group: usize, epsilon: f32) -> ValueId {
        let weight = self.vector(&format!("{name}.weight"), group);
        let bias = format!("{name}.bias");
        let bias = self.has(&bias).then(|| self.vector(&bias, group));
        self.node(Norm { kind, weight, bias, epsilon, group }, &[x])
    }

    /// RMSNorm over the whole row.
    pub fn rms_norm(&mut self, x: ValueId, name: &str, epsilon: f32) -> ValueId {
        self.norm_of(NormKind::Rms, x, name, self.columns(x), epsilon)
    }

    /// LayerNorm over the whole row.
    pub fn layer_norm(&mut self, x: ValueId, name: &str, epsilon: f32) -> ValueId {
        self.norm_of(NormKind::Layer, x, name, self.columns(x), epsilon)
    }

    /// `x · weight + bias`, column-wise, with `<name>.weight` and `<name>.bias`.
    pub fn affine(&mut self, x: ValueId, name: &str) -> ValueId {
        let columns = self.columns(x);
        let weight = self.vector(&format!("{name}.weight"), columns);
        let bias = self.vector(&format!("{name}.bias"), columns);
        self.node(Affine { weight, bias }, &[x])
    }

    /// `x · Wᵀ` with `<name>.weight`, plus `<name>.bias` if the source has it.
    pub fn linear(&mut self, x: ValueId, name: &str, outputs: usize) -> ValueId {
        self.linear_of(x, &format!("{name}.weight"), &format!("{name}.bias"), outputs)
    }

    /// `x · Wᵀ` with the matrix `weight`, plus the vector `bias` if the source has it.
    pub fn linear_of(&mut self, x: ValueId, weight: &str, bias: &str, outputs: usize) -> ValueId {
        let weight = self.matrix(weight, outputs, self.columns(x));
        let bias = self.has(bias).then(|| self.vector(bias, outputs));
        self.node(Linear { parts: vec![(weight, bias)] }, &[x])
    }

    /// Slices `count` columns of `x` from `start`.
    pub fn slice(&mut self, x: ValueId, start: usize, count: usize) -> ValueId {
        self.node(SliceColumns { start, columns: count }, &[x])
    }

    /// Applies RoPE to each head.
    pub fn rope(&mut self, x: ValueId, rope: usize, head_size: usize) -> ValueId {
        self.node(Rope { rope, head_size }, &[x])
    }

    /// Appends `k` and `v` to the KV cache, then attends with `q`.
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, attention: Attention) -> ValueId {
        self.node(attention, &[q, k, v])
    }

    /// Cross-attention of `q` over the stored encoder keys and values.
    pub fn cross_attention(&mut self, q: ValueId, attention: Attention) -> ValueId {
        self.node(attention, &[q])
    }

    /// Attention of `q` over `k` and `v` for global tokens; other rows keep `base`. No other operation may read `base`.
    pub fn attention_from_global(
        &mut self,
        [q, k, v]: [ValueId; 3],
        base: ValueId,
        attention: Attention,
    ) -> ValueId {
        self.node(attention, &[q, k, v, base])
    }

    /// Stores `k` and `v` for the cross-attention of another graph.
    pub fn store_cross_kv(&mut self, k: ValueId, v: ValueId, attention: Attention) {
        self.node(StoreCrossKv { attention }, &[k, v]);
    }

    /// Applies an activation element-wise.
    pub fn activate(&mut self, function: ActivationFunction, x: ValueId) -> ValueId {
        self.node(Activate { function }, &[x])
    }

    /// `activation(gate) · up`.
    pub fn gate(&mut self, function: ActivationFunction, gate: ValueId, up: ValueId) -> ValueId {
        self.node(Gate { function }, &[gate, up])
    }

    /// `g · sigmoid(slope · g) · (u + 1)` of clamped gate and up.
    pub fn clamped_gate(&mut self, limits: GateLimits, gate: ValueId, up: ValueId) -> ValueId {
        self.node(ClampedGate { limits }, &[gate, up])
    }

    /// Repeats every column `times` times (`repeat_interleave`).
    pub fn repeat_columns(&mut self, x: ValueId, times: usize) -> ValueId {
        self.node(RepeatColumns { times }, &[x])
    }

    /// Scales each group of `group` columns to the L2 norm `factor`.
    pub fn l2_normalize(&mut self, x: ValueId, group: usize, epsilon: f32, factor: f32) -> ValueId {
        self.node(L2Normalize { group, epsilon, factor }, &[x])
    }

    /// `exp(−exp(log) · softplus(x + bias))` with the vectors `log` and `bias`.
    pub fn decay_gate(&mut self, x: ValueId, log: &str, bias: &str) -> ValueId {
        let columns = self.columns(x);
        let (log, bias) = (self.vector(log, columns), self.vector(bias, columns));
        self.node(DecayGate { log, bias }, &[x])
    }

    /// Returns the index of the next recurrent state.
    pub fn next_state(&self) -> usize {
        self.graph.states().map(|(state, _)| state + 1).max().unwrap_or(0)
    }

    /// Causal conv1d of each column over the last `taps` tokens with the weights `weight`.
    pub fn causal_conv1d(&mut self, x: ValueId, taps: usize, weight: &str) -> ValueId {
        let (state, columns) = (self.next_state(), self.columns(x));
        let weight = self.vector(weight, columns * taps);
        self.node(CausalConv1d { state, taps, weight }, &[x])
    }

    /// Linear attention with a recurrent state of constant size.
    pub fn linear_attention(&mut self, inputs: &[ValueId], attention: LinearAttention) -> ValueId {
        self.node(attention, inputs)
    }

    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.node(Add, &[a, b])
    }

    /// `factor · x`; `x` itself if the factor is 1.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 { x } else { self.node(Scale { factor }, &[x]) }
    }

    /// `cap · tanh(x / cap)`; `x` itself without a cap.
    pub fn softcap(&mut self, x: ValueId, cap: Option<f32>) -> ValueId {
        match cap {
            Some(cap) => self.node(Softcap { cap }, &[x]),
            None => x,
        }
    }

    /// Clamps to ± `limit`; `x` itself without one.
    pub fn clamp(&mut self, x: ValueId, limit: Option<f32>) -> ValueId {
        match limit {
            Some(limit) => self.node(Clamp { limit }, &[x]),
            None => x,
        }
    }

    /// MoE router: selects experts for each row by `scores`, one score per expert.
    pub fn route(&mut self, scores: ValueId, routing: Routing) -> ValueId {
        self.node(Route { routing }, &[scores])
    }

    /// MoE dispatch: copies each row of `x` once for each of its selected experts.
    pub fn dispatch(&mut self, x: ValueId, routed: ValueId, routing: Routing) -> ValueId {
        self.node(Dispatch { routing }, &[x, routed])
    }

    /// Multiplies dispatched rows by the matrices `name(expert)` of their experts, plus the biases if the source has
    /// them.
    pub fn expert_linear(
        &mut self,
        x: ValueId,
        routed: ValueId,
        routing: Routing,
        name: &dyn Fn(usize) -> String,
        outputs: usize,
    ) -> ValueId {
        let columns = self.columns(x);
        let weights =
            (0..routing.experts).map(|expert| self.matrix(&name(expert), outputs, columns)).collect();
        let bias = |expert: usize| {
            let name = name(expert);
            format!("{}.bias", name.strip_suffix(".weight").unwrap_or(&name))
        };
        let biased = if self.has(&bias(0)) { routing.experts } else { 0 };
        let biases = (0..biased).map(|expert| self.vector(&bias(expert), outputs)).collect();
        self.node(ExpertLinear { routing, weights, biases }, &[x, routed])
    }

    /// MoE combine: sums the outputs of a row's experts, each times its weight.
    pub fn combine(&mut self, x: ValueId, routed: ValueId, routing: Routing) -> ValueId {
        self.node(Combine { routing }, &[x, routed])
    }

    /// Keeps only the output rows.
    pub fn select_outputs(&mut self, x: ValueId) -> ValueId {
        self.node(SelectOutputs, &[x])
    }
}
