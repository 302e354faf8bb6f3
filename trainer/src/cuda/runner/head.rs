//! The LM head and the loss, a chunk of rows at a time. Logits are overwritten by their gradient, so that there is
//! one buffer of them.

use siskin::Result;
use siskin::graph::Op;

use super::{Goal, Walk};
use crate::cuda::device::Device;
use crate::cuda::loss::DeviceOutputs;
use crate::cuda::op::{self, OpBackward, To, flag};
use crate::cuda::tape::{KernelArgument, Place};
use crate::cuda::{aligned, op::width_of};
use crate::program::Buffer;

/// The approximate size of the widest buffer of a chunk, in bytes: each chunk reads and writes the gradients of the
/// head's weights, however few rows it has.
const MOST: usize = 1 << 28;
/// The rows of a chunk are a multiple of this if there is more than one chunk.
const ROWS: usize = 128;

/// Returns the maximum rows of a chunk, for this many rows in total and bytes per row; monotonic in `rows`.
fn most_rows(rows: usize, bytes: usize) -> usize {
    let most = (MOST / bytes.max(1)).max(ROWS);
    rows.min(most.next_multiple_of(ROWS)).max(1)
}

/// Returns the rows of a chunk: all chunks but the last are equal.
fn rows_of_part(rows: usize, bytes: usize) -> usize {
    let parts = rows.div_ceil((MOST / bytes.max(1)).max(ROWS)).max(1);
    rows.div_ceil(parts).next_multiple_of(ROWS).min(rows).max(1)
}

/// The places of the buffers of a chunk.
struct Tables {
    rows: usize,
    /// The buffers of the head's nodes, and where a value is not overwritten by its gradient, that of its gradient.
    values: Vec<Place>,
    gradients: Vec<Place>,
    results: Place,
    /// Elements from a row of the last node's output to the next.
    stride: usize,
    bytes: usize,
}

