//! The LM head and the loss, a chunk of rows at a time, so that the logits of a large vocabulary are never
//! materialized all at once.

use std::time::Instant;

use siskin_format::{Error, Result};

use super::{HeadOutputs, NodeEvent, Pass, Phase, Probe, TrainingObjective, probe};
use crate::batch::TrainingBatch;
use crate::grad::{RuleBackward, rule};
use crate::loss::{LossRows, LossSum};
use crate::parameters::Gradients;
use crate::program::{Buffer, Program};
use crate::real::Real;

/// The place in the error for a NaN or infinite loss.
pub(super) const NOT_FINITE: &str = "loss";
/// The maximum number of elements of the widest buffer of a chunk.
const MAX_LOGITS: usize = 1 << 22;

/// The buffers of the head's values, and of their gradients.
#[derive(Debug, Default)]
pub(super) struct HeadScratch<T> {
    values: Vec<Vec<T>>,
    gradients: Vec<Vec<T>>,
}

/// Returns the rows of a chunk.
fn chunk_rows(program: &Program, rows: usize) -> usize {
    let widest = program.graph.nodes[program.head_start..]
        .iter()
        .map(|node| program.graph.values[node.output].columns)
        .max();
    (MAX_LOGITS / widest.unwrap_or(1).max(1)).clamp(16, rows.max(16))
}

impl<T: Real> HeadScratch<T> {
    /// Returns the number of elements that it holds for a batch.
    pub(super) fn size(program: &Program, batch: &TrainingBatch) -> usize {
        let rows = program.row_count(program.graph.hidden, batch);
        let columns: usize = program.graph.nodes[program.head_start..]
            .iter()
            .map(|node| program.graph.values[node.output].columns)
            .sum();
        2 * columns * chunk_rows(program, rows).min(rows)
    }
}

impl<T: Real> Pass<'_, T> {
    /// Runs the head and the loss on all rows, and backward if `gradients` is set.
    pub(super) fn head(
        &self,
        goal: TrainingObjective<'_, T>,
        arena: &mut [T],
        scratch: &mut HeadScratch<T>,
        shown: HeadOutputs<'_, '_, '_, T>,
    ) -> Result<LossSum> {
        let HeadOutputs { mut gradients, on_output: mut see, mut probe } = shown;
        let program = self.program;
        let rows = program.row_count(program.graph.hidden, self.batch);
        let columns = program.graph.values[program.graph.hidden].columns;
        let step = if goal.loss.by_rows() { chunk_rows(program, rows) } else { rows.max(1) };
        let nodes = program.graph.nodes.len() - program.head_start;
        scratch.values.resize(nodes, Vec::new());
        scratch.gradients.resize(nodes, Vec::new());
        let places = [
            Buffer::Value { value: program.graph.hidden, recomputed: false },
            Buffer::Gradient(program.graph.hidden),
        ]
        .map(|buffer| self.layout.place(buffer));
        let mut parts = super::split_disjoint(arena, &places).into_iter();
        let hidden = parts.next().flatten().unwrap_or_default();
        let hidden_gradient = parts.next().flatten().unwrap_or_default();
        let mut sum = LossSum::default();
        for start in (0..rows).step_by(step) {
            let part = start..rows.min(start + step);
            let numbers = part.start * columns..part.end * columns;
            let mut head = Head { walk: self, rows: part.len(), hidden: &hidden[numbers.clone()] };
            head.forward(scratch, probe.as_deref_mut())?;
            let mut own = std::mem::take(&mut scratch.gradients);
            let width = program.graph.values[program.graph.output].columns;
            let mut of_hidden = vec![T::ZERO; part.len() * columns];
            let (output, gradient) = match nodes.checked_sub(1) {
                Some(last) => (&scratch.values[last][..], &mut own[last]),
                None => (head.hidden, &mut of_hidden),
            };
            gradient.clear();
            gradient.resize(part.len() * width, T::ZERO);
            let outputs = LossRows { first: part.start, columns: width, numbers: output, batch: self.batch };
            let begin = probe::now(probe.as_ref());
            let added = goal.loss.add(&outputs, goal.targets, goal.scale, gradient)?;
            if let (Some(probe), Some(begin)) = (probe.as_deref_mut(), begin) {
                probe.loss(part.len(), begin, Instant::now());
            }
            sum.add(&added);
            if !added.loss.is_finite() {
                return Err(Error::argument(NOT_FINITE, "not finite"));
            }
            if let Some(see) = see.as_deref_mut() {
                see(part.clone(), output);
            }
            if let Some(gradients) = gradients.as_deref_mut() {
                head.backward(scratch, &mut own, &mut of_hidden, gradients, probe.as_deref_mut())?;
                hidden_gradient[numbers].copy_from_slice(&of_hidden);
            }
            scratch.gradients = own;
        }
        Ok(sum)
    }
}

