//! Builds a graph; the calls read like a model's forward pass.

use std::collections::HashMap;

use super::{
    ActivationFunction, Attention, Exit, GateLimits, Graph, Node, NormKind, Op, OutputHead, Recurrence, Rope,
    Routing, RowKind, ValueId, ValueShape, Weight, WeightId, WeightRole,
};

/// Appends operations to a graph; each method returns the new value.
///
/// Shapes are checked when the plan binds the weights, not here: a wrong width can be an error of the file as well as
/// of the family.
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
    pub fn rope_table(&mut self, rope: Rope) -> usize {
        if let Some(known) = self.graph.ropes.iter().position(|other| *other == rope) {
            return known;
        }
        self.graph.ropes.push(rope);
        self.graph.ropes.len() - 1
    }

    fn node(&mut self, op: Op, inputs: &[ValueId], columns: usize) -> ValueId {
        let rows = match (&op, inputs.first()) {
            (Op::SelectOutputs, _) => RowKind::Outputs,
            (Op::Features, _) => RowKind::Frames,
            (Op::Dispatch(routing), _) => RowKind::Slots(routing.top_k),
            (Op::Combine(_), _) => RowKind::Tokens,
            (Op::Im2col { stride: 2.., .. }, _) => RowKind::Tokens,
            (_, Some(&first)) => self.graph.values[first].rows,
            (_, None) => RowKind::Tokens,
        };
        self.graph.values.push(ValueShape { rows, columns });
        let output = self.graph.values.len() - 1;
        self.graph.nodes.push(Node { op, inputs: inputs.to_vec(), output });
        output
    }

    fn same(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let columns = self.columns(inputs[0]);
        self.node(op, inputs, columns)
    }

    /// Looks up token embeddings in the table `name`.
    pub fn embed(&mut self, name: &str, vocabulary: usize, width: usize) -> ValueId {
        let table = self.matrix(name, vocabulary, width);
        self.node(Op::Embed { table }, &[], width)
    }

    /// Looks up segment embeddings in the table `name`.
    pub fn embed_segment(&mut self, name: &str, segments: usize, width: usize) -> ValueId {
        let table = self.matrix(name, segments, width);
        self.node(Op::EmbedSegment { table }, &[], width)
    }

    /// Adds sinusoidal position embeddings: sines, then cosines of the angles of a RoPE table at position plus
    /// `offset`.
    pub fn embed_sine(&mut self, rope: usize, offset: usize) -> ValueId {
        let columns = 2 * self.graph.ropes[rope].frequencies.len();
        self.node(Op::EmbedSine { rope, offset }, &[], columns)
    }

    /// Adds the caller's input features of `columns` columns.
    pub fn features(&mut self, columns: usize) -> ValueId {
        self.node(Op::Features, &[], columns)
    }

    /// Im2col: concatenates the rows at `offsets` from each row, or from every `stride`th row.
    pub fn im2col(&mut self, x: ValueId, offsets: &[isize], stride: usize) -> ValueId {
        let columns = offsets.len() * self.columns(x);
        self.node(Op::Im2col { offsets: offsets.to_vec(), stride }, &[x], columns)
    }

    /// Looks up learned position embeddings in the table `name`.
    pub fn embed_position(&mut self, name: &str, positions: usize, width: usize, offset: usize) -> ValueId {
        let table = self.matrix(name, positions + offset, width);
        self.node(Op::EmbedPosition { table, offset }, &[], width)
    }

    /// Normalizes groups of `group` columns with `<name>.weight`, and `<name>.bias` if the source has it.
    pub fn norm_of(&mut self, kind: NormKind, x: ValueId, name: &str, group: usize, epsilon: f32) -> ValueId {
        let weight = self.vector(&format!("{name}.weight"), group);
        let bias = format!("{name}.bias");
        let bias = self.has(&bias).then(|| self.vector(&bias, group));
        self.same(Op::Norm { kind, weight, bias, epsilon, group }, &[x])
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
        self.same(Op::Affine { weight, bias }, &[x])
    }

    /// `x · Wᵀ` with `<name>.weight`, plus `<name>.bias` if the source has it.
    pub fn linear(&mut self, x: ValueId, name: &str, outputs: usize) -> ValueId {
        self.linear_of(x, &format!("{name}.weight"), &format!("{name}.bias"), outputs)
    }

    /// `x · Wᵀ` with the matrix `weight`, plus the vector `bias` if the source has it.
    pub fn linear_of(&mut self, x: ValueId, weight: &str, bias: &str, outputs: usize) -> ValueId {
        let weight = self.matrix(weight, outputs, self.columns(x));
        let bias = self.has(bias).then(|| self.vector(bias, outputs));
        self.node(Op::Linear { parts: vec![(weight, bias)] }, &[x], outputs)
    }

    /// Slices `count` columns of `x` from `start`.
    pub fn slice(&mut self, x: ValueId, start: usize, count: usize) -> ValueId {
        self.node(Op::SliceColumns { start }, &[x], count)
    }

    /// Applies RoPE to each head.
    pub fn rope(&mut self, x: ValueId, rope: usize, head_size: usize) -> ValueId {
        self.same(Op::Rope { rope, head_size }, &[x])
    }

    /// Appends `k` and `v` to the KV cache, then attends with `q`.
    pub fn attention(&mut self, q: ValueId, k: ValueId, v: ValueId, attention: Attention) -> ValueId {
        let columns = attention.heads * attention.head_size;
        self.node(Op::Attention(attention), &[q, k, v], columns)
    }

    /// Cross-attention of `q` over the stored encoder keys and values.
    pub fn cross_attention(&mut self, q: ValueId, attention: Attention) -> ValueId {
        let columns = attention.heads * attention.head_size;
        self.node(Op::Attention(attention), &[q], columns)
    }

    /// Attention of `q` over `k` and `v` for global tokens; other rows keep `base`. No other operation may read `base`.
    pub fn attention_from_global(
        &mut self,
        [q, k, v]: [ValueId; 3],
        base: ValueId,
        attention: Attention,
    ) -> ValueId {
        let columns = attention.heads * attention.head_size;
        self.node(Op::Attention(attention), &[q, k, v, base], columns)
    }

    /// Stores `k` and `v` for the cross-attention of another graph.
    pub fn store_cross_kv(&mut self, k: ValueId, v: ValueId, attention: Attention) {
        self.node(Op::StoreCrossKv(attention), &[k, v], 0);
    }

    /// Applies an activation element-wise.
    pub fn activate(&mut self, kind: ActivationFunction, x: ValueId) -> ValueId {
        self.same(Op::Activate(kind), &[x])
    }

    /// `activation(gate) · up`.
    pub fn gate(&mut self, kind: ActivationFunction, gate: ValueId, up: ValueId) -> ValueId {
        self.same(Op::Gate(kind), &[gate, up])
    }

    /// `g · sigmoid(slope · g) · (u + 1)` of clamped gate and up.
    pub fn clamped_gate(&mut self, limits: GateLimits, gate: ValueId, up: ValueId) -> ValueId {
        self.same(Op::GateLimited(limits), &[gate, up])
    }

    /// Repeats every column `times` times (`repeat_interleave`).
    pub fn repeat_columns(&mut self, x: ValueId, times: usize) -> ValueId {
        let columns = self.columns(x) * times;
        self.node(Op::RepeatColumns(times), &[x], columns)
    }

    /// Scales each group of `group` columns to the L2 norm `factor`.
    pub fn l2_normalize(&mut self, x: ValueId, group: usize, epsilon: f32, factor: f32) -> ValueId {
        self.same(Op::L2Normalize { group, epsilon, factor }, &[x])
    }

    /// `exp(−exp(log) · softplus(x + bias))` with the vectors `log` and `bias`.
    pub fn decay_gate(&mut self, x: ValueId, log: &str, bias: &str) -> ValueId {
        let columns = self.columns(x);
        let (log, bias) = (self.vector(log, columns), self.vector(bias, columns));
        self.same(Op::DecayGate { log, bias }, &[x])
    }

    /// Returns the index of the next recurrent state.
    pub fn next_state(&self) -> usize {
        self.graph.states().map(|(state, _)| state + 1).max().unwrap_or(0)
    }

    /// Causal conv1d of each column over the last `taps` tokens with the weights `weight`.
    pub fn causal_conv1d(&mut self, x: ValueId, taps: usize, weight: &str) -> ValueId {
        let (state, columns) = (self.next_state(), self.columns(x));
        let weight = self.vector(weight, columns * taps);
        self.same(Op::CausalConv1d { state, taps, weight }, &[x])
    }

    /// Linear attention with a recurrent state of constant size.
    pub fn linear_attention(&mut self, inputs: &[ValueId], recurrence: Recurrence) -> ValueId {
        let columns = recurrence.heads * recurrence.value_size;
        self.node(Op::LinearAttention(recurrence), inputs, columns)
    }

    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.same(Op::Add, &[a, b])
    }

    /// `factor · x`; `x` itself if the factor is 1.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        if factor == 1.0 { x } else { self.same(Op::Scale(factor), &[x]) }
    }

    /// `cap · tanh(x / cap)`; `x` itself without a cap.
    pub fn softcap(&mut self, x: ValueId, cap: Option<f32>) -> ValueId {
        match cap {
            Some(cap) => self.same(Op::Softcap(cap), &[x]),
            None => x,
        }
    }

    /// Clamps to ± `limit`; `x` itself without one.
    pub fn clamp(&mut self, x: ValueId, limit: Option<f32>) -> ValueId {
        match limit {
            Some(limit) => self.same(Op::Clamp(limit), &[x]),
            None => x,
        }
    }

    /// MoE router: selects experts for each row by `scores`, one score per expert.
    pub fn route(&mut self, scores: ValueId, routing: Routing) -> ValueId {
        self.node(Op::Route(routing), &[scores], 2 * routing.top_k)
    }

    /// MoE dispatch: copies each row of `x` once for each of its selected experts.
    pub fn dispatch(&mut self, x: ValueId, routed: ValueId, routing: Routing) -> ValueId {
        let columns = self.columns(x);
        self.node(Op::Dispatch(routing), &[x, routed], columns)
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
        self.node(Op::ExpertLinear { routing, weights, biases }, &[x, routed], outputs)
    }

    /// MoE combine: sums the outputs of a row's experts, each times its weight.
    pub fn combine(&mut self, x: ValueId, routed: ValueId, routing: Routing) -> ValueId {
        let columns = self.columns(x);
        self.node(Op::Combine(routing), &[x, routed], columns)
    }

    /// Keeps only the output rows.
    pub fn select_outputs(&mut self, x: ValueId) -> ValueId {
        self.same(Op::SelectOutputs, &[x])
    }
}