impl<D: Device> Walk<'_, D> {
    /// Appends head and loss for all rows, and backward; returns the bytes of its buffers.
    pub(super) fn head(&mut self, goal: Goal<'_>, back: bool) -> Result<usize> {
        let program = &self.runner.program;
        let hidden = program.values[program.hidden];
        let rows = hidden.row_count(self.batch);
        let columns = program.values[program.output].columns;
        goal.loss.loss().check(self.batch, goal.targets, [rows, columns])?;
        let tables = self.tables(rows, goal.loss.loss().by_rows());
        let own = [Buffer::Value { value: program.hidden, again: false }, Buffer::Gradient(program.hidden)]
            .map(|buffer| self.place(buffer));
        let scale = self.work.sheet.table("scale", || goal.scale.to_le_bytes().to_vec());
        for start in (0..rows).step_by(tables.rows) {
            let count = tables.rows.min(rows - start);
            let bytes = (start * hidden.columns * self.runner.precision.bytes()) as Place;
            let part = own.map(|place| place + bytes);
            self.part_forward(&tables, part, count);
            let place = self.outputs(&tables, part, count);
            self.work.scratch.clear();
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
            goal.loss.loss().write_down(&mut self.work, &outputs);
            if back {
                self.part_backward(&tables, part, count);
            }
        }
        self.written.insert(program.hidden);
        Ok(tables.bytes)
    }

    /// Lays out the buffers of a chunk, whose rows are bounded by the widest buffer; or of all rows, if the loss
    /// cannot be computed in chunks.
    fn tables(&self, rows: usize, in_parts: bool) -> Tables {
        let program = &self.runner.program;
        let nodes = &program.nodes[program.tail..];
        let widths: Vec<usize> = nodes.iter().map(|node| program.values[node.output].columns).collect();
        let widest = widths.iter().copied().max().unwrap_or(1).max(1);
        let bytes = widest * self.runner.precision.bytes();
        // The buffers fit the largest chunk of any batch with at most as many rows, for which memory was planned.
        let (room, rows) = match in_parts {
            true => (most_rows(rows, bytes), rows_of_part(rows, bytes)),
            false => (rows.max(1), rows.max(1)),
        };
        let last = nodes.len().saturating_sub(1);
        let columns = program.values[program.output].columns;
        let padded = nodes.last().is_some_and(|node| matches!(node.op, Op::Linear { .. }));
        let stride = if padded { width_of(self.runner.precision, columns) } else { columns };
        let base = self.runner.areas.head.place;
        let mut bytes = 0;
        let mut next = |size: usize| {
            bytes += aligned(size);
            base + (bytes - aligned(size)) as Place
        };
        let mut values = Vec::new();
        let mut gradients = Vec::new();
        for (index, &width) in widths.iter().enumerate() {
            let size = room * if index == last { stride } else { width } * self.runner.precision.bytes();
            values.push(next(size));
            gradients.push(if index == last { values[index] } else { next(size) });
        }
        let results = next(12 * room);
        Tables { rows, values, gradients, results, stride, bytes }
    }

    /// Returns the index of the head's node that produces a value; `None` for the input of the head.
    fn maker(&self, value: usize) -> Option<usize> {
        let program = &self.runner.program;
        program.nodes[program.tail..].iter().position(|node| node.output == value)
    }

    fn part_forward(&mut self, tables: &Tables, [hidden, _]: [Place; 2], rows: usize) {
        let program = &self.runner.program;
        let count = program.nodes.len() - program.tail;
        for index in 0..count {
            let node = &program.nodes[program.tail + index];
            let of = |&input: &usize| self.maker(input).map_or(hidden, |maker| tables.values[maker]);
            let inputs: Vec<Place> = node.inputs.iter().map(of).collect();
            let mut call = self.call(program.tail + index, Some(rows));
            if index + 1 == count {
                call.stride = tables.stride;
            }
            op::forward(&mut self.work, &call, &inputs, tables.values[index], 0);
            self.mark(program.tail + index, tables.values[index], rows, call.stride);
        }
    }

    /// Returns the place of the program's output, which is overwritten by its gradient.
    fn outputs(&mut self, tables: &Tables, [hidden, of_hidden]: [Place; 2], rows: usize) -> Place {
        let program = &self.runner.program;
        let columns = program.values[program.output].columns;
        tables.values.last().copied().unwrap_or_else(|| {
            // The head is empty: its input goes directly to the loss.
            let arguments = [hidden, of_hidden].map(KernelArgument::Place);
            self.work.tape.numbers("hand_on", rows * columns, &[&arguments[..], &[flag(false)]].concat());
            of_hidden
        })
    }

    fn part_backward(&mut self, tables: &Tables, [hidden, of_hidden]: [Place; 2], rows: usize) {
        let program = &self.runner.program;
        let count = program.nodes.len() - program.tail;
        let mut written = vec![false; count + 1];
        for index in (0..count).rev() {
            let node = &program.nodes[program.tail + index];
            let mut to = Vec::new();
            for &input in &node.inputs {
                let maker = self.maker(input);
                let place = maker.map_or(of_hidden, |maker| tables.gradients[maker]);
                let known = &mut written[maker.unwrap_or(count)];
                to.push(Some(To { place, add: std::mem::replace(known, true) }));
            }
            let of = |&input: &usize| self.maker(input).map_or(hidden, |maker| tables.values[maker]);
            let inputs: Vec<Place> = node.inputs.iter().map(of).collect();
            let mut call = self.call(program.tail + index, Some(rows));
            if index + 1 == count {
                call.stride = tables.stride;
            }
            let gradient = tables.gradients[index];
            let back =
                OpBackward { inputs: &inputs, output: tables.values[index], kept: 0, gradient, to: &to };
            op::backward(&mut self.work, &call, &back);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_and_alike() {
        let parts = |rows: usize, bytes| {
            let most = rows_of_part(rows, bytes);
            (0..rows).step_by(most).map(|start| most.min(rows - start)).collect::<Vec<_>>()
        };
        assert_eq!(parts(8192, 2 * 50304), [2048, 2048, 2048, 2048]);
        assert_eq!(parts(8192, 4 * 50304), [1280, 1280, 1280, 1280, 1280, 1280, 512]);
        assert_eq!(parts(1000, 2 * 50304), [1000]);
        assert_eq!(parts(300, 1 << 30), [128, 128, 44], "of what is wider than all");
        assert_eq!(rows_of_part(0, 0), 1);
    }

    #[test]
    fn more_rows_need_no_less_memory() {
        for bytes in [2 * 50304, 4 * 128_256, 2 * 262_144, 1 << 30] {
            let room = |rows| most_rows(rows, bytes);
            assert!((0..4000).all(|rows| rows_of_part(rows, bytes) <= room(rows)), "{bytes}");
            assert!((0..4000).all(|rows| room(rows) <= room(rows + 1)), "{bytes}");
        }
    }
}
