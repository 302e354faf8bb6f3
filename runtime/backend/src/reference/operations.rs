//! The operations that compute each row from rows of the batch.

use super::pass::{ReferenceCall, ReferenceOperation, ReferencePass, Table};
use crate::moe_routing::{self, Slots, slot_words};
use crate::state;
use siskin_graph::WeightId;
use siskin_graph::op::{
    Activate, Add, Affine, Clamp, ClampedGate, Combine, DecayGate, Dispatch, Embed, EmbedPosition,
    EmbedSegment, ExpertLinear, ExternalInput, Gate, Im2col, InputFeatures, L2Normalize, Linear, MultiLora,
    Norm, NormKind, RepeatColumns, Rope, Route, Routing, Scale, SelectOutputs, SinusoidalPositions,
    SliceColumns, Softcap,
};
use siskin_kernels::ops::elementwise::{ElementwiseFunction, reference_affine};
use siskin_kernels::ops::{matmul, norm, quantize, rope};
use siskin_kernels::panel::{self, InputKind, ROWS};

impl ReferenceOperation for Embed {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let pass = call.pass;
        call.each(|row, out| pass.table_row(self.table, pass.batch.rows[row].token as usize, out))
    }
}

impl ReferenceOperation for EmbedSegment {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let pass = call.pass;
        call.each(|row, out| pass.table_row(self.table, pass.batch.rows[row].token_type as usize, out))
    }
}

impl ReferenceOperation for EmbedPosition {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let pass = call.pass;
        call.each(|row, out| pass.table_row(self.table, pass.batch.rows[row].position + self.offset, out))
    }
}

impl ReferenceOperation for SinusoidalPositions {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let rope = &call.pass.graph.ropes[self.rope];
        call.each(|row, out| {
            let position = (call.pass.batch.rows[row].position + self.offset) as u32;
            rope::cos_sin(&rope.frequencies, rope.magnitude, position, out);
            out.rotate_left(call.columns() / 2);
        })
    }
}

impl ReferenceOperation for InputFeatures {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let columns = call.columns();
        call.each(|row, out| out.copy_from_slice(&call.pass.batch.features[row * columns..][..columns]))
    }
}

impl ReferenceOperation for ExternalInput {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let columns = call.columns();
        call.each(|row, out| out.copy_from_slice(&call.pass.batch.external_input[row * columns..][..columns]))
    }
}

impl ReferenceOperation for Im2col {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let kind = |value: usize| call.pass.graph.values[value].rows;
        let (from, to) = (kind(call.node.inputs[0]), kind(call.node.output));
        call.each(|row, out| {
            let columns = call.columns() / self.offsets.len();
            for (offset, out) in self.offsets.iter().zip(out.chunks_mut(columns)) {
                if let Some(other) = call.pass.batch.neighbor(from, to, row, *offset, self.stride) {
                    out.copy_from_slice(&call.input(0)[other]);
                }
            }
        })
    }
}

impl ReferenceOperation for SliceColumns {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| out.copy_from_slice(&call.input(0)[row][self.start..][..self.columns]))
    }
}

impl ReferenceOperation for RepeatColumns {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| state::repeat(self.times, &call.input(0)[row], out))
    }
}

impl ReferenceOperation for SelectOutputs {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| out.copy_from_slice(&call.input(0)[call.pass.batch.output_rows[row]]))
    }
}

impl ReferenceOperation for Norm {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let arguments = norm::NormArguments {
            centered: self.kind == NormKind::Layer,
            weight: call.vector(self.weight),
            bias: call.pass.weights.vector(self.bias),
            epsilon: self.epsilon,
        };
        call.each(|row, out| norm::reference(&arguments, &call.input(0)[row], out))
    }
}

impl ReferenceOperation for L2Normalize {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| {
            state::unit(self.group, self.epsilon, self.factor, &call.input(0)[row], out);
        })
    }
}

impl ReferenceOperation for Linear {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| {
            let mut start = 0;
            for &(weight, bias) in &self.parts {
                let end = start + call.pass.graph.weights[weight].rows;
                call.pass.product(weight, bias, &call.input(0)[row], &mut out[start..end]);
                start = end;
            }
        })
    }
}

