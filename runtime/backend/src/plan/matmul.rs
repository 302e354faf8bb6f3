//! Lowers linear layers, and the experts of a mixture, to matmuls.

use super::build::{PlanLowering, Planner, Quantized};
use super::{BufferView, Epilogue, MatmulPart, PlanStep, RowOp, slot_words};
use siskin_format::Result;
use siskin_graph::op::{Combine, Dispatch, ExpertLinear, Linear, Route, Routing};
use siskin_graph::pass::fusion::{self, FusedOp, MatmulEpilogue};
use siskin_graph::{Node, RowKind, ValueId, WeightId};
use siskin_kernels::ops::quantize::QuantizedRowLayout;
use siskin_kernels::panel::{InputKind, ROWS};

impl PlanLowering for Linear {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let input = node.inputs[0];
        let rows = planner.rows(node.output);
        let from = planner.view(input)?;
        let weights = self.parts.iter().map(|part| part.0);
        let kinds: Vec<_> = weights.map(|weight| planner.input_kind(weight)).collect();
        let inputs = planner.inputs(&kinds, input, from, rows);
        let (after, output, gate_is_second) = match planner.after(node, inputs.len() == 1) {
            Some((after, fusion)) => {
                planner.absorbed.extend(fusion.nodes);
                (after, fusion.output, fusion.gate_is_second)
            }
            None => (Epilogue::Nothing, node.output, false),
        };
        let to = planner.allocate(output, planner.steps.len());
        let whole = planner.parts(&self.parts, after, gate_is_second, to);
        for (kind, input) in inputs {
            let of_kind = |part: &&MatmulPart| planner.input_kind(part.weight) == Some(kind);
            let parts = whole.iter().filter(of_kind).cloned().collect();
            planner.steps.push(PlanStep::Linear { rows, input, kind, parts, after });
        }
        Ok(())
    }
}

impl PlanLowering for Route {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let &Self { routing } = self;
        planner.row_wise(node, |[from, _], to| RowOp::Route { routing, from, to })
    }
}

impl PlanLowering for Dispatch {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let &Self { routing } = self;
        let (from, slots) = (planner.view(node.inputs[0])?, planner.slots_of(routing, node.inputs[1])?);
        planner.gather(node.output, &|to| RowOp::Dispatch { routing, slots, from, to });
        Ok(())
    }
}

impl PlanLowering for ExpertLinear {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let input = node.inputs[0];
        let (rows, from) = (planner.rows(node.output), planner.view(input)?);
        let slots = planner.slots_of(self.routing, node.inputs[1])?;
        let kinds: Vec<_> = self.weights.iter().map(|&weight| planner.input_kind(weight)).collect();
        let inputs = planner.inputs(&kinds, input, from, rows);
        let to = planner.allocate(node.output, planner.steps.len());
        for (kind, input) in inputs {
            let parts = (0..self.weights.len()).filter(|&expert| kinds[expert] == Some(kind)).map(|expert| {
                let (weight, bias) = (self.weights[expert], self.biases.get(expert).copied());
                (expert, MatmulPart { weight, bias, first: 0, to })
            });
            let (routing, parts) = (self.routing, parts.collect());
            planner.steps.push(PlanStep::ExpertLinear { routing, slots, input, kind, parts });
        }
        Ok(())
    }
}

impl PlanLowering for Combine {
    fn plan(&self, planner: &mut Planner<'_>, node: &Node) -> Result<()> {
        let &Self { routing } = self;
        let (from, slots) = (planner.view(node.inputs[0])?, planner.slots_of(routing, node.inputs[1])?);
        let routed = planner.view(node.inputs[1])?;
        planner.gather(node.output, &|to| RowOp::Combine { routing, slots, routed, from, to });
        Ok(())
    }
}

impl Planner<'_> {
    fn input_kind(&self, weight: WeightId) -> Option<InputKind> {
        self.weights.matrix(weight).map(|tensor| tensor.panel.input())
    }

    /// Returns a value as input of each of the kinds that matrices take.
    fn inputs(
        &mut self,
        kinds: &[Option<InputKind>],
        value: ValueId,
        from: BufferView,
        rows: RowKind,
    ) -> Vec<(InputKind, BufferView)> {
        let mut inputs = Vec::new();
        for kind in [InputKind::Float, InputKind::Quantized, InputKind::Rotated] {
            if kinds.contains(&Some(kind)) {
                inputs.push((kind, self.input(kind, value, from, rows)));
            }
        }
        inputs
    }

    /// Returns the slots of a router output, and plans their assignment on first use.
    fn slots_of(&mut self, routing: Routing, routed: ValueId) -> Result<BufferView> {
        if let Some((_, view, _)) = self.slots.iter().find(|(known, ..)| *known == routed) {
            return Ok(*view);
        }
        let from = self.view(routed)?;
        let words = slot_words(&routing, self.max_rows.tokens);
        let buffer = self.arena.allocate(words, self.steps.len());
        let to = BufferView { offset: buffer.offset, stride: words, columns: words };
        self.steps.push(PlanStep::Arrange { routing, routed: from, to });
        self.slots.push((routed, to, buffer));
        Ok(to)
    }

    /// Returns where the outputs of a linear node's matrices go.
    fn parts(
        &self,
        parts: &[(WeightId, Option<WeightId>)],
        after: Epilogue,
        gate_is_second: bool,
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
        if gate_is_second {
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
        let buffer = self.arena.allocate(words * self.row_count(rows), self.row_step(rows));
        let to = BufferView { offset: buffer.offset, stride: words, columns: words };
        self.row_op(
            rows,
            match kind {
                InputKind::Rotated => RowOp::QuantizeRotated { from, to },
                InputKind::Float | InputKind::Quantized => RowOp::Quantize { from, to },
            },
        );
        self.quantized.push(Quantized { owner: self.owners[value], kind, from, to, buffer });
        to
    }

    /// Returns the epilogue of a linear node and the nodes that it fuses.
    fn after(&self, node: &Node, one_kind: bool) -> Option<(Epilogue, MatmulEpilogue)> {
        let fusion = fusion::matmul_epilogue(self.graph, node)?;
        let after = match fusion.op {
            FusedOp::Plus(other) => Epilogue::Plus(self.views[other]?),
            FusedOp::Activate(kind) => Epilogue::Activate(kind),
            FusedOp::Gate(kind) if one_kind && self.halves_are_panels(node) => Epilogue::Gate(kind),
            FusedOp::Gate(_) => return None,
        };
        Some((after, fusion))
    }

    /// Returns whether each half of a single matrix is whole panels, as gate and up must be.
    fn halves_are_panels(&self, node: &Node) -> bool {
        let single = node.op.downcast_ref::<Linear>().filter(|linear| linear.parts.len() == 1);
        single.is_none_or(|linear| self.graph.weights[linear.parts[0].0].rows.is_multiple_of(2 * ROWS))
    }
}
