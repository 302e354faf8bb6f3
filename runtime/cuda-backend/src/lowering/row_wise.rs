//! Lowers operations that compute each row by itself.

use siskin_backend::plan::{BufferView, RowOp};
use siskin_cuda::{PointwiseFunction, int};
use siskin_device::KernelArgument;
use siskin_format::{Error, Result};
use siskin_graph::{NormKind, RowKind};
use siskin_kernels::ops::elementwise::ElementwiseFunction;

use super::{Lowering, unsupported};
use crate::input_tables::Taps;
use crate::launches::THREADS;
use crate::row_ops::{DeviceRows, EncodedRowOp, RowOpCode, bits, gated, pointwise};
use crate::weights::UploadedMatrix;

impl Lowering<'_> {
    pub(super) fn embed(
        &self,
        table: UploadedMatrix,
        ids: usize,
        offset: usize,
        to: BufferView,
    ) -> EncodedRowOp {
        EncodedRowOp::new(RowOpCode::Embed, DeviceRows::default(), self.rows(to), to.columns).parameters([
            self.table(ids),
            offset as u64,
            u64::from(table.panel.id()),
            table.panels,
            table.panel_bytes as u64,
            table.rows as u64,
        ])
    }

    /// Rows that the host computes: from a table by position, or for each batch.
    pub(super) fn angles(&mut self, op: &RowOp, rope: Option<usize>, to: BufferView) -> Result<EncodedRowOp> {
        if let Some(by_position) = (self.context.angles)(op) {
            let positions = self.table(self.tables.positions);
            return Ok(EncodedRowOp::new(RowOpCode::Select, by_position, self.rows(to), to.columns)
                .parameters([positions]));
        }
        let rope = rope.ok_or_else(|| unsupported("sinusoidal positions in so long a context"))?;
        let place = self.tables.rope(rope, to.columns);
        let from = DeviceRows { ptr: self.table(place), stride: to.columns };
        Ok(EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns))
    }

    pub(super) fn row_op(&mut self, op: &RowOp) -> Result<EncodedRowOp> {
        let weights = self.context.weights;
        let unary = |own: &Self, code, from: BufferView, to: BufferView| {
            EncodedRowOp::new(code, own.rows(from), own.rows(to), to.columns)
        };
        Ok(match *op {
            RowOp::RopeCosSin { rope, to } => self.angles(op, Some(rope), to)?,
            RowOp::SinusoidalPositions { to, .. } => self.angles(op, None, to)?,
            RowOp::Embed { table, to } => self.embed(weights.matrix(table)?, self.tables.tokens, 0, to),
            RowOp::EmbedSegment { table, to } => {
                self.embed(weights.matrix(table)?, self.tables.token_types, 0, to)
            }
            RowOp::EmbedPosition { table, offset, to } => {
                self.embed(weights.matrix(table)?, self.tables.positions, offset, to)
            }
            RowOp::ExternalInput { to } => {
                let place = self.tables.external_input(to.columns);
                let from = DeviceRows { ptr: self.table(place), stride: to.columns };
                EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns)
            }
            RowOp::SelectOutputs { from, to } => {
                unary(self, RowOpCode::Select, from, to).parameters([self.table(self.tables.output_rows)])
            }
            RowOp::Norm { kind, weight, bias, epsilon, from, to } => unary(self, RowOpCode::Norm, from, to)
                .parameters([
                    weights.vector(Some(weight)),
                    weights.vector(bias),
                    bits(epsilon),
                    u64::from(kind == NormKind::Layer),
                    weights.vector_len(weight) as u64,
                ]),
            RowOp::Rope { cos_sin, head_size, from, to } => unary(self, RowOpCode::Rope, from, to)
                .other(self.rows(cos_sin))
                .parameters([head_size as u64, cos_sin.columns as u64 / 2]),
            RowOp::Activate { function, from, to } => pointwise(
                unary(self, RowOpCode::Pointwise, from, to),
                PointwiseFunction::Activation(function),
                0.0,
            ),
            RowOp::Elementwise { function, from, to } => {
                let (function, parameter) = match function {
                    ElementwiseFunction::Scale(factor) => (PointwiseFunction::Scale(factor), factor),
                    ElementwiseFunction::Softcap(cap) => (PointwiseFunction::Softcap(cap), cap),
                    ElementwiseFunction::Clamp(limit) => (PointwiseFunction::Clamp(limit), limit),
                };
                pointwise(unary(self, RowOpCode::Pointwise, from, to), function, parameter)
            }
            RowOp::Gate { function, gate, up, to } => {
                gated(function, self.rows(gate), self.rows(up), self.rows(to), to.columns)
            }
            RowOp::ClampedGate { limits, gate, up, to } => unary(self, RowOpCode::ClampedGate, gate, to)
                .other(self.rows(up))
                .parameters([bits(limits.limit), bits(limits.slope)]),
            RowOp::RepeatColumns { times, from, to } => {
                unary(self, RowOpCode::RepeatColumns, from, to).parameters([times as u64])
            }
            RowOp::Add { a, b, to } => unary(self, RowOpCode::Add, a, to).other(self.rows(b)),
            RowOp::Affine { weight, bias, from, to } => unary(self, RowOpCode::Affine, from, to)
                .parameters([weights.vector(Some(weight)), weights.vector(Some(bias))]),
            RowOp::Quantize { from, to } => {
                EncodedRowOp::new(RowOpCode::Quantize, self.rows(from), self.rows(to), from.columns)
            }
            RowOp::LoraSum { .. } => return Err(unsupported("per-request LoRA adapters")),
            RowOp::QuantizeRotated { from, to } => {
                EncodedRowOp::new(RowOpCode::QuantizeRotated, self.rows(from), self.rows(to), from.columns)
            }
            RowOp::InputFeatures { to } => {
                let place = self.tables.features(to.columns);
                let from = DeviceRows { ptr: self.table(place), stride: to.columns };
                EncodedRowOp::new(RowOpCode::Copy, from, self.rows(to), to.columns)
            }
            RowOp::Im2col { .. }
            | RowOp::L2Normalize { .. }
            | RowOp::DecayGate { .. }
            | RowOp::Route { .. }
            | RowOp::Dispatch { .. }
            | RowOp::Combine { .. } => {
                return Err(Error::argument("graph", "this operation has a kernel of its own"));
            }
        })
    }

    /// Adds what launches for rows of this kind refer to.
    pub(super) fn use_rows(&mut self, rows: RowKind) {
        if let RowKind::Slots(top_k) = rows {
            self.tables.add_slot_count(top_k);
        }
    }

    /// Returns the kernel of an operation that has one of its own, its threads and shared memory, and its arguments but
    /// the number of rows.
    pub(super) fn each_row(
        &mut self,
        op: &RowOp,
    ) -> Option<(&'static str, usize, usize, Vec<KernelArgument>)> {
        let rows = |own: &Self, view: BufferView| {
            let rows = own.rows(view);
            [KernelArgument::Ptr(rows.ptr), int(rows.stride)]
        };
        let slots_at = |own: &Self, view: BufferView| KernelArgument::Ptr(own.rows(view).ptr);
        Some(match *op {
            RowOp::Route { routing, from, to } => {
                let rest = [int(routing.experts), int(routing.top_k), int(usize::from(routing.normalize))];
                let arguments = [&rows(self, from)[..], &rows(self, to), &rest].concat();
                ("expert_route", 128, 8 * routing.experts, arguments)
            }
            RowOp::Dispatch { routing, slots, from, to } => {
                let rest = [int(to.columns), slots_at(self, slots), int(routing.experts)];
                ("expert_dispatch", THREADS, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            RowOp::Combine { routing, slots, routed, from, to } => {
                let rest = [int(to.columns), slots_at(self, slots), int(routing.experts), int(routing.top_k)];
                let views = [rows(self, from), rows(self, routed), rows(self, to)].concat();
                ("expert_combine", THREADS, 0, [&views[..], &rest].concat())
            }
            RowOp::Im2col { ref offsets, stride, rows: kinds, from, to } => {
                let place = self.tables.taps(&Taps { offsets: offsets.clone(), stride, rows: kinds });
                let rest = [int(from.columns), KernelArgument::Ptr(self.table(place)), int(offsets.len())];
                ("gather_taps", THREADS, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            RowOp::L2Normalize { group, epsilon, factor, from, to } => {
                let rest = [
                    int(to.columns),
                    int(group),
                    KernelArgument::Float(epsilon),
                    KernelArgument::Float(factor),
                ];
                let arguments = [&rows(self, from)[..], &rows(self, to), &rest].concat();
                ("l2_normalize_rows", 128, 4 * to.columns.div_ceil(group), arguments)
            }
            RowOp::DecayGate { log, bias, from, to } => {
                let vector = |id| KernelArgument::Ptr(self.context.weights.vector(Some(id)));
                let rest = [int(to.columns), vector(log), vector(bias)];
                ("decay_gate_rows", 128, 0, [&rows(self, from)[..], &rows(self, to), &rest].concat())
            }
            RowOp::RopeCosSin { .. }
            | RowOp::Embed { .. }
            | RowOp::EmbedSegment { .. }
            | RowOp::SinusoidalPositions { .. }
            | RowOp::InputFeatures { .. }
            | RowOp::ExternalInput { .. }
            | RowOp::EmbedPosition { .. }
            | RowOp::SelectOutputs { .. }
            | RowOp::Norm { .. }
            | RowOp::Rope { .. }
            | RowOp::Activate { .. }
            | RowOp::Gate { .. }
            | RowOp::ClampedGate { .. }
            | RowOp::RepeatColumns { .. }
            | RowOp::Add { .. }
            | RowOp::Affine { .. }
            | RowOp::Elementwise { .. }
            | RowOp::LoraSum { .. }
            | RowOp::Quantize { .. }
            | RowOp::QuantizeRotated { .. } => return None,
        })
    }
}