impl ReferenceOperation for MultiLora {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let pass = call.pass;
        let rows = pass.graph.values[call.node.output].rows;
        call.each(|row, out| {
            out.copy_from_slice(&call.input(1)[row]);
            let biased = |out: &mut [f32]| {
                let bias = pass.weights.vector(self.bias);
                out.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
            };
            let Some(lora) = self.adapter(pass.batch.adapter(rows, row)) else { return biased(out) };
            let mut low_rank = vec![0.0; pass.graph.weights[lora.a].rows];
            pass.product(lora.a, None, &call.input(0)[row], &mut low_rank);
            let mut delta = vec![0.0; out.len()];
            pass.product(lora.b, None, &low_rank, &mut delta);
            if lora.scaling.is_none() {
                biased(out);
            }
            out.iter_mut().zip(&delta).for_each(|(x, delta)| *x += delta);
            if let Some(Affine { weight, bias }) = lora.scaling {
                for ((x, weight), bias) in out.iter_mut().zip(call.vector(weight)).zip(call.vector(bias)) {
                    *x = reference_affine(*x, *weight, *bias);
                }
            }
        })
    }
}

impl ReferenceOperation for Route {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| moe_routing::route(&self.routing, &call.input(0)[row], out))
    }
}

impl ReferenceOperation for Dispatch {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let words = call.pass.arrangement(&self.routing, call.input(1));
        let slots = Slots::new(&self.routing, &words);
        call.each(|slot, out| {
            if let Some(row) = slots.row(slot) {
                out.copy_from_slice(&call.input(0)[row]);
            }
        })
    }
}

impl ReferenceOperation for ExpertLinear {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let words = call.pass.arrangement(&self.routing, call.input(1));
        let slots = Slots::new(&self.routing, &words);
        call.each(|slot, out| {
            let expert = (0..self.routing.experts).find(|&expert| slots.of(expert).contains(&slot));
            if let Some(expert) = expert {
                let (weight, bias) = (self.weights[expert], self.biases.get(expert).copied());
                call.pass.product(weight, bias, &call.input(0)[slot], out);
            }
        })
    }
}

impl ReferenceOperation for Combine {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let words = call.pass.arrangement(&self.routing, call.input(1));
        let slots = Slots::new(&self.routing, &words);
        call.each(|row, out| slots.combine(row, &call.input(1)[row], |slot| &call.input(0)[slot], out))
    }
}

impl ReferenceOperation for Rope {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let table = &call.pass.graph.ropes[self.rope];
        call.each(|row, out| {
            let mut turns = vec![0.0; 2 * table.frequencies.len()];
            let row_of = call.pass.batch.rows[row];
            row_of.rope_frequencies(table, &mut turns);
            rope::reference(&turns, self.head_size, &call.input(0)[row], out);
        })
    }
}

impl ReferenceOperation for Activate {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| call.pass.scalar.activate()(self.function, &call.input(0)[row], out))
    }
}

impl ReferenceOperation for Gate {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let gate = call.pass.scalar.gate();
        call.each(|row, out| gate(self.function, &call.input(0)[row], &call.input(1)[row], out))
    }
}

impl ReferenceOperation for ClampedGate {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let gate = call.pass.scalar.limited_gate();
        call.each(|row, out| gate(self.limits, &call.input(0)[row], &call.input(1)[row], out))
    }
}

impl ReferenceOperation for DecayGate {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let (log, bias) = (call.vector(self.log), call.vector(self.bias));
        call.each(|row, out| state::decay(log, bias, &call.input(0)[row], out))
    }
}

impl ReferenceOperation for Add {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.each(|row, out| call.pass.scalar.add()(&call.input(0)[row], &call.input(1)[row], out))
    }
}

impl ReferenceOperation for Affine {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let (weight, bias) = (call.vector(self.weight), call.vector(self.bias));
        call.each(|row, out| {
            for (((out, x), weight), bias) in out.iter_mut().zip(&call.input(0)[row]).zip(weight).zip(bias) {
                *out = reference_affine(*x, *weight, *bias);
            }
        })
    }
}

impl ReferenceOperation for Scale {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.map(ElementwiseFunction::Scale(self.factor))
    }
}

impl ReferenceOperation for Softcap {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.map(ElementwiseFunction::Softcap(self.cap))
    }
}

impl ReferenceOperation for Clamp {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.map(ElementwiseFunction::Clamp(self.limit))
    }
}

impl ReferencePass<'_> {
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
}
