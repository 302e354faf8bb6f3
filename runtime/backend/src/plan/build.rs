//! Schedules the graph's nodes into steps, assigns arena offsets to all values, and fuses operations.

use super::buffers::{Buffers, PlannedBuffer};
use super::{BufferView, Plan, PlanStep, RowOp, Weights};
use siskin_format::{Error, ErrorKind, Result};
use siskin_graph::{Graph, Node, RowCounts, RowKind, ValueId};
use siskin_kernels::panel::InputKind;

/// Appends the steps of an operation to a plan.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no lowering to a plan",
    note = "implement `PlanLowering` for it in `runtime/backend/src/plan/`"
)]
pub(super) trait PlanLowering {
    /// Returns the input of a node in whose buffer its output is, if it has none of its own.
    fn aliases(&self, _node: &Node) -> Option<ValueId> {
        None
    }

    /// Plans a node.
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()>;
}

fn lowering(node: &Node) -> &dyn PlanLowering {
    siskin_graph::dispatch!(&node.op, |operation| operation)
}

/// The quantized copy of a view.
pub(super) struct Quantized {
    /// The value that owns the view's buffer: the copy is freed together with it.
    pub(super) owner: ValueId,
    pub(super) kind: InputKind,
    pub(super) from: BufferView,
    pub(super) to: BufferView,
    pub(super) buffer: PlannedBuffer,
}

/// A plan while it is built.
pub(super) struct Planner<'a> {
    pub(super) graph: &'a Graph,
    pub(super) weights: &'a Weights,
    /// The maximum numbers of rows in a batch.
    pub(super) max_rows: RowCounts,
    pub(super) arena: Buffers,
    /// The view of each computed value.
    pub(super) views: Vec<Option<BufferView>>,
    /// The value that owns the buffer that each value's view points into.
    pub(super) owners: Vec<ValueId>,
    /// The allocation of each value that owns a buffer.
    buffers: Vec<Option<PlannedBuffer>>,
    pub(super) quantized: Vec<Quantized>,
    /// The last node that reads each value or a view into it.
    last_use: Vec<usize>,
    /// The cosines and sines of each RoPE table.
    pub(super) rope_frequencies: Vec<Option<BufferView>>,
    /// The MoE slots of each router output, freed together with it.
    pub(super) slots: Vec<(ValueId, BufferView, PlannedBuffer)>,
    pub(super) steps: Vec<PlanStep>,
    /// Nodes that were fused into a matmul.
    pub(super) absorbed: Vec<usize>,
}

impl Plan {
    /// Builds the plan of `graph` for up to `batch` rows with up to `output_rows` output rows.
    pub fn build(graph: &Graph, weights: &Weights, batch: usize, output_rows: usize) -> Result<Self> {
        let frames = batch.saturating_mul(graph.frames_per_row());
        let max_rows = RowCounts { tokens: batch, outputs: output_rows, frames };
        if graph.nodes.is_empty() {
            // An external backend computes it.
            let output = BufferView { offset: 0, stride: 0, columns: 0 };
            let (steps, ropes) = (Vec::new(), Vec::new());
            return Ok(Self { steps, ropes, words: 0, output, max_rows });
        }
        let recorded = Planner::new(graph, weights, max_rows, Buffers::default()).run()?;
        let planner = Planner::new(graph, weights, max_rows, recorded.arena.with_offsets()).run()?;
        let output = planner.view(graph.output)?;
        Ok(Self {
            steps: planner.steps,
            ropes: graph.ropes.clone(),
            words: planner.arena.arena_words(),
            output,
            max_rows,
        })
    }
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph, weights: &'a Weights, max_rows: RowCounts, arena: Buffers) -> Self {
        let count = graph.values.len();
        let mut owners: Vec<ValueId> = (0..count).collect();
        for node in &graph.nodes {
            if let Some(input) = lowering(node).aliases(node) {
                owners[node.output] = owners[input];
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
            max_rows,
            arena,
            views: vec![None; count],
            owners,
            buffers: vec![None; count],
            quantized: Vec::new(),
            last_use,
            rope_frequencies: vec![None; graph.ropes.len()],
            slots: Vec::new(),
            steps: Vec::new(),
            absorbed: Vec::new(),
        }
    }

