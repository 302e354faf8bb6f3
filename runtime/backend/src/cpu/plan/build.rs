//! Schedules the graph's nodes into steps, assigns arena offsets to all values, and fuses operations.

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation is a compile error here")]

use super::arena_allocator::{ArenaRange, Places};
use super::fusion::{self, FusedOp, Fusion};
use super::{BufferView, Epilogue, MatmulPart, Plan, PlanStep, RowOp, Weights, slot_words};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{Attention, Graph, Node, Op, Routing, RowCounts, RowKind, ValueId, WeightId, op};
use siskin_kernels::ops::elementwise::ElementwiseFunction;
use siskin_kernels::ops::quantize::QuantizedRowLayout;
use siskin_kernels::panel::InputKind;

/// The quantized copy of a view.
struct Quantized {
    /// The value that owns the view's buffer: the copy is freed together with it.
    owner: ValueId,
    kind: InputKind,
    from: BufferView,
    to: BufferView,
    place: ArenaRange,
}

struct Planner<'a> {
    graph: &'a Graph,
    weights: &'a Weights,
    /// The maximum numbers of rows in a batch.
    most: RowCounts,
    places: Places,
    /// The view of each computed value.
    views: Vec<Option<BufferView>>,
    /// The value that owns the buffer that each value's view points into.
    owners: Vec<ValueId>,
    /// The allocation of each value that owns a buffer.
    buffers: Vec<Option<ArenaRange>>,
    quantized: Vec<Quantized>,
    /// The last node that reads each value or a view into it.
    last_use: Vec<usize>,
    turns: Vec<Option<BufferView>>,
    /// The MoE slots of each router output, freed together with it.
    slots: Vec<(ValueId, BufferView, ArenaRange)>,
    steps: Vec<PlanStep>,
    /// Nodes that were fused into a matmul.
    absorbed: Vec<usize>,
    /// Allocations that become free after the step that last reads them, with that step's number. The rows of a step
    /// run in parallel, so an allocation must not be reused within one step.
    pending: Vec<(usize, ArenaRange)>,
}

