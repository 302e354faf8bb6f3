//! The order of work in a training step, and the buffers that it reads and writes: derived from the program alone.

use siskin_format::Result;

use super::Program;
use super::recompute::{Recompute, RecomputePlan};
use crate::grad::rule;

/// A buffer that lives for a part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// A value; `again`: recomputed.
    Value {
        /// The value.
        value: usize,
        /// Recomputed.
        recomputed: bool,
    },
    /// What a node keeps for backward.
    Saved {
        /// The node.
        node: usize,
        /// Recomputed.
        recomputed: bool,
    },
    /// The gradient of a value.
    Gradient(usize),
}

/// One unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleStep {
    /// The forward pass of a node.
    Forward {
        /// The node.
        node: usize,
        /// Recomputed.
        recomputed: bool,
    },
    /// The head, the loss, and the head's backward pass, a chunk of rows at a time.
    Head,
    /// The backward pass of a node.
    Backward {
        /// The node.
        node: usize,
    },
}

/// All work of a step, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The units of work.
    pub steps: Vec<ScheduleStep>,
    /// The buffers that each step reads and writes.
    pub uses: Vec<BufferUses>,
    /// Which values need a gradient.
    pub requires_grad: Vec<bool>,
    /// Which weights need a gradient.
    pub trained: Vec<bool>,
    recompute: RecomputePlan,
    /// The node that produces each value.
    producers: Vec<usize>,
}

impl Schedule {
    /// Builds the schedule of a program that trains the weights for which `trains` returns true.
    pub fn new(program: &Program, recompute: Recompute, trains: impl Fn(usize) -> bool) -> Result<Self> {
        let mut schedule = Self::of_forward(program);
        schedule.trained = (0..program.graph.weights.len()).map(&trains).collect();
        for node in &program.graph.nodes {
            let own = node.op.weights().into_iter().any(&trains);
            schedule.requires_grad[node.output] =
                own || node.inputs.iter().any(|&input| schedule.requires_grad[input]);
        }
        schedule.recompute = recompute.choose(program);
        let mut end = program.head_start;
        while end > 0 {
            let part = schedule.recompute.segments[end - 1];
            let start = (0..end).rev().take_while(|&node| schedule.recompute.segments[node] == part).last();
            let start = start.unwrap_or(0);
            let again = schedule.recomputed_nodes(program, start..end)?;
            schedule
                .steps
                .extend(again.into_iter().map(|node| ScheduleStep::Forward { node, recomputed: true }));
            let backward =
                (start..end).rev().filter(|&node| schedule.requires_grad[program.graph.nodes[node].output]);
            schedule.steps.extend(backward.map(|node| ScheduleStep::Backward { node }));
            end = start;
        }
        schedule.with_uses(program)
    }

    /// Builds a schedule without a backward pass.
    pub fn forward(program: &Program) -> Result<Self> {
        Self::of_forward(program).with_uses(program)
    }

    /// Returns how often the matmuls of a node run in a step, without recomputation: forward, and backward for its
    /// inputs and for its weights if these need gradients.
    pub fn passes(&self, program: &Program, node: usize) -> f64 {
        let node = &program.graph.nodes[node];
        let weights = node.op.weights();
        let reads = node.inputs.iter().any(|&input| self.requires_grad[input]);
        let trains = match weights.is_empty() {
            true => reads,
            false => weights.iter().any(|&weight| self.trained[weight]),
        };
        1.0 + f64::from(u8::from(reads)) + f64::from(u8::from(trains))
    }

    /// Fills in the buffers of all steps.
    fn with_uses(mut self, program: &Program) -> Result<Self> {
        let uses = self.steps.iter().map(|&step| self.uses_of(program, step));
        self.uses = uses.collect::<Result<_>>()?;
        Ok(self)
    }

    fn of_forward(program: &Program) -> Self {
        let mut producers = vec![usize::MAX; program.graph.values.len()];
        program.graph.nodes.iter().enumerate().for_each(|(number, node)| producers[node.output] = number);
        let forward = (0..program.head_start).map(|node| ScheduleStep::Forward { node, recomputed: false });
        Self {
            steps: forward.chain([ScheduleStep::Head]).collect(),
            uses: Vec::new(),
            requires_grad: vec![false; program.graph.values.len()],
            trained: vec![false; program.graph.weights.len()],
            recompute: Recompute::None.choose(program),
            producers,
        }
    }

