//! The order of work in a training step, and the buffers that it reads and writes: derived from the program alone.

use siskin::Result;

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
        again: bool,
    },
    /// What a node keeps for backward.
    Kept {
        /// The node.
        node: usize,
        /// Recomputed.
        again: bool,
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
        again: bool,
    },
    /// The head, the loss, and the head's backward pass, a chunk of rows at a time.
    Tail,
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
    pub uses: Vec<Uses>,
    /// Which values need a gradient.
    pub steep: Vec<bool>,
    /// Which weights need a gradient.
    pub trained: Vec<bool>,
    forgotten: RecomputePlan,
    /// The node that produces each value.
    makers: Vec<usize>,
}

impl Schedule {
    /// Builds the schedule of a program that trains the weights for which `trains` returns true.
    pub fn new(program: &Program, recompute: Recompute, trains: impl Fn(usize) -> bool) -> Result<Self> {
        let mut schedule = Self::of_forward(program);
        schedule.trained = (0..program.weights.len()).map(&trains).collect();
        for node in &program.nodes {
            let own = node.op.weights().into_iter().any(&trains);
            schedule.steep[node.output] = own || node.inputs.iter().any(|&input| schedule.steep[input]);
        }
        schedule.forgotten = recompute.choose(program);
        let mut end = program.tail;
        while end > 0 {
            let part = schedule.forgotten.parts[end - 1];
            let start = (0..end).rev().take_while(|&node| schedule.forgotten.parts[node] == part).last();
            let start = start.unwrap_or(0);
            let again = schedule.again(program, start..end)?;
            schedule.steps.extend(again.into_iter().map(|node| ScheduleStep::Forward { node, again: true }));
            let backward = (start..end).rev().filter(|&node| schedule.steep[program.nodes[node].output]);
            schedule.steps.extend(backward.map(|node| ScheduleStep::Backward { node }));
            end = start;
        }
        schedule.complete(program)
    }

    /// Builds a schedule without a backward pass.
    pub fn forward(program: &Program) -> Result<Self> {
        Self::of_forward(program).complete(program)
    }

    /// Returns how often the matmuls of a node run in a step, without recomputation: forward, and backward for its
    /// inputs and for its weights if these need gradients.
    pub fn passes(&self, program: &Program, node: usize) -> f64 {
        let node = &program.nodes[node];
        let weights = node.op.weights();
        let reads = node.inputs.iter().any(|&input| self.steep[input]);
        let trains = match weights.is_empty() {
            true => reads,
            false => weights.iter().any(|&weight| self.trained[weight]),
        };
        1.0 + f64::from(u8::from(reads)) + f64::from(u8::from(trains))
    }

    /// Fills in the buffers of all steps.
    fn complete(mut self, program: &Program) -> Result<Self> {
        let uses = self.steps.iter().map(|&step| self.uses_of(program, step));
        self.uses = uses.collect::<Result<_>>()?;
        Ok(self)
    }

    fn of_forward(program: &Program) -> Self {
        let mut makers = vec![usize::MAX; program.values.len()];
        program.nodes.iter().enumerate().for_each(|(number, node)| makers[node.output] = number);
        let forward = (0..program.tail).map(|node| ScheduleStep::Forward { node, again: false });
        Self {
            steps: forward.chain([ScheduleStep::Tail]).collect(),
            uses: Vec::new(),
            steep: vec![false; program.values.len()],
            trained: vec![false; program.weights.len()],
            forgotten: Recompute::Nothing.choose(program),
            makers,
        }
    }

    /// Returns the nodes of a segment that are recomputed for its backward pass.
    fn again(&self, program: &Program, part: std::ops::Range<usize>) -> Result<Vec<usize>> {
        let forgotten = |value: usize| {
            let maker = self.makers[value];
            self.forgotten.nodes.get(maker).copied().unwrap_or(false).then_some(maker)
        };
        let mut needed = vec![false; program.nodes.len()];
        for node in part.clone() {
            let of = &program.nodes[node];
            if !self.steep[of.output] {
                continue;
            }
            let reads = rule::<f32>(&of.op)?.reads();
            let inputs = of.inputs.iter().copied().filter(|_| reads.inputs);
            let values = inputs.chain(reads.output.then_some(of.output));
            values.filter_map(forgotten).for_each(|maker| needed[maker] = true);
        }
        for node in (0..part.end).rev().filter(|&node| node >= part.start) {
            if needed[node] {
                program.inputs(node).filter_map(forgotten).for_each(|maker| needed[maker] = true);
            }
        }
        Ok(part.filter(|&node| needed[node]).collect())
    }

    /// Returns the buffer in which backward or recomputation finds a value.
    fn late(&self, value: usize) -> Buffer {
        Buffer::Value { value, again: self.forgotten.nodes.get(self.makers[value]).copied().unwrap_or(false) }
    }

    fn uses_of(&self, program: &Program, step: ScheduleStep) -> Result<Uses> {
        let mut uses = Uses::default();
        match step {
            ScheduleStep::Forward { node, again } => {
                let find = |value| if again { self.late(value) } else { Buffer::Value { value, again } };
                uses.inputs = program.inputs(node).map(find).collect();
                uses.writes = vec![
                    Buffer::Value { value: program.nodes[node].output, again },
                    Buffer::Kept { node, again },
                ];
            }
            ScheduleStep::Tail => {
                uses.inputs = vec![Buffer::Value { value: program.hidden, again: false }];
                uses.writes = vec![Buffer::Gradient(program.hidden)];
            }
            ScheduleStep::Backward { node } => {
                let of = &program.nodes[node];
                let reads = rule::<f32>(&of.op)?.reads();
                if reads.inputs {
                    uses.inputs = of.inputs.iter().map(|&input| self.late(input)).collect();
                }
                uses.output = reads.output.then(|| self.late(of.output));
                uses.kept = Some(Buffer::Kept { node, again: self.forgotten.nodes[node] });
                uses.gradient = Some(Buffer::Gradient(of.output));
                let steep = |&input: &usize| self.steep[input].then_some(Buffer::Gradient(input));
                uses.to = of.inputs.iter().map(steep).collect();
            }
        }
        Ok(uses)
    }
}

/// The buffers of a step.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Inputs, if they are needed.
    pub inputs: Vec<Buffer>,
    /// The output, if backward needs it.
    pub output: Option<Buffer>,
    /// What forward kept for backward.
    pub kept: Option<Buffer>,
    /// The gradient of the output.
    pub gradient: Option<Buffer>,
    /// Buffers that are overwritten.
    pub writes: Vec<Buffer>,
    /// Gradients that are accumulated into, one for each input.
    pub to: Vec<Option<Buffer>>,
}

impl Uses {
    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = Buffer> + '_ {
        let single = [self.output, self.kept, self.gradient].into_iter().flatten();
        let to = self.to.iter().copied().flatten();
        self.inputs.iter().chain(&self.writes).copied().chain(single).chain(to)
    }
}