impl Plan {
    /// Builds the plan of `graph` for up to `batch` rows with up to `wanted` output rows.
    pub(crate) fn build(graph: &Graph, weights: &Weights, batch: usize, wanted: usize) -> Result<Self> {
        let frames = batch.saturating_mul(graph.frames_per_row());
        let most = RowCounts { batch, outputs: wanted, frames };
        if graph.nodes.is_empty() {
            // An external backend computes it.
            let output = BufferView { offset: 0, stride: 0, columns: 0 };
            let (steps, ropes) = (Vec::new(), Vec::new());
            return Ok(Self { steps, ropes, words: 0, output, most });
        }
        let mut planner = Planner::new(graph, weights, most);
        for (index, node) in graph.nodes.iter().enumerate() {
            planner.node(index, node)?;
            planner.give_back(index);
        }
        let output = planner.view(graph.output)?;
        Ok(Self {
            steps: planner.steps,
            ropes: graph.ropes.clone(),
            words: planner.places.end(),
            output,
            most,
        })
    }
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, weights: &'a Weights, most: RowCounts) -> Self {
        let count = graph.values.len();
        let mut owners: Vec<ValueId> = (0..count).collect();
        for node in &graph.nodes {
            match (&node.op, &node.inputs[..]) {
                (Op::SliceColumns(_), &[whole, ..]) => owners[node.output] = owners[whole],
                (Op::Attention(_), &[_, _, _, base]) => owners[node.output] = owners[base],
                _ => {}
            }
        }
        let mut last_use = vec![0; count];
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|&input| last_use[owners[input]] = index);
        }
        last_use[owners[graph.output]] = usize::MAX;
        Self {
            graph,
            weights,
            most,
            places: Places::default(),
            views: vec![None; count],
            owners,
            buffers: vec![None; count],
            quantized: Vec::new(),
            last_use,
            turns: vec![None; graph.ropes.len()],
            slots: Vec::new(),
            steps: Vec::new(),
            absorbed: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn view(&self, value: ValueId) -> Result<BufferView> {
        self.views[value]
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "graph", "a value is used before it is made"))
    }

    fn rows(&self, value: ValueId) -> RowKind {
        self.graph.values[value].rows
    }

    fn row_count(&self, rows: RowKind) -> usize {
        self.most.of(rows)
    }

    /// Allocates a buffer for a value that step `step` writes.
    fn allocate(&mut self, value: ValueId, step: usize) -> BufferView {
        self.settle(step);
        let columns = self.graph.values[value].columns;
        // Rows are whole cache lines, to avoid false sharing between workers.
        let stride = columns.next_multiple_of(16);
        let place = self.places.take(stride * self.row_count(self.rows(value)));
        self.buffers[value] = Some(place);
        let view = BufferView { offset: place.offset, stride, columns };
        self.views[value] = Some(view);
        view
    }

    /// Queues the buffers whose last reader is node `index` for freeing.
    fn give_back(&mut self, index: usize) {
        let step = self.steps.len().saturating_sub(1);
        for value in 0..self.last_use.len() {
            if self.last_use[value] == index
                && let Some(place) = self.buffers[value].take()
            {
                self.pending.push((step, place));
            }
        }
        let (last_use, pending) = (&self.last_use, &mut self.pending);
        self.slots.retain(|&(routed, _, place)| {
            let keep = last_use[routed] != index;
            if !keep {
                pending.push((step, place));
            }
            keep
        });
        self.quantized.retain(|made| {
            let keep = last_use[made.owner] != index;
            if !keep {
                pending.push((step, made.place));
            }
            keep
        });
    }

    /// Frees the buffers that were queued before step `step`.
    fn settle(&mut self, step: usize) {
        let places = &mut self.places;
        self.pending.retain(|(last, place)| {
            let keep = *last >= step;
            if !keep {
                places.give_back(*place);
            }
            keep
        });
    }

    /// Returns the step that the next row operation will be part of.
    fn row_step(&self, rows: RowKind) -> usize {
        match self.steps.last() {
            Some(PlanStep::Rows { rows: last, .. }) if *last == rows => self.steps.len() - 1,
            _ => self.steps.len(),
        }
    }

    /// Appends a row operation to the last step if that has the same kind of rows, or else starts a new step.
    fn row_op(&mut self, rows: RowKind, op: RowOp) {
        match self.steps.last_mut() {
            Some(PlanStep::Rows { rows: last, ops }) if *last == rows => ops.push(op),
            _ => self.steps.push(PlanStep::Rows { rows, ops: vec![op] }),
        }
    }

    fn node(&mut self, index: usize, node: &Node) -> Result<()> {
        if self.absorbed.contains(&index) {
            return Ok(());
        }
        let rows = self.rows(node.output);
        match node.op {
            Op::SliceColumns(op::SliceColumns { start, .. }) => {
                let whole = self.view(node.inputs[0])?;
                let columns = self.graph.values[node.output].columns;
                self.views[node.output] = Some(BufferView { offset: whole.offset + start, columns, ..whole });
                Ok(())
            }
            Op::Linear(op::Linear { ref parts }) => self.linear(node, parts),
            Op::Attention(ref attention) => {
                let to = match node.inputs[..] {
                    // Written in place: rows without global attention keep their value.
                    [_, _, _, base] => self.view(base)?,
                    _ => self.allocate(node.output, self.steps.len()),
                };
                self.views[node.output] = Some(to);
                if let [_, keys, values, ..] = node.inputs[..] {
                    self.append(attention, keys, values)?;
                }
                let queries = self.view(node.inputs[0])?;
                self.steps.push(PlanStep::Attend { attention: attention.clone(), queries, to });
                Ok(())
            }
            Op::Im2col(op::Im2col { ref offsets, stride }) => {
                let from = self.view(node.inputs[0])?;
                let rows = [self.rows(node.inputs[0]), rows];
                let op = |to| RowOp::Neighbors { offsets: offsets.clone(), stride, rows, from, to };
                self.gather(node.output, &op);
                Ok(())
            }
            Op::Dispatch(op::Dispatch { routing }) => {
                let (from, slots) = (self.view(node.inputs[0])?, self.slots_of(routing, node.inputs[1])?);
                self.gather(node.output, &|to| RowOp::Dispatch { routing, slots, from, to });
                Ok(())
            }
            Op::Combine(op::Combine { routing }) => {
                let (from, slots) = (self.view(node.inputs[0])?, self.slots_of(routing, node.inputs[1])?);
                let routed = self.view(node.inputs[1])?;
                self.gather(node.output, &|to| RowOp::Combine { routing, slots, routed, from, to });
                Ok(())
            }
            Op::ExpertLinear(op::ExpertLinear { routing, ref weights, ref biases }) => {
                self.expert_linear(node, routing, weights, biases)
            }
            Op::CausalConv1d(op::CausalConv1d { state, taps, weight }) => {
                let (from, to) = (self.view(node.inputs[0])?, self.allocate(node.output, self.steps.len()));
                self.steps.push(PlanStep::Convolve { state, taps, weight, from, to });
                Ok(())
            }
            Op::LinearAttention(ref recurrence) => {
                let inputs = node.inputs.iter().map(|&input| self.view(input)).collect::<Result<_>>()?;
                let to = self.allocate(node.output, self.steps.len());
                self.steps.push(PlanStep::Recur { recurrence: recurrence.clone(), inputs, to });
                Ok(())
            }
            Op::StoreCrossKv(op::StoreCrossKv { ref attention }) => {
                self.append(attention, node.inputs[0], node.inputs[1])
            }
            Op::Rope(op::Rope { rope, head_size }) => {
                let turns = self.turns_of(rope);
                let from = self.view(node.inputs[0])?;
                let to = self.allocate(node.output, self.row_step(rows));
                self.row_op(rows, RowOp::Rope { turns, head_size, from, to });
                Ok(())
            }
            Op::Embed(op::Embed { table }) => self.row_wise(node, rows, |_, to| RowOp::Embed { table, to }),
            Op::EmbedSegment(op::EmbedSegment { table }) => {
                self.row_wise(node, rows, |_, to| RowOp::EmbedSegment { table, to })
            }
            Op::EmbedPosition(op::EmbedPosition { table, offset }) => {
                self.row_wise(node, rows, |_, to| RowOp::EmbedPosition { table, offset, to })
            }
            Op::SinusoidalPositions(op::SinusoidalPositions { rope, offset }) => {
                self.row_wise(node, rows, |_, to| RowOp::EmbedSine { rope, offset, to })
            }
            Op::InputFeatures(_) => self.row_wise(node, rows, |_, to| RowOp::Features { to }),
            Op::ExternalInput(_) => self.row_wise(node, rows, |_, to| RowOp::Carried { to }),
            Op::Route(op::Route { routing }) => {
                self.row_wise(node, rows, |[from, _], to| RowOp::Route { routing, from, to })
            }
            Op::Norm(op::Norm { kind, weight, bias, epsilon, .. }) => {
                let norm = |[from, _]: [_; 2], to| RowOp::Norm { kind, weight, bias, epsilon, from, to };
                self.row_wise(node, rows, norm)
            }
            Op::Activate(op::Activate { function: kind }) => {
                self.row_wise(node, rows, |[from, _], to| RowOp::Activate { kind, from, to })
            }
            Op::Gate(op::Gate { function: kind }) => {
                self.row_wise(node, rows, |[gate, up], to| RowOp::Gate { kind, gate, up, to })
            }
            Op::ClampedGate(op::ClampedGate { limits }) => {
                self.row_wise(node, rows, |[gate, up], to| RowOp::GateLimited { limits, gate, up, to })
            }
            Op::RepeatColumns(op::RepeatColumns { times }) => {
                self.row_wise(node, rows, |[from, _], to| RowOp::Repeat { times, from, to })
            }
            Op::L2Normalize(op::L2Normalize { group, epsilon, factor }) => {
                let unit = |[from, _]: [_; 2], to| RowOp::Unit { group, epsilon, factor, from, to };
                self.row_wise(node, rows, unit)
            }
            Op::DecayGate(op::DecayGate { log, bias }) => {
                self.row_wise(node, rows, |[from, _], to| RowOp::Decay { log, bias, from, to })
            }
            Op::Add(_) => self.row_wise(node, rows, |[a, b], to| RowOp::Add { a, b, to }),
            Op::Affine(op::Affine { weight, bias }) => {
                self.row_wise(node, rows, |[from, _], to| RowOp::Affine { weight, bias, from, to })
            }
            Op::Scale(op::Scale { factor }) => self.map(node, rows, ElementwiseFunction::Scale(factor)),
            Op::Softcap(op::Softcap { cap }) => self.map(node, rows, ElementwiseFunction::Softcap(cap)),
            Op::Clamp(op::Clamp { limit }) => self.map(node, rows, ElementwiseFunction::Clamp(limit)),
            Op::SelectOutputs(_) => self.row_wise(node, rows, |[from, _], to| RowOp::Pick { from, to }),
        }
    }

    /// Appends an operation that reads rows other than its own: they must all be written in an earlier step.
    fn gather(&mut self, output: ValueId, op: &dyn Fn(BufferView) -> RowOp) {
        let to = self.allocate(output, self.steps.len());
        self.steps.push(PlanStep::Rows { rows: self.rows(output), ops: vec![op(to)] });
    }

    /// Returns the slots of a router output, and plans their assignment on first use.
    fn slots_of(&mut self, routing: Routing, routed: ValueId) -> Result<BufferView> {
        if let Some((_, view, _)) = self.slots.iter().find(|(known, ..)| *known == routed) {
            return Ok(*view);
        }
        let from = self.view(routed)?;
        self.settle(self.steps.len());
        let words = slot_words(&routing, self.most.batch);
        let place = self.places.take(words);
        let to = BufferView { offset: place.offset, stride: words, columns: words };
        self.steps.push(PlanStep::Arrange { routing, routed: from, to });
        self.slots.push((routed, to, place));
        Ok(to)
    }

    fn expert_linear(
        &mut self,
        node: &Node,
        routing: Routing,
        weights: &[WeightId],
        biases: &[WeightId],
    ) -> Result<()> {
        let input = node.inputs[0];
        let (rows, from) = (self.rows(node.output), self.view(input)?);
        let slots = self.slots_of(routing, node.inputs[1])?;
        let kind_of = |weight: &WeightId| self.weights.matrix(*weight).map(|tensor| tensor.panel.input());
        let kinds: Vec<_> = weights.iter().map(kind_of).collect();
        let mut inputs = Vec::new();
        for kind in [InputKind::Float, InputKind::Quantized, InputKind::Rotated] {
            if kinds.contains(&Some(kind)) {
                inputs.push((kind, self.input(kind, input, from, rows)));
            }
        }
        let to = self.allocate(node.output, self.steps.len());
        for (kind, input) in inputs {
            let parts = (0..weights.len())
                .filter(|&expert| kinds[expert] == Some(kind))
                .map(|expert| {
                    let bias = biases.get(expert).copied();
                    (expert, MatmulPart { weight: weights[expert], bias, first: 0, to })
                })
                .collect();
            self.steps.push(PlanStep::ExpertProducts { routing, slots, input, kind, parts });
        }
        Ok(())
    }

    fn append(&mut self, attention: &Attention, keys: ValueId, values: ValueId) -> Result<()> {
        let (keys, values) = (self.view(keys)?, self.view(values)?);
        self.steps.push(PlanStep::Append { attention: attention.clone(), keys, values });
        Ok(())
    }

    fn map(&mut self, node: &Node, rows: RowKind, map: ElementwiseFunction) -> Result<()> {
        self.row_wise(node, rows, |[from, _], to| RowOp::Map { map, from, to })
    }

    /// Plans a row-wise operation on the views of the node's first two inputs and of its output.
    fn row_wise(
        &mut self,
        node: &Node,
        rows: RowKind,
        op: impl FnOnce([BufferView; 2], BufferView) -> RowOp,
    ) -> Result<()> {
        let inputs = node.inputs.iter().map(|&input| self.view(input)).collect::<Result<Vec<_>>>()?;
        let to = self.allocate(node.output, self.row_step(rows));
        let input = |i: usize| inputs.get(i).copied().unwrap_or(to);
        self.row_op(rows, op([input(0), input(1)], to));
        Ok(())
    }

    /// Returns the RoPE table of the batch, and plans its computation on first use.
    fn turns_of(&mut self, rope: usize) -> BufferView {
        if let Some(view) = self.turns[rope] {
            return view;
        }
        let columns = 2 * self.graph.ropes[rope].frequencies.len();
        let stride = columns.next_multiple_of(16);
        self.settle(self.row_step(RowKind::Batch));
        let place = self.places.take(stride * self.most.batch);
        let to = BufferView { offset: place.offset, stride, columns };
        self.row_op(RowKind::Batch, RowOp::Turns { rope, to });
        self.turns[rope] = Some(to);
        to
    }

    fn linear(&mut self, node: &Node, parts: &[(WeightId, Option<WeightId>)]) -> Result<()> {
        let input = node.inputs[0];
        let rows = self.rows(node.output);
        let from = self.view(input)?;
        let kind_of = |part: &(WeightId, _)| self.weights.matrix(part.0).map(|tensor| tensor.panel.input());
        let kinds: Vec<_> = parts.iter().map(kind_of).collect();
        let mut inputs = Vec::new();
        for kind in [InputKind::Float, InputKind::Quantized, InputKind::Rotated] {
            if kinds.contains(&Some(kind)) {
                inputs.push((kind, self.input(kind, input, from, rows)));
            }
        }
        let (after, output, turned) = match self.after(node, inputs.len() == 1) {
            Some((after, fusion)) => {
                self.absorbed.extend(fusion.nodes);
                (after, fusion.output, fusion.turned)
            }
            None => (Epilogue::Nothing, node.output, false),
        };
        let to = self.allocate(output, self.steps.len());
        let whole = self.parts(parts, after, turned, to);
        for (kind, input) in inputs {
            let of_kind = |part: &&MatmulPart| kind_of(&(part.weight, None)) == Some(kind);
            let parts = whole.iter().filter(of_kind).cloned().collect();
            self.steps.push(PlanStep::Products { rows, input, kind, parts, after });
        }
        Ok(())
    }

    /// Returns where the outputs of a linear node's matrices go.
    fn parts(
        &self,
        parts: &[(WeightId, Option<WeightId>)],
        after: Epilogue,
        turned: bool,
        to: BufferView,
    ) -> Vec<MatmulPart> {
        if !matches!(after, Epilogue::Gate(_)) {
            let mut offset = to.offset;
            let part = |&(weight, bias): &(WeightId, _)| {
                let view = BufferView { offset, columns: self.graph.weights[weight].rows, ..to };
                offset += view.columns;
                MatmulPart { weight, bias, first: 0, to: view }
            };
            return parts.iter().map(part).collect();
        }
        let half = |&(weight, bias): &(WeightId, _), first| MatmulPart { weight, bias, first, to };
        let mut halves = match parts {
            [whole] => vec![half(whole, 0), half(whole, to.columns)],
            _ => parts.iter().map(|part| half(part, 0)).collect(),
        };
        if turned {
            halves.reverse();
        }
        halves
    }

    /// Returns a value as matmul input, and plans its quantization on first use.
    fn input(&mut self, kind: InputKind, value: ValueId, from: BufferView, rows: RowKind) -> BufferView {
        if kind == InputKind::Float {
            return from;
        }
        if let Some(made) = self.quantized.iter().find(|made| made.from == from && made.kind == kind) {
            return made.to;
        }
        let words = QuantizedRowLayout::new(from.columns).words();
        self.settle(self.row_step(rows));
        let place = self.places.take(words * self.row_count(rows));
        let to = BufferView { offset: place.offset, stride: words, columns: words };
        self.row_op(
            rows,
            match kind {
                InputKind::Rotated => RowOp::QuantizeRotated { from, to },
                InputKind::Float | InputKind::Quantized => RowOp::Quantize { from, to },
            },
        );
        self.quantized.push(Quantized { owner: self.owners[value], kind, from, to, place });
        to
    }

    /// Returns the epilogue of a linear node and the nodes that it fuses.
    fn after(&self, node: &Node, one_kind: bool) -> Option<(Epilogue, Fusion)> {
        let fusion = fusion::of(self.graph, node)?;
        let after = match fusion.with {
            FusedOp::Plus(other) => Epilogue::Plus(self.views[other]?),
            FusedOp::Activate(kind) => Epilogue::Activate(kind),
            FusedOp::Gate(kind) if one_kind => Epilogue::Gate(kind),
            FusedOp::Gate(_) => return None,
        };
        Some((after, fusion))
    }
}
