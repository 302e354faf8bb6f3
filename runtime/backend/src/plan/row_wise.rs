//! Lowers operations that compute each row on its own, or copy rows.

use super::build::{PlanLowering, Planner};
use super::{BufferView, RowOp};
use siskin_format::Result;
use siskin_graph::op::{
    Activate, Add, Affine, Clamp, ClampedGate, DecayGate, Embed, EmbedPosition, EmbedSegment, ExternalInput,
    Gate, Im2col, InputFeatures, L2Normalize, Norm, RepeatColumns, Rope, Scale, SelectOutputs,
    SinusoidalPositions, SliceColumns, Softcap,
};
use siskin_graph::{Node, RowKind, ValueId};
use siskin_kernels::ops::elementwise::ElementwiseFunction;

/// Operations on the views of the first two inputs and of the output.
macro_rules! row_wise {
    ($($operation:ident { $($field:ident),* }: |$inputs:pat_param, $to:ident| $then:expr;)*) => {$(
        impl PlanLowering for $operation {
            fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
                let &Self { $($field,)* .. } = self;
                planner.row_wise(node, |$inputs, $to| $then)
            }
        }
    )*};
}

row_wise! {
    Embed { table }: |_, to| RowOp::Embed { table, to };
    EmbedSegment { table }: |_, to| RowOp::EmbedSegment { table, to };
    EmbedPosition { table, offset }: |_, to| RowOp::EmbedPosition { table, offset, to };
    SinusoidalPositions { rope, offset }: |_, to| RowOp::SinusoidalPositions { rope, offset, to };
    InputFeatures {}: |_, to| RowOp::InputFeatures { to };
    ExternalInput {}: |_, to| RowOp::ExternalInput { to };
    SelectOutputs {}: |[from, _], to| RowOp::SelectOutputs { from, to };
    RepeatColumns { times }: |[from, _], to| RowOp::RepeatColumns { times, from, to };
    Norm { kind, weight, bias, epsilon }: |[from, _], to| RowOp::Norm { kind, weight, bias, epsilon, from, to };
    L2Normalize { group, epsilon, factor }: |[from, _], to| RowOp::L2Normalize { group, epsilon, factor, from, to };
    Activate { function }: |[from, _], to| RowOp::Activate { function, from, to };
    Gate { function }: |[gate, up], to| RowOp::Gate { function, gate, up, to };
    ClampedGate { limits }: |[gate, up], to| RowOp::ClampedGate { limits, gate, up, to };
    DecayGate { log, bias }: |[from, _], to| RowOp::DecayGate { log, bias, from, to };
    Add {}: |[a, b], to| RowOp::Add { a, b, to };
    Affine { weight, bias }: |[from, _], to| RowOp::Affine { weight, bias, from, to };
    Scale { factor }: |[from, _], to| elementwise(ElementwiseFunction::Scale(factor), from, to);
    Softcap { cap }: |[from, _], to| elementwise(ElementwiseFunction::Softcap(cap), from, to);
    Clamp { limit }: |[from, _], to| elementwise(ElementwiseFunction::Clamp(limit), from, to);
}

fn elementwise(function: ElementwiseFunction, from: BufferView, to: BufferView) -> RowOp {
    RowOp::Elementwise { function, from, to }
}

impl PlanLowering for SliceColumns {
    fn aliases(&self, node: &Node) -> Option<ValueId> {
        node.inputs.first().copied()
    }

    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let whole = planner.view(node.inputs[0])?;
        let view = BufferView { offset: whole.offset + self.start, columns: self.columns, ..whole };
        planner.views[node.output] = Some(view);
        Ok(())
    }
}

impl PlanLowering for Im2col {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let from = planner.view(node.inputs[0])?;
        let rows = [planner.rows(node.inputs[0]), planner.rows(node.output)];
        let (offsets, stride) = (&self.offsets, self.stride);
        planner.gather(node.output, &|to| RowOp::Im2col { offsets: offsets.clone(), stride, rows, from, to });
        Ok(())
    }
}

impl PlanLowering for Rope {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let (cos_sin, head_size) = (planner.cos_sin_of(self.rope), self.head_size);
        planner.row_wise(node, |[from, _], to| RowOp::Rope { cos_sin, head_size, from, to })
    }
}

impl Planner<'_> {
    /// Returns the cosines and sines of a RoPE table for each row, and plans their computation on first use.
    fn cos_sin_of(&mut self, rope: usize) -> BufferView {
        if let Some(view) = self.rope_frequencies[rope] {
            return view;
        }
        let columns = 2 * self.graph.ropes[rope].frequencies.len();
        let stride = columns.next_multiple_of(16);
        let buffer = self.arena.allocate(stride * self.max_rows.tokens, self.row_step(RowKind::Tokens));
        let to = BufferView { offset: buffer.offset, stride, columns };
        self.row_op(RowKind::Tokens, RowOp::RopeCosSin { rope, to });
        self.rope_frequencies[rope] = Some(to);
        to
    }
}
