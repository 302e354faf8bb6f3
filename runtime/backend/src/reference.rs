//! The reference backend: interprets the graph with simple, unoptimized code. All other backends must match it bit for
//! bit.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation is a compile error here")]

use siskin_kernels::Cpu;
use siskin_kernels::ops::{
    Kernels, attention, elementwise::ElementwiseFunction, elementwise::reference_affine, matmul, norm,
    quantize, recurrence, rope,
};
use siskin_kernels::panel::{self, InputKind, ROWS};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kv_storage::{KvStorage, KvStorageLayout, KvView};
use super::moe_routing::{self, Slots, slot_words};
use super::state::{self, LinearAttentionHead};
use super::{
    Backend, Batch, BlockStorage, Capabilities, Distances, Executable, ExecutionLimits, ForwardInput,
    ForwardPass, MemoryUse, ModelWeights, Module, WeightSource, Weights, marked_place,
};
use crate::thread_pool::ThreadPool;
use siskin_format::{Error, Result};
use siskin_graph::{
    Attention, AttentionMask, Graph, LinformerProjection, Node, NormKind, Op, Recurrence, Routing, WeightId,
};
use siskin_kernels::ops::attention::CacheType;

/// A value as a list of rows.
type Table = Vec<Vec<f32>>;

/// The reference code, on one thread.
pub struct ReferenceBackend;

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { kv_cache: true, layer_skipping: true, cpu_features: true }
    }

    fn load(&self, source: &WeightSource<'_>) -> Result<Arc<dyn Module>> {
        Ok(Arc::new(ReferenceModule { weights: Arc::new(ModelWeights::bind(source)?) }))
    }
}

/// A model that the reference code computes.
struct ReferenceModule {
    weights: Arc<ModelWeights>,
}

impl Module for ReferenceModule {
    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Vec<&'static str> {
        vec!["reference"]
    }

    fn cache_type(&self) -> CacheType {
        self.weights.cache_type()
    }

    fn block_bytes(&self, limits: &ExecutionLimits) -> Result<Vec<usize>> {
        Ok(KvStorageLayout::new(&limits.passes, &limits.block_layout)?.block_bytes())
    }

    fn memory_requirements(&self, limits: &ExecutionLimits) -> Result<MemoryUse> {
        let layout = KvStorageLayout::new(&limits.passes, &limits.block_layout)?;
        let (activations, kv_cache) = (self.weights.vector_bytes(), layout.bytes(&limits.block_layout));
        Ok(MemoryUse { activations, kv_cache })
    }

    fn create_executable(&self, limits: &ExecutionLimits) -> Result<Box<dyn Executable>> {
        let passes = Arc::clone(&limits.passes);
        let distances = passes
            .iter()
            .map(|pass| Distances::new(pass.graph.attentions(), self.weights.of(pass.part), pass.positions))
            .collect();
        let layout = KvStorageLayout::new(&passes, &limits.block_layout)?;
        Ok(Box::new(ReferenceExecutable {
            weights: Arc::clone(&self.weights),
            scalar: Kernels::for_cpu(Cpu::scalar()),
            storage: KvStorage::new(layout, &limits.block_layout)?,
            passes,
            distances,
            outputs: Table::new(),
        }))
    }
}

/// The passes of a context, interpreted.
struct ReferenceExecutable {
    weights: Arc<ModelWeights>,
    /// The portable kernels, for functions defined by a polynomial.
    scalar: Kernels,
    storage: KvStorage,
    passes: Arc<[ForwardPass]>,
    /// The biases of each pass.
    distances: Vec<Distances>,
    /// The outputs of the last pass.
    outputs: Table,
}

impl Executable for ReferenceExecutable {
    fn forward(&mut self, _: &mut ThreadPool, input: ForwardInput<'_>) -> Result<()> {
        let pass = &self.passes[input.pass];
        let forward = ReferencePass {
            graph: &pass.graph,
            weights: self.weights.of(pass.part),
            cache: self.storage.view(input.block_table),
            batch: input.batch,
            distances: &self.distances[input.pass],
            scalar: &self.scalar,
            cancel: input.cancel,
        };
        self.outputs = forward.run()?;
        Ok(())
    }

