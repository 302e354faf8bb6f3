//! The head and the loss, some rows at a time: scores become their own gradient, so that there is one table of them.

use siskin::graph::Op;
use siskin::{Error, Result};

use super::{Goal, Walk};
use crate::cuda::device::Device;
use crate::cuda::op::{self, Back, To, flag, whole};
use crate::cuda::tape::{Argument, Place};
use crate::cuda::{aligned, op::width_of};
use crate::program::Buffer;

/// Numbers of the widest table of a part.
const MOST: usize = 1 << 26;

/// Where the targets of rows are, their weights, and the factor on the loss.
#[derive(Clone, Copy)]
struct Lists {
    ids: Place,
    weights: Place,
    scale: Place,
}

impl Lists {
    /// Those of the rows from `start` on.
    fn after(self, start: usize) -> Self {
        let bytes = 4 * start as Place;
        Self { ids: self.ids + bytes, weights: self.weights + bytes, ..self }
    }
}

/// Where the tables of a part of the rows are.
struct Tables {
    rows: usize,
    /// The numbers of the head's nodes, and where one is not its own gradient, those of its gradient.
    values: Vec<Place>,
    gradients: Vec<Place>,
    results: Place,
    /// From a row of the last node's output to the next.
    stride: usize,
    bytes: usize,
}

impl<D: Device> Walk<'_, D> {
    /// Writes down head and loss for all rows, and back; gives the bytes of its tables.
    pub(super) fn head(&mut self, goal: Goal<'_>, back: bool) -> Result<usize> {
        let program = &self.runner.program;
        let hidden = program.values[program.hidden];
        let rows = hidden.row_count(self.batch);
        self.check(goal, rows)?;
        let tables = self.tables(rows);
        let own = [Buffer::Value { value: program.hidden, again: false }, Buffer::Gradient(program.hidden)]
            .map(|buffer| self.place(buffer));
        let lists = self.lists(goal);
        for start in (0..rows).step_by(tables.rows) {
            let count = tables.rows.min(rows - start);
            let bytes = (start * hidden.columns * self.runner.precision.bytes()) as Place;
            let part = own.map(|place| place + bytes);
            self.part_forward(&tables, part, count);
            let smoothing = goal.loss.smoothing as f32;
            self.loss(&tables, part, count, lists.after(start), (smoothing, back));
            if back {
                self.part_backward(&tables, part, count);
            }
        }
        self.written.insert(program.hidden);
        Ok(tables.bytes)
    }

    fn check(&self, goal: Goal<'_>, rows: usize) -> Result<()> {
        let columns = self.runner.program.values[self.runner.program.output].columns;
        if goal.targets.ids.len() < rows || goal.targets.weights.len() < rows {
            return Err(Error::argument("targets", "fewer than rows"));
        }
        let mut counted = goal.targets.ids.iter().zip(&goal.targets.weights);
        if let Some((id, _)) = counted.find(|(id, weight)| **weight != 0.0 && **id as usize >= columns) {
            return Err(Error::argument("targets", format!("{id} is beyond the {columns} columns")));
        }
        Ok(())
    }

    /// Places for parts of as many rows as the widest table allows.
    fn tables(&self, rows: usize) -> Tables {
        let program = &self.runner.program;
        let nodes = &program.nodes[program.tail..];
        let widths: Vec<usize> = nodes.iter().map(|node| program.values[node.output].columns).collect();
        let widest = widths.iter().copied().max().unwrap_or(1).max(1);
        let rows = (MOST / widest).clamp(16, rows.max(16)).min(rows.max(1));
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
            let size = rows * if index == last { stride } else { width } * self.runner.precision.bytes();
            values.push(next(size));
            gradients.push(if index == last { values[index] } else { next(size) });
        }
        let results = next(12 * rows);
        Tables { rows, values, gradients, results, stride, bytes }
    }

    /// What the loss reads beside the scores.
    fn lists(&mut self, goal: Goal<'_>) -> Lists {
        let ids = &goal.targets.ids;
        let ids = self.work.sheet.whole("targets", || ids.iter().map(|&id| id as i32).collect());
        let weights = self.work.sheet.floats("weights of targets", || goal.targets.weights.clone());
        let scale = self.work.sheet.table("scale", || goal.scale.to_le_bytes().to_vec());
        Lists { ids, weights, scale }
    }

    /// The number of the head's node that makes a value; none: it enters the head.
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
        }
    }

    fn loss(
        &mut self,
        tables: &Tables,
        [hidden, of_hidden]: [Place; 2],
        rows: usize,
        lists: Lists,
        (smoothing, back): (f32, bool),
    ) {
        let program = &self.runner.program;
        let columns = program.values[program.output].columns;
        let outputs = tables.values.last().copied().unwrap_or_else(|| {
            // Nothing stands between what enters the head and the loss.
            let arguments = [hidden, of_hidden].map(Argument::Place);
            self.work.tape.numbers("hand_on", rows * columns, &[&arguments[..], &[flag(false)]].concat());
            of_hidden
        });
        let arguments = [
            &[outputs, lists.ids, lists.weights].map(Argument::Place)[..],
            &[Argument::Float(smoothing)],
            &[lists.scale, tables.results].map(Argument::Place),
            &[whole(columns), whole(tables.stride), flag(back)],
        ];
        let name = self.work.tape.named("cross_entropy");
        self.work.tape.kernel(&name, [rows, 1, 1], 512, 0, &arguments.concat());
        let arguments = [Argument::Place(tables.results), whole(rows), Argument::Place(self.runner.sums)];
        self.work.tape.kernel("add_results", [1, 1, 1], 512, 0, &arguments);
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
            let back = Back { inputs: &inputs, output: tables.values[index], kept: 0, gradient, to: &to };
            op::backward(&mut self.work, &call, &back);
        }
    }
}
