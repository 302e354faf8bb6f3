//! The LM head and the loss, a chunk of rows at a time. Logits are overwritten by their gradient, so that there is
//! one buffer of them.

use siskin_cuda::flag;
use siskin_cuda::ops::{Destination, OpTensors};
use siskin_device::{DevicePtr, KernelArgument, MatrixShape, aligned};
use siskin_format::Result;
use siskin_graph::Op;

use super::{DeviceObjective, PassBuilder};
use crate::cuda::loss::DeviceOutputs;
use crate::cuda::op::{self, OpBackward};
use crate::program::Buffer;

/// The approximate size of the widest buffer of a chunk, in bytes: each chunk reads and writes the gradients of the
/// head's weights, however few rows it has.
const MAX_BYTES: usize = 1 << 28;
/// The rows of a chunk are a multiple of this if there is more than one chunk.
const ROWS: usize = 128;

/// Returns the maximum rows of a chunk, for this many rows in total and bytes per row; monotonic in `rows`.
fn max_rows(rows: usize, bytes: usize) -> usize {
    let max_rows = (MAX_BYTES / bytes.max(1)).max(ROWS);
    rows.min(max_rows.next_multiple_of(ROWS)).max(1)
}

/// Returns the rows of a chunk: all chunks but the last are equal.
fn chunk_rows(rows: usize, bytes: usize) -> usize {
    let parts = rows.div_ceil((MAX_BYTES / bytes.max(1)).max(ROWS)).max(1);
    rows.div_ceil(parts).next_multiple_of(ROWS).min(rows).max(1)
}

/// The rows of the value that enters the head, and of its gradient.
#[derive(Clone, Copy, Debug)]
struct HeadInput {
    value: DevicePtr,
    gradient: DevicePtr,
}

/// The places of the buffers of a chunk.
struct HeadBuffers {
    rows: usize,
    /// The buffers of the head's nodes, and where a value is not overwritten by its gradient, that of its gradient.
    values: Vec<DevicePtr>,
    gradients: Vec<DevicePtr>,
    results: DevicePtr,
    /// Elements from a row of the last node's output to the next.
    stride: usize,
    bytes: usize,
}

