//! Lowers matmuls, and mixtures of experts.

use siskin_backend::plan::{BufferView, Epilogue, MatmulPart};
use siskin_cuda::{PointwiseFunction, int};
use siskin_device::{DevicePtr, KernelArgument};
use siskin_format::Result;
use siskin_graph::{Routing, RowKind};
use siskin_kernels::panel::{InputKind, PanelType, ROWS};

use super::Lowering;
use crate::launches::{LoweredStep, THREADS};
use crate::row_ops::{DeviceRows, EncodedRowOp, RowOpCode, gated, pointwise};

/// The bytes of a matrix in the parts of a matmul launch: `MatmulPart` in `panel_matmul.cuh`.
const PART_BYTES: usize = 48;

impl Lowering<'_> {
    pub(super) fn arrange(&mut self, routing: &Routing, routed: BufferView, to: BufferView) {
        let run_starts = self.tables.run_starts();
        let routed = self.rows(routed);
        let arguments = vec![
            KernelArgument::Ptr(routed.ptr),
            int(routed.stride),
            int(routing.experts),
            int(routing.top_k),
            KernelArgument::Int(
                routing.capacity.map_or(-1, |capacity| i32::try_from(capacity).unwrap_or(i32::MAX)),
            ),
            KernelArgument::Ptr(self.table(run_starts)),
            KernelArgument::Ptr(self.table(self.tables.count(RowKind::Tokens))),
            KernelArgument::Ptr(self.rows(to).ptr),
        ];
        self.launch(LoweredStep::OneBlock { kernel: "expert_slots", threads: THREADS, arguments });
    }

    pub(super) fn experts(
        &mut self,
        slots: BufferView,
        (input, kind): (BufferView, InputKind),
        parts: &[(usize, MatmulPart)],
    ) -> Result<()> {
        self.flush();
        let mut parts_of_type = PartsOfType::default();
        for (expert, part) in parts {
            let matrix = self.context.weights.matrix(part.weight)?;
            let encoded = EncodedPart {
                weights: matrix.panels,
                bias: self.context.weights.vector(part.bias),
                out: self.rows(part.to),
                residual: DeviceRows::default(),
                outputs: part.to.columns,
                columns: matrix.columns,
            };
            parts_of_type.push(matrix.panel, (*expert, encoded));
        }
        let input = self.operand(input, kind);
        let slots = self.rows(slots).ptr;
        for (panel, list) in parts_of_type.0 {
            let start = self.constants.len();
            list.iter().for_each(|(expert, part)| part.write(*expert, &mut self.constants));
            let panels = list.iter().map(|(_, part)| part.outputs.div_ceil(ROWS)).max().unwrap_or(0);
            let (count, columns) = (list.len(), list.first().map_or(0, |(_, part)| part.columns));
            self.steps.push(LoweredStep::Experts {
                panel,
                parts: start,
                count,
                panels,
                slots,
                input,
                columns,
            });
        }
        Ok(())
    }

    pub(super) fn linear(
        &mut self,
        rows: RowKind,
        (input, kind): (BufferView, InputKind),
        parts: &[MatmulPart],
        after: Epilogue,
    ) -> Result<()> {
        self.flush();
        self.use_rows(rows);
        let near = matches!(after, Epilogue::Activate(_) | Epilogue::Gate(_));
        let residual = match after {
            Epilogue::Plus(view) => Some(view),
            Epilogue::Nothing | Epilogue::Activate(_) | Epilogue::Gate(_) => None,
        };
        let width = parts.first().map_or(0, |part| part.to.columns);
        let scratch = |index: usize| DeviceRows {
            ptr: self.context.places.scratch + 4 * (index * width) as DevicePtr,
            stride: parts.len() * width,
        };
        let mut parts_of_type = PartsOfType::default();
        for (index, part) in parts.iter().enumerate() {
            let matrix = self.context.weights.matrix(part.weight)?;
            let bias = match self.context.weights.vector(part.bias) {
                0 => 0,
                bias => bias + 4 * part.first as DevicePtr,
            };
            let encoded = EncodedPart {
                weights: matrix.panels + (part.first / ROWS * matrix.panel_bytes) as DevicePtr,
                bias,
                out: if near { scratch(index) } else { self.rows(part.to) },
                // A residual has the columns of all parts, of which there is one.
                residual: residual.map_or_else(DeviceRows::default, |view| self.rows(view)),
                outputs: part.to.columns,
                columns: matrix.columns,
            };
            parts_of_type.push(matrix.panel, encoded);
        }
        let input = self.operand(input, kind);
        for (panel, list) in parts_of_type.0 {
            let (start, mut panels) = (self.constants.len(), 0);
            for part in &list {
                part.write(panels, &mut self.constants);
                panels += part.outputs.div_ceil(ROWS);
            }
            let (count, columns) = (list.len(), list.first().map_or(0, |part| part.columns));
            self.steps.push(LoweredStep::Matmul { rows, panel, parts: start, count, panels, input, columns });
        }
        let scratch = [scratch(0), scratch(1)];
        if let Some(op) = parts.first().and_then(|first| self.epilogue(after, scratch, first.to)) {
            self.push(rows, op);
        }
        Ok(())
    }

    /// Returns the left operand of a matmul; quantized rows have no gaps, and kernels take no stride for them.
    fn operand(&self, input: BufferView, kind: InputKind) -> DeviceRows {
        match kind {
            InputKind::Float => self.rows(input),
            InputKind::Quantized | InputKind::Rotated => DeviceRows { stride: 0, ..self.rows(input) },
        }
    }

    /// Returns the operation that computes an epilogue from the outputs of one matrix or two.
    fn epilogue(&self, after: Epilogue, scratch: [DeviceRows; 2], to: BufferView) -> Option<EncodedRowOp> {
        let (out, columns) = (self.rows(to), to.columns);
        match after {
            Epilogue::Nothing | Epilogue::Plus(_) => None,
            Epilogue::Activate(function) => {
                let op = EncodedRowOp::new(RowOpCode::Pointwise, scratch[0], out, columns);
                Some(pointwise(op, PointwiseFunction::Activation(function), 0.0))
            }
            Epilogue::Gate(function) => Some(gated(function, scratch[0], scratch[1], out, columns)),
        }
    }
}

/// The matrices of a step by panel type, each of which is a launch.
struct PartsOfType<T>(Vec<(PanelType, Vec<T>)>);

impl<T> Default for PartsOfType<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> PartsOfType<T> {
    fn push(&mut self, panel: PanelType, part: T) {
        match self.0.iter_mut().find(|(known, _)| *known == panel) {
            Some((_, list)) => list.push(part),
            None => self.0.push((panel, vec![part])),
        }
    }
}

/// A matrix of a matmul launch.
struct EncodedPart {
    weights: DevicePtr,
    bias: DevicePtr,
    out: DeviceRows,
    residual: DeviceRows,
    outputs: usize,
    columns: usize,
}

impl EncodedPart {
    /// Appends the bytes; `first_panel` panels of the launch precede the part, or it is the number of an expert.
    pub(super) fn write(&self, first_panel: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for ptr in [self.weights, self.bias, self.out.ptr, self.residual.ptr] {
            out.extend(ptr.to_le_bytes());
        }
        for number in [self.out.stride, self.residual.stride, self.outputs, first_panel] {
            out.extend((number as u32).to_le_bytes());
        }
        debug_assert_eq!(out.len() - start, PART_BYTES, "the fields of MatmulPart");
    }
}