    /// Returns the nodes of a segment that are recomputed for its backward pass.
    fn recomputed_nodes(&self, program: &Program, part: std::ops::Range<usize>) -> Result<Vec<usize>> {
        let dropped = |value: usize| {
            let producer = self.producers[value];
            self.recompute.dropped.get(producer).copied().unwrap_or(false).then_some(producer)
        };
        let mut needed = vec![false; program.graph.nodes.len()];
        for node in part.clone() {
            let of = &program.graph.nodes[node];
            if !self.requires_grad[of.output] {
                continue;
            }
            let reads = rule::<f32>(&of.op)?.reads();
            let inputs = of.inputs.iter().copied().filter(|_| reads.inputs);
            let values = inputs.chain(reads.output.then_some(of.output));
            values.filter_map(dropped).for_each(|producer| needed[producer] = true);
        }
        for node in (0..part.end).rev().filter(|&node| node >= part.start) {
            if needed[node] {
                program.inputs(node).filter_map(dropped).for_each(|producer| needed[producer] = true);
            }
        }
        Ok(part.filter(|&node| needed[node]).collect())
    }

    /// Returns the buffer in which backward or recomputation finds a value.
    fn backward_buffer(&self, value: usize) -> Buffer {
        Buffer::Value {
            value,
            recomputed: self.recompute.dropped.get(self.producers[value]).copied().unwrap_or(false),
        }
    }

    fn uses_of(&self, program: &Program, step: ScheduleStep) -> Result<BufferUses> {
        let mut uses = BufferUses::default();
        match step {
            ScheduleStep::Forward { node, recomputed: again } => {
                let find = |value| {
                    if again {
                        self.backward_buffer(value)
                    } else {
                        Buffer::Value { value, recomputed: again }
                    }
                };
                uses.inputs = program.inputs(node).map(find).collect();
                uses.writes = vec![
                    Buffer::Value { value: program.graph.nodes[node].output, recomputed: again },
                    Buffer::Saved { node, recomputed: again },
                ];
            }
            ScheduleStep::Head => {
                uses.inputs = vec![Buffer::Value { value: program.graph.hidden, recomputed: false }];
                uses.writes = vec![Buffer::Gradient(program.graph.hidden)];
            }
            ScheduleStep::Backward { node } => {
                let of = &program.graph.nodes[node];
                let reads = rule::<f32>(&of.op)?.reads();
                if reads.inputs {
                    uses.inputs = of.inputs.iter().map(|&input| self.backward_buffer(input)).collect();
                }
                uses.output = reads.output.then(|| self.backward_buffer(of.output));
                uses.saved = Some(Buffer::Saved { node, recomputed: self.recompute.dropped[node] });
                uses.gradient = Some(Buffer::Gradient(of.output));
                let needs_grad =
                    |&input: &usize| self.requires_grad[input].then_some(Buffer::Gradient(input));
                uses.input_gradients = of.inputs.iter().map(needs_grad).collect();
            }
        }
        Ok(uses)
    }
}

/// The buffers of a step.
#[derive(Clone, Debug, Default)]
pub struct BufferUses {
    /// Inputs, if they are needed.
    pub inputs: Vec<Buffer>,
    /// The output, if backward needs it.
    pub output: Option<Buffer>,
    /// What forward kept for backward.
    pub saved: Option<Buffer>,
    /// The gradient of the output.
    pub gradient: Option<Buffer>,
    /// Buffers that are overwritten.
    pub writes: Vec<Buffer>,
    /// Gradients that are accumulated into, one for each input.
    pub input_gradients: Vec<Option<Buffer>>,
}

impl BufferUses {
    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = Buffer> + '_ {
        let single = [self.output, self.saved, self.gradient].into_iter().flatten();
        let to = self.input_gradients.iter().copied().flatten();
        self.inputs.iter().chain(&self.writes).copied().chain(single).chain(to)
    }
}