impl PassBuilder<'_> {
    /// Appends head and loss for all rows, and backward; returns the bytes of its buffers.
    pub(super) fn head(&mut self, goal: DeviceObjective<'_>, back: bool) -> Result<usize> {
        let program = &self.runner.program;
        let hidden = program.graph.values[program.graph.hidden];
        let rows = program.row_count(program.graph.hidden, self.batch);
        let columns = program.graph.values[program.graph.output].columns;
        goal.loss.loss().check(self.batch, goal.targets, MatrixShape { rows, columns })?;
        let tables = self.tables(rows, goal.loss.loss().by_rows());
        let input = HeadInput {
            value: self.place(Buffer::Value { value: program.graph.hidden, recomputed: false }),
            gradient: self.place(Buffer::Gradient(program.graph.hidden)),
        };
        let scale = self.builder.tables.table("scale", || goal.scale.to_le_bytes().to_vec());
        for start in (0..rows).step_by(tables.rows) {
            let count = tables.rows.min(rows - start);
            let bytes = (start * hidden.columns * self.runner.precision.bytes()) as DevicePtr;
            let part = HeadInput { value: input.value + bytes, gradient: input.gradient + bytes };
            self.chunk_forward(&tables, part, count);
            let place = self.outputs(&tables, part, count);
            self.builder.scratch.clear();
            let outputs = DeviceOutputs {
                first: start,
                rows: count,
                columns,
                stride: tables.stride,
                place,
                results: tables.results,
                sums: self.runner.sums,
                scale,
                batch: self.batch,
                targets: goal.targets,
                back,
            };
            goal.loss.loss().record(&mut self.builder, &outputs);
            if back {
                self.chunk_backward(&tables, part, count);
            }
        }
        self.written.insert(program.graph.hidden);
        Ok(tables.bytes)
    }

    /// Lays out the buffers of a chunk, whose rows are bounded by the widest buffer; or of all rows, if the loss
    /// cannot be computed in chunks.
    fn tables(&self, rows: usize, in_parts: bool) -> HeadBuffers {
        let program = &self.runner.program;
        let nodes = &program.graph.nodes[program.head_start..];
        let widths: Vec<usize> = nodes.iter().map(|node| program.graph.values[node.output].columns).collect();
        let widest = widths.iter().copied().max().unwrap_or(1).max(1);
        let bytes = widest * self.runner.precision.bytes();
        // The buffers fit the largest chunk of any batch with at most as many rows, for which memory was planned.
        let (room, rows) = match in_parts {
            true => (max_rows(rows, bytes), chunk_rows(rows, bytes)),
            false => (rows.max(1), rows.max(1)),
        };
        let last = nodes.len().saturating_sub(1);
        let columns = program.graph.values[program.graph.output].columns;
        let padded = nodes.last().is_some_and(|node| matches!(node.op, Op::Linear(_)));
        let stride = if padded { self.runner.precision.padded(columns) } else { columns };
        let base = self.runner.areas.head.place;
        let mut bytes = 0;
        let mut next = |size: usize| {
            bytes += aligned(size);
            base + (bytes - aligned(size)) as DevicePtr
        };
        let mut values = Vec::new();
        let mut gradients = Vec::new();
        for (index, &width) in widths.iter().enumerate() {
            let size = room * if index == last { stride } else { width } * self.runner.precision.bytes();
            values.push(next(size));
            gradients.push(if index == last { values[index] } else { next(size) });
        }
        let results = next(12 * room);
        HeadBuffers { rows, values, gradients, results, stride, bytes }
    }

    /// Returns the index of the head's node that produces a value; `None` for the input of the head.
    fn producer(&self, value: usize) -> Option<usize> {
        let program = &self.runner.program;
        program.graph.nodes[program.head_start..].iter().position(|node| node.output == value)
    }

    fn chunk_forward(&mut self, tables: &HeadBuffers, input: HeadInput, rows: usize) {
        let program = &self.runner.program;
        let count = program.graph.nodes.len() - program.head_start;
        for index in 0..count {
            let node = &program.graph.nodes[program.head_start + index];
            let of = |&value: &usize| self.producer(value).map_or(input.value, |maker| tables.values[maker]);
            let inputs: Vec<DevicePtr> = node.inputs.iter().map(of).collect();
            let mut call = self.call(program.head_start + index, Some(rows));
            if index + 1 == count {
                call.stride = tables.stride;
            }
            let tensors = OpTensors { inputs: &inputs, out: tables.values[index], saved: 0 };
            let fp8 = self.fp8_scaling(&call);
            op::forward(&mut self.builder, &call, tensors, fp8);
            self.mark(program.head_start + index, tables.values[index], rows, call.stride);
        }
    }

    /// Returns the place of the program's output, which is overwritten by its gradient.
    fn outputs(&mut self, tables: &HeadBuffers, input: HeadInput, rows: usize) -> DevicePtr {
        let program = &self.runner.program;
        let columns = program.graph.values[program.graph.output].columns;
        tables.values.last().copied().unwrap_or_else(|| {
            // The head is empty: its input goes directly to the loss.
            let arguments = [input.value, input.gradient].map(KernelArgument::Ptr);
            self.builder.commands.elementwise(
                "copy_or_accumulate",
                rows * columns,
                &[&arguments[..], &[flag(false)]].concat(),
            );
            input.gradient
        })
    }

    fn chunk_backward(&mut self, tables: &HeadBuffers, input: HeadInput, rows: usize) {
        let program = &self.runner.program;
        let count = program.graph.nodes.len() - program.head_start;
        let mut written = vec![false; count + 1];
        for index in (0..count).rev() {
            let node = &program.graph.nodes[program.head_start + index];
            let mut to = Vec::new();
            for &value in &node.inputs {
                let maker = self.producer(value);
                let place = maker.map_or(input.gradient, |maker| tables.gradients[maker]);
                let known = &mut written[maker.unwrap_or(count)];
                to.push(Some(Destination { ptr: place, accumulate: std::mem::replace(known, true) }));
            }
            let of = |&value: &usize| self.producer(value).map_or(input.value, |maker| tables.values[maker]);
            let inputs: Vec<DevicePtr> = node.inputs.iter().map(of).collect();
            let mut call = self.call(program.head_start + index, Some(rows));
            if index + 1 == count {
                call.stride = tables.stride;
            }
            let gradient = tables.gradients[index];
            let back = OpBackward {
                inputs: &inputs,
                output: tables.values[index],
                saved: 0,
                gradient,
                input_gradients: &to,
                weight_gradients: &self.runner.weights.gradients,
                fp8: self.fp8_scaling(&call),
            };
            op::backward(&mut self.builder, &call, &back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_few_and_of_similar_size() {
        let parts = |rows: usize, bytes| {
            let max_rows = chunk_rows(rows, bytes);
            (0..rows).step_by(max_rows).map(|start| max_rows.min(rows - start)).collect::<Vec<_>>()
        };
        assert_eq!(parts(8192, 2 * 50304), [2048, 2048, 2048, 2048]);
        assert_eq!(parts(8192, 4 * 50304), [1280, 1280, 1280, 1280, 1280, 1280, 512]);
        assert_eq!(parts(1000, 2 * 50304), [1000]);
        assert_eq!(parts(300, 1 << 30), [128, 128, 44], "of what is wider than all");
        assert_eq!(chunk_rows(0, 0), 1);
    }

    #[test]
    fn memory_bounds_are_monotonic() {
        for bytes in [2 * 50304, 4 * 128_256, 2 * 262_144, 1 << 30] {
            let room = |rows| max_rows(rows, bytes);
            assert!((0..4000).all(|rows| chunk_rows(rows, bytes) <= room(rows)), "{bytes}");
            assert!((0..4000).all(|rows| room(rows) <= room(rows + 1)), "{bytes}");
        }
    }
}