/// The head on a chunk of rows.
struct Head<'a, T> {
    walk: &'a Pass<'a, T>,
    rows: usize,
    hidden: &'a [T],
}

impl<T: Real> Head<'_, T> {
    /// Returns the index of the node that produces a value; `None` for the input of the head.
    fn producer(&self, value: usize) -> Option<usize> {
        self.walk.program.graph.nodes[self.walk.program.head_start..]
            .iter()
            .position(|node| node.output == value)
    }

    fn value<'b>(&'b self, values: &'b [Vec<T>], value: usize) -> &'b [T] {
        self.producer(value).map_or(self.hidden, |producer| &values[producer])
    }

    fn forward(
        &mut self,
        scratch: &mut HeadScratch<T>,
        mut probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<()> {
        let program = self.walk.program;
        for (index, node) in program.graph.nodes[program.head_start..].iter().enumerate() {
            let mut out = std::mem::take(&mut scratch.values[index]);
            out.resize(self.rows * program.graph.values[node.output].columns, T::ZERO);
            let inputs: Vec<&[T]> =
                node.inputs.iter().map(|&input| self.value(&scratch.values, input)).collect();
            let call = self.walk.call(program.head_start + index, Some(self.rows));
            let begin = probe::now(probe.as_ref());
            rule(&node.op)?.forward(&call, &inputs, &mut out, &mut []);
            if let (Some(probe), Some(begin)) = (probe.as_deref_mut(), begin) {
                let (number, phase, end) = (program.head_start + index, Phase::Forward, Instant::now());
                let call = &call;
                probe.node(&NodeEvent { number, phase, call, inputs: &inputs, output: &out, begin, end });
            }
            scratch.values[index] = out;
        }
        Ok(())
    }

    /// Runs the head's backward pass; `own` holds the gradient of the output.
    fn backward(
        &self,
        scratch: &HeadScratch<T>,
        own: &mut [Vec<T>],
        of_hidden: &mut [T],
        gradients: &mut Gradients<T>,
        mut probe: Option<&mut (dyn Probe<T> + '_)>,
    ) -> Result<()> {
        let program = self.walk.program;
        let nodes = &program.graph.nodes[program.head_start..];
        let last = nodes.len().saturating_sub(1);
        for (values, gradient) in scratch.values.iter().zip(&mut own[..last]) {
            gradient.clear();
            gradient.resize(values.len(), T::ZERO);
        }
        for (index, node) in nodes.iter().enumerate().rev() {
            let inputs: Vec<&[T]> =
                node.inputs.iter().map(|&input| self.value(&scratch.values, input)).collect();
            let call = self.walk.call(program.head_start + index, Some(self.rows));
            let gradient = std::mem::take(&mut own[index]);
            let mut input_gradients: Vec<Vec<T>> =
                inputs.iter().map(|input| vec![T::ZERO; input.len()]).collect();
            let mut to: Vec<Option<&mut [T]>> =
                input_gradients.iter_mut().map(|input_gradients| Some(&mut input_gradients[..])).collect();
            let back = RuleBackward {
                inputs: &inputs,
                output: &scratch.values[index],
                saved: &[],
                gradient: &gradient,
                input_gradients: &mut to,
                weight_gradients: gradients,
            };
            let begin = probe::now(probe.as_ref());
            rule(&node.op)?.backward(&call, back);
            if let (Some(probe), Some(begin)) = (probe.as_deref_mut(), begin) {
                let (number, phase, end) = (program.head_start + index, Phase::Backward, Instant::now());
                let call = &call;
                probe.node(&NodeEvent { number, phase, call, inputs: &inputs, output: &[], begin, end });
            }
            own[index] = gradient;
            for (&input, input_gradients) in node.inputs.iter().zip(input_gradients) {
                let to = self.producer(input).map_or(&mut *of_hidden, |producer| &mut own[producer]);
                to.iter_mut().zip(input_gradients).for_each(|(to, from)| *to += from);
            }
        }
        Ok(())
    }
}