    /// Plans all nodes.
    fn run(mut self) -> Result<Self> {
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if !self.absorbed.contains(&index) {
                lowering(node).plan(&mut self, node)?;
            }
            self.release(index);
        }
        Ok(self)
    }

    pub(super) fn view(&self, value: ValueId) -> Result<BufferView> {
        self.views[value]
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "graph", "a value is used before it is made"))
    }

    pub(super) fn rows(&self, value: ValueId) -> RowKind {
        self.graph.values[value].rows
    }

    pub(super) fn row_count(&self, rows: RowKind) -> usize {
        self.max_rows.of(rows)
    }

    /// Allocates a buffer for a value that step `step` writes.
    pub(super) fn allocate(&mut self, value: ValueId, step: usize) -> BufferView {
        let columns = self.graph.values[value].columns;
        // Rows are whole cache lines, to avoid false sharing between workers.
        let stride = columns.next_multiple_of(16);
        let buffer = self.arena.allocate(stride * self.row_count(self.rows(value)), step);
        self.buffers[value] = Some(buffer);
        let view = BufferView { offset: buffer.offset, stride, columns };
        self.views[value] = Some(view);
        view
    }

    /// Releases the buffers whose last reader is node `index`.
    fn release(&mut self, index: usize) {
        let step = self.steps.len().saturating_sub(1);
        let (last_use, arena) = (&self.last_use, &mut self.arena);
        let ends = |value: ValueId| last_use[value] == index;
        let own = self.buffers.iter_mut().enumerate().filter(|(value, _)| ends(*value));
        own.filter_map(|(_, buffer)| buffer.take()).for_each(|buffer| arena.release(buffer, step));
        let slots = self.slots.extract_if(.., |(routed, ..)| ends(*routed));
        slots.for_each(|(.., buffer)| arena.release(buffer, step));
        let quantized = self.quantized.extract_if(.., |made| ends(made.owner));
        quantized.for_each(|made| arena.release(made.buffer, step));
    }

    /// Returns the step that the next row operation will be part of.
    pub(super) fn row_step(&self, rows: RowKind) -> usize {
        match self.steps.last() {
            Some(PlanStep::Rows { rows: last, .. }) if *last == rows => self.steps.len() - 1,
            _ => self.steps.len(),
        }
    }

    /// Appends a row operation to the last step if that has the same kind of rows, or else starts a new step.
    pub(super) fn row_op(&mut self, rows: RowKind, op: RowOp) {
        match self.steps.last_mut() {
            Some(PlanStep::Rows { rows: last, ops }) if *last == rows => ops.push(op),
            _ => self.steps.push(PlanStep::Rows { rows, ops: vec![op] }),
        }
    }

    /// Appends an operation that reads rows other than its own: they must all be written in an earlier step.
    pub(super) fn gather(&mut self, output: ValueId, op: &dyn Fn(BufferView) -> RowOp) {
        let to = self.allocate(output, self.steps.len());
        self.steps.push(PlanStep::Rows { rows: self.rows(output), ops: vec![op(to)] });
    }

    /// Plans a row-wise operation on the views of the node's first two inputs and of its output.
    pub(super) fn row_wise(
        &mut self,
        node: &Node,
        op: impl FnOnce([BufferView; 2], BufferView) -> RowOp,
    ) -> Result<()> {
        let rows = self.rows(node.output);
        let inputs = node.inputs.iter().map(|&input| self.view(input)).collect::<Result<Vec<_>>>()?;
        let to = self.allocate(node.output, self.row_step(rows));
        let input = |i: usize| inputs.get(i).copied().unwrap_or(to);
        self.row_op(rows, op([input(0), input(1)], to));
        Ok(())
    }
}