    fn output(&self, row: usize) -> &[f32] {
        self.outputs.get(row).map_or(&[], Vec::as_slice)
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse { activations: self.weights.vector_bytes(), kv_cache: self.storage.bytes() }
    }

    fn block_storage(&self) -> &dyn BlockStorage {
        &self.storage
    }

    fn block_storage_mut(&mut self) -> &mut dyn BlockStorage {
        &mut self.storage
    }
}

/// The inputs of a forward pass.
struct ReferencePass<'a> {
    graph: &'a Graph,
    weights: &'a Weights,
    cache: KvView<'a>,
    batch: &'a Batch,
    distances: &'a Distances,
    scalar: &'a Kernels,
    /// Cancel flag, set by another thread.
    cancel: &'a AtomicBool,
}

impl ReferencePass<'_> {
    /// Computes the outputs of the output rows.
    fn run(&self) -> Result<Table> {
        let mut values: Vec<Table> = vec![Table::new(); self.graph.values.len()];
        for node in &self.graph.nodes {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(Error::cancelled(""));
            }
            values[node.output] = self.node(node, &values);
        }
        Ok(std::mem::take(&mut values[self.graph.output]))
    }

    fn node(&self, node: &Node, values: &[Table]) -> Table {
        let input = |i: usize| &values[node.inputs[i]];
        let columns = self.graph.values[node.output].columns;
        let rows = self.batch.counts().of(self.graph.values[node.output].rows);
        let each = |function: &dyn Fn(usize, &mut [f32])| -> Table {
            let row = |index| {
                let mut out = vec![0.0; columns];
                function(index, &mut out);
                out
            };
            (0..rows).map(row).collect()
        };
        match &node.op {
            Op::Embed { table } => {
                each(&|row, out| self.table_row(*table, self.batch.rows[row].token as usize, out))
            }
            Op::EmbedSegment { table } => {
                each(&|row, out| self.table_row(*table, self.batch.rows[row].segment as usize, out))
            }
            Op::EmbedSine { rope, offset } => {
                let rope = &self.graph.ropes[*rope];
                each(&|row, out| {
                    let position = (self.batch.rows[row].position + offset) as u32;
                    rope::cos_sin(&rope.frequencies, rope.magnitude, position, out);
                    out.rotate_left(columns / 2);
                })
            }
            Op::ExternalInput => {
                each(&|row, out| out.copy_from_slice(&self.batch.external_input[row * columns..][..columns]))
            }
            Op::Features => {
                each(&|row, out| out.copy_from_slice(&self.batch.features[row * columns..][..columns]))
            }
            Op::Im2col { offsets, stride } => {
                let kind = |value: usize| self.graph.values[value].rows;
                let (from, to) = (kind(node.inputs[0]), kind(node.output));
                each(&|row, out| {
                    for (offset, out) in offsets.iter().zip(out.chunks_mut(columns / offsets.len())) {
                        if let Some(other) = self.batch.neighbor(from, to, row, *offset, *stride) {
                            out.copy_from_slice(&input(0)[other]);
                        }
                    }
                })
            }
            Op::EmbedPosition { table, offset } => {
                each(&|row, out| self.table_row(*table, self.batch.rows[row].position + offset, out))
            }
            Op::Norm { kind, weight, bias, epsilon, .. } => {
                let arguments = norm::NormArguments {
                    centered: *kind == NormKind::Layer,
                    weight: self.weights.vector(Some(*weight)),
                    bias: self.weights.vector(*bias),
                    epsilon: *epsilon,
                };
                each(&|row, out| norm::reference(&arguments, &input(0)[row], out))
            }
            Op::Linear { parts } => each(&|row, out| {
                let mut start = 0;
                for &(weight, bias) in parts {
                    let end = start + self.graph.weights[weight].rows;
                    self.product(weight, bias, &input(0)[row], &mut out[start..end]);
                    start = end;
                }
            }),
            Op::Route(routing) => each(&|row, out| moe_routing::route(routing, &input(0)[row], out)),
            Op::Dispatch(routing) => {
                let words = self.arrangement(routing, input(1));
                let slots = Slots::new(routing, &words);
                each(&|slot, out| {
                    if let Some(row) = slots.row(slot) {
                        out.copy_from_slice(&input(0)[row]);
                    }
                })
            }
            Op::ExpertLinear { routing, weights, biases } => {
                let words = self.arrangement(routing, input(1));
                let slots = Slots::new(routing, &words);
                each(&|slot, out| {
                    let expert = (0..routing.experts).find(|&expert| slots.of(expert).contains(&slot));
                    if let Some(expert) = expert {
                        self.product(weights[expert], biases.get(expert).copied(), &input(0)[slot], out);
                    }
                })
            }
            Op::Combine(routing) => {
                let words = self.arrangement(routing, input(1));
                let slots = Slots::new(routing, &words);
                each(&|row, out| slots.combine(row, &input(1)[row], |slot| &input(0)[slot], out))
            }
            Op::SliceColumns { start } => {
                each(&|row, out| out.copy_from_slice(&input(0)[row][*start..][..columns]))
            }
            Op::Rope { rope, head_size } => {
                let table = &self.graph.ropes[*rope];
                each(&|row, out| {
                    let mut cos_sin = vec![0.0; 2 * table.frequencies.len()];
                    let row_of = self.batch.rows[row];
                    super::rope_cos_sin(table, row_of.position, row_of.rope_length, &mut cos_sin);
                    rope::reference(&cos_sin, *head_size, &input(0)[row], out);
                })
            }
            Op::Attention(attention) => {
                if attention.attention_mask != AttentionMask::CrossAttention {
                    self.append(attention, input(1), input(2));
                }
                each(&|row, out| {
                    if attention.attention_mask == AttentionMask::LongformerGlobal
                        && self.batch.rows[row].global_index.is_none()
                    {
                        out.copy_from_slice(&input(3)[row]);
                    } else {
                        self.attend(attention, row, &input(0)[row], out);
                    }
                })
            }
            Op::StoreCrossKv(attention) => {
                self.append(attention, input(0), input(1));
                Table::new()
            }
            Op::Activate(kind) => each(&|row, out| self.scalar.activate()(*kind, &input(0)[row], out)),
            Op::Gate(kind) => {
                each(&|row, out| self.scalar.gate()(*kind, &input(0)[row], &input(1)[row], out))
            }
            Op::GateLimited(limits) => {
                each(&|row, out| self.scalar.limited_gate()(*limits, &input(0)[row], &input(1)[row], out))
            }
            Op::RepeatColumns(times) => each(&|row, out| state::repeat(*times, &input(0)[row], out)),
            Op::L2Normalize { group, epsilon, factor } => {
                each(&|row, out| state::unit(*group, *epsilon, *factor, &input(0)[row], out))
            }
            Op::DecayGate { log, bias } => {
                let (log, bias) = (self.weights.vector(Some(*log)), self.weights.vector(Some(*bias)));
                each(&|row, out| state::decay(log, bias, &input(0)[row], out))
            }
            Op::CausalConv1d { state, taps, weight } => {
                self.convolve(*state, *taps, self.weights.vector(Some(*weight)), input(0))
            }
            Op::LinearAttention(recurrence) => {
                let inputs: Vec<&Table> = node.inputs.iter().map(|&input| &values[input]).collect();
                self.recur(recurrence, &inputs, columns)
            }
            Op::Add => each(&|row, out| self.scalar.add()(&input(0)[row], &input(1)[row], out)),
            Op::Affine { weight, bias } => {
                let (weight, bias) = (self.weights.vector(Some(*weight)), self.weights.vector(Some(*bias)));
                each(&|row, out| {
                    for (((out, x), weight), bias) in out.iter_mut().zip(&input(0)[row]).zip(weight).zip(bias)
                    {
                        *out = reference_affine(*x, *weight, *bias);
                    }
                })
            }
            Op::Scale(factor) => {
                each(&|row, out| self.scalar.map()(ElementwiseFunction::Scale(*factor), &input(0)[row], out))
            }
            Op::Softcap(cap) => {
                each(&|row, out| self.scalar.map()(ElementwiseFunction::Softcap(*cap), &input(0)[row], out))
            }
            Op::Clamp(limit) => {
                each(&|row, out| self.scalar.map()(ElementwiseFunction::Clamp(*limit), &input(0)[row], out))
            }
            Op::SelectOutputs => {
                each(&|row, out| out.copy_from_slice(&input(0)[self.batch.output_rows[row]]))
            }
        }
    }

    fn arrangement(&self, routing: &Routing, routed: &Table) -> Vec<i32> {
        let mut words = vec![0; slot_words(routing, self.batch.rows.len())];
        moe_routing::assign_slots(routing, self.batch, |row| &routed[row], &mut words);
        words
    }

    fn table_row(&self, table: WeightId, row: usize, out: &mut [f32]) {
        let Some(tensor) = self.weights.matrix(table) else { return };
        let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        if let Some(panel) = tensor.data.get(row / ROWS * bytes..(row / ROWS + 1) * bytes) {
            panel::row_values(tensor.panel, panel, row % ROWS, tensor.columns, out);
        }
    }

    fn product(&self, weight: WeightId, bias: Option<WeightId>, x: &[f32], out: &mut [f32]) {
        let Some(tensor) = self.weights.matrix(weight) else { return };
        let mut words = vec![0; quantize::QuantizedRowLayout::new(tensor.columns).words()];
        let input = match tensor.panel.input() {
            InputKind::Float => matmul::Input::Float { rows: x, stride: x.len() },
            InputKind::Quantized => {
                quantize::reference(x, &mut words);
                matmul::Input::Quantized(&words)
            }
            InputKind::Rotated => {
                quantize::reference_rotated(x, &mut words);
                matmul::Input::Rotated(&words)
            }
        };
        let product = matmul::MatmulOperands {
            panel: tensor.panel,
            weights: &tensor.data,
            outputs: tensor.rows,
            columns: tensor.columns,
            bias: self.weights.vector(bias),
            input,
        };
        let mut scratch = vec![0.0; tensor.columns];
        for (output, out) in out.iter_mut().enumerate() {
            *out = matmul::reference(&product, 0, output, &mut scratch);
        }
    }

    /// Returns the rows of a sequence, in order.
    fn rows_of(&self, sequence: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.batch.rows.len()).filter(move |&row| self.batch.rows[row].sequence == sequence)
    }

    fn convolve(&self, number: usize, taps: usize, weights: &[f32], x: &Table) -> Table {
        let mut out = x.clone();
        let columns = x.first().map_or(0, Vec::len);
        for &sequence in &self.batch.sequences {
            let Some(state) = self.cache.state(number, sequence) else { continue };
            for first in (0..columns).step_by(state::COLUMNS) {
                let part = first..columns.min(first + state::COLUMNS);
                let weights = &weights[part.start * taps..part.end * taps];
                // SAFETY: the reference backend is single-threaded.
                let history = unsafe { state.begin(first * (taps - 1), part.len() * (taps - 1)) };
                for row in self.rows_of(sequence) {
                    let (x, out) = (&x[row][part.clone()], &mut out[row][part.clone()]);
                    state::convolve(taps, weights, history, x, out);
                }
            }
        }
        out
    }

    fn recur(&self, recurrence: &Recurrence, inputs: &[&Table], columns: usize) -> Table {
        let size = recurrence.value_size;
        let mut table = vec![vec![0.0; columns]; self.batch.rows.len()];
        let mut scratch = vec![0.0; state::scratch_size(recurrence)];
        for &sequence in &self.batch.sequences {
            let Some(state) = self.cache.state(recurrence.state, sequence) else { continue };
            for head in 0..recurrence.heads {
                let words = recurrence.head_words();
                // SAFETY: the reference backend is single-threaded.
                let numbers = unsafe { state.begin(head * words, words) };
                let input = |number: usize, row: usize| inputs[number][row].as_slice();
                let out = |row: usize, finish: &mut dyn FnMut(&mut [f32])| {
                    finish(&mut table[row][head * size..(head + 1) * size]);
                };
                let mut head =
                    LinearAttentionHead::new(recurrence, head, recurrence::reference, &mut scratch);
                head.run(self.rows_of(sequence), input, out, numbers);
            }
        }
        table
    }

    fn append_mixed(
        &self,
        attention: &Attention,
        projection: LinformerProjection,
        keys: &Table,
        values: &Table,
    ) {
        let size = attention.head_size;
        let weights = [projection.keys, projection.values].map(|id| self.weights.vector(Some(id)));
        for &sequence in &self.batch.sequences {
            let Some(layer) = self.cache.layer(attention, sequence) else { continue };
            for (head, sum) in
                (0..attention.kv_heads).flat_map(|h| (0..projection.count).map(move |s| (h, s)))
            {
                let part = sum * projection.positions..(sum + 1) * projection.positions;
                let mixed = |table: &Table, weights: &[f32]| {
                    let rows = self.rows_of(sequence).map(|row| &table[row][head * size..(head + 1) * size]);
                    let mut out = vec![0.0; size];
                    state::mix(&weights[part.clone()], rows, &mut out);
                    out
                };
                let (key, value) = (mixed(keys, weights[0]), mixed(values, weights[1]));
                // SAFETY: the reference backend is single-threaded.
                unsafe { layer.head(head).store(sum, &[(&key, &value)]) }
            }
        }
    }

    fn append(&self, attention: &Attention, keys: &Table, values: &Table) {
        if let Some(projection) = attention.projection {
            return self.append_mixed(attention, projection, keys, values);
        }
        for (index, row) in self.batch.rows.iter().enumerate() {
            let Some(layer) = self.cache.layer(attention, row.sequence) else { continue };
            for head in 0..attention.kv_heads {
                let columns = head * attention.head_size..(head + 1) * attention.head_size;
                let (key, value) = (&keys[index][columns.clone()], &values[index][columns]);
                let second = marked_place(attention, *row, self.cache.table);
                for place in [Some(row.position), second].into_iter().flatten() {
                    // SAFETY: the reference backend is single-threaded.
                    unsafe { layer.head(head).store(place, &[(key, value)]) }
                }
            }
        }
    }

    fn attend(&self, attention: &Attention, row: usize, queries: &[f32], out: &mut [f32]) {
        let size = attention.head_size;
        let place = self.batch.rows[row];
        let Some(layer) = self.cache.layer(attention, place.sequence) else { return };
        let arguments = attention::AttentionArguments {
            head_size: size,
            scale: attention.scale,
            softcap: attention.softcap.unwrap_or(0.0),
            cache: layer.cached(),
        };
        let (mut scores, mut columns) = (vec![0.0; attention::CHUNK], vec![0.0; 2 * size]);
        let seen_from = super::place(place, self.cache.table);
        let (first, last) = attention.seen(seen_from);
        for (head, (values, out)) in queries.chunks(size).zip(out.chunks_mut(size)).enumerate() {
            let query = attention::Query {
                values,
                position: place.position,
                first,
                last,
                slope: attention.alibi.get(head).copied().unwrap_or(0.0),
                bias: self.batch.bias(attention, self.distances, head, row, last, self.cache.table),
                also: attention.also_seen(seen_from),
                sink: self.weights.vector(attention.sinks).get(head).copied(),
            };
            let head = layer.head(head * attention.kv_heads / attention.heads);
            attention::reference(&arguments, &query, &head, &mut scores, &mut columns, out);
        }
    }
}
