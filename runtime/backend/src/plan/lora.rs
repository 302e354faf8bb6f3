//! Lowers adapters that differ between rows to matmuls of the rows of each.

use super::buffers::PlannedBuffer;
use super::build::{PlanLowering, Planner};
use super::{BufferView, MatmulPart, PlanStep, RowOp};
use siskin_format::Result;
use siskin_graph::op::{LoraWeights, MultiLora};
use siskin_graph::{Node, RowKind, ValueId, WeightId};

impl PlanLowering for MultiLora {
    fn aliases(&self, node: &Node) -> Option<ValueId> {
        // Written in place: rows without an adapter keep their value.
        if self.has_scaling() { None } else { node.inputs.get(1).copied() }
    }

    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let rows = planner.rows(node.output);
        let (input, product) = (planner.view(node.inputs[0])?, planner.view(node.inputs[1])?);
        let ranks = self.adapters.iter().map(|lora| planner.graph.weights[lora.a].rows);
        let (low_rank, low_rank_buffer) = planner.scratch(rows, ranks.max().unwrap_or(0));
        planner.lora(self, |lora| lora.a, [input, low_rank], rows, None);
        if self.has_scaling() {
            let (delta, delta_buffer) = planner.scratch(rows, product.columns);
            planner.lora(self, |lora| lora.b, [low_rank, delta], rows, None);
            let to = planner.allocate(node.output, planner.row_step(rows));
            planner.row_op(rows, RowOp::LoraSum { lora: self.clone(), rows, product, delta, to });
            planner.arena.release(delta_buffer, planner.steps.len() - 1);
        } else {
            planner.lora(self, |lora| lora.b, [low_rank, product], rows, Some(product));
            planner.views[node.output] = Some(product);
        }
        planner.arena.release(low_rank_buffer, planner.steps.len() - 1);
        Ok(())
    }
}

impl Planner<'_> {
    /// Allocates a buffer that the next step writes.
    fn scratch(&mut self, rows: RowKind, columns: usize) -> (BufferView, PlannedBuffer) {
        let stride = columns.next_multiple_of(16);
        let buffer = self.arena.allocate(stride * self.row_count(rows), self.steps.len());
        (BufferView { offset: buffer.offset, stride, columns }, buffer)
    }

    /// Plans the products of rows with a matrix of each adapter.
    fn lora(
        &mut self,
        lora: &MultiLora,
        matrix: fn(&LoraWeights) -> WeightId,
        [input, to]: [BufferView; 2],
        rows: RowKind,
        residual: Option<BufferView>,
    ) {
        let part = |adapter: &LoraWeights| {
            let weight = matrix(adapter);
            let to = BufferView { columns: self.graph.weights[weight].rows, ..to };
            (adapter.slot, MatmulPart { weight, bias: None, first: 0, to })
        };
        let parts = lora.adapters.iter().map(part).collect();
        self.steps.push(PlanStep::LoraLinear { rows, input, parts, residual });
    }
}
