//! The steps of a schedule, one by one: the buffers that each reads and writes, and which are fused.

use std::collections::HashSet;

use siskin_cuda::CommandBuilder;
use siskin_cuda::ops::linear::LinearPtrs;
use siskin_cuda::ops::norm::NormPtrs;
use siskin_cuda::ops::{Destination, OpCall, OpTensors, RowSequences};
use siskin_device::DevicePtr;
use siskin_format::Result;
use siskin_graph::pass::fusion::{self, FusedPair};
use siskin_graph::{ActivationFunction, ValueId};

use super::{DeviceRunner, ObservedOutput};
use crate::batch::TrainingBatch;
use crate::cuda::fp8::Fp8LinearScaling;
use crate::cuda::op::{self, OpBackward};
use crate::cuda::routers::{LossFactors, RouterGradient, RouterLosses, RouterRows};
use crate::program::{Buffer, BufferLayout, Schedule, ScheduleStep};

/// The shared state of a pass over the schedule.
pub(super) struct PassBuilder<'a> {
    pub(super) runner: &'a DeviceRunner,
    pub(super) schedule: &'a Schedule,
    pub(super) layout: &'a BufferLayout,
    pub(super) batch: &'a TrainingBatch,
    pub(super) builder: CommandBuilder<'a>,
    /// The values whose gradients have been written.
    pub(super) written: HashSet<usize>,
    /// Whether gradients are computed.
    pub(super) computes_gradients: bool,
    /// The auxiliary losses of routers, if enabled, and the factors on their gradients and losses.
    pub(super) routers: Option<RouterLosses>,
    pub(super) factors: LossFactors,
    /// The observed outputs, if there is an observer.
    pub(super) marks: Option<Vec<ObservedOutput>>,
}

impl<'a> PassBuilder<'a> {
    /// Marks the output of a node that was just computed for the observer.
    pub(super) fn mark(&mut self, node: usize, place: DevicePtr, rows: usize, stride: usize) {
        let columns = self.runner.program.graph.values[self.runner.program.graph.nodes[node].output].columns;
        if let Some(marks) = &mut self.marks {
            marks.push(ObservedOutput {
                commands: self.builder.commands.len(),
                node,
                place,
                rows,
                columns,
                stride,
            });
        }
    }

    /// Returns the sequences that the rows of a value belong to.
    fn sequences(&self, value: ValueId) -> RowSequences<'a> {
        let side = self.runner.program.sides[value];
        RowSequences { name: side.name(), batch: side.sequences(self.batch) }
    }

    pub(super) fn call(&self, node: usize, rows: Option<usize>) -> OpCall<'a> {
        let program = &self.runner.program;
        let node = &program.graph.nodes[node];
        let rows = rows.unwrap_or_else(|| program.row_count(node.output, self.batch));
        OpCall {
            graph: &program.graph,
            node,
            weights: &self.runner.weights.list,
            queries: self.sequences(node.output),
            keys: self.sequences(node.inputs.get(1).copied().unwrap_or(node.output)),
            rows,
            stride: program.graph.values[node.output].columns,
        }
    }

    /// Returns the scaling of a node's matmul in fp8; `None` without fp8.
    pub(super) fn fp8_scaling(&self, call: &OpCall<'_>) -> Option<Fp8LinearScaling> {
        self.runner.weights.fp8_scaling(call.node, self.computes_gradients)
    }

    pub(super) fn place(&self, buffer: Buffer) -> DevicePtr {
        self.runner.areas.arena.place + self.layout.place(buffer).start as DevicePtr
    }

    /// Appends a node's forward pass; returns the node that was fused with it, if any.
    pub(super) fn forward(&mut self, index: usize, node: usize) -> Result<Option<usize>> {
        let schedule = self.schedule;
        let uses = &schedule.uses[index];
        let inputs: Vec<DevicePtr> = uses.inputs.iter().map(|&buffer| self.place(buffer)).collect();
        if let Some((norm, out)) = self.norm_of_sum(index, node)? {
            let call = self.call(norm, None);
            let ptrs = NormPtrs { x: inputs[0], residual: inputs[1], sum: self.place(uses.writes[0]), out };
            op::add_and_norm(&mut self.builder, &call, ptrs);
            return Ok(Some(norm));
        }
        let (out, kept) = (self.place(uses.writes[0]), self.place(uses.writes[1]));
        let call = self.call(node, None);
        if let Some((gelu, activated)) = self.gelu_of_product(index, &call) {
            op::linear_gelu(&mut self.builder, &call, LinearPtrs { x: inputs[0], out, activated });
            for (node, place) in [(node, out), (gelu, activated)] {
                self.mark(node, place, call.rows, call.columns());
            }
            return Ok(Some(gelu));
        }
        let fp8 = self.fp8_scaling(&call);
        op::forward(&mut self.builder, &call, OpTensors { inputs: &inputs, out, saved: kept }, fp8);
        let again = matches!(self.schedule.steps[index], ScheduleStep::Forward { recomputed: true, .. });
        if !again {
            self.mark(node, out, call.rows, call.columns());
        }
        if let Some(routers) = self.routers.filter(|_| !again) {
            let scores = inputs.first().copied().unwrap_or_default();
            let rows = RouterRows { rows: call.rows, scores, routed: out };
            routers.accumulate(&mut self.builder, &self.runner.program, node, rows);
        }
        Ok(None)
    }

    /// Returns the norm that comes next and reads only this sum, and the place of its output, if both can be fused:
    /// not if the output overlaps the operands, unless row by row, and not if the sum is observed. The bits are the
    /// same.
    fn norm_of_sum(&self, index: usize, node: usize) -> Result<Option<(usize, DevicePtr)>> {
        let program = &self.runner.program;
        if self.marks.is_some() {
            return Ok(None);
        }
        let Some(&next) = self.schedule.steps.get(index + 1) else { return Ok(None) };
        let ScheduleStep::Forward { node: norm, .. } = next else { return Ok(None) };
        let nodes = &program.graph.nodes;
        if fusion::pair(&nodes[node], &nodes[norm]) != Some(FusedPair::SumAndNorm) {
            return Ok(None);
        }
        let own = &self.schedule.uses[index];
        let out = self.schedule.uses[index + 1].writes[0];
        let taken = self.layout.place(out);
        let meets = |buffer: &Buffer| {
            let place = self.layout.place(*buffer);
            place.start < taken.end && taken.start < place.end && place.start != taken.start
        };
        let over = own.inputs.iter().any(meets);
        Ok((!over).then(|| (norm, self.place(out))))
    }

    /// Returns the GELU that comes next and reads only this matmul, and the place of its output, if both can be
    /// fused: not if the output overlaps the input of the matmul.
    fn gelu_of_product(&self, index: usize, call: &OpCall<'_>) -> Option<(usize, DevicePtr)> {
        let (own, next) = (&self.schedule.uses[index], self.schedule.uses.get(index + 1)?);
        let ScheduleStep::Forward { node, .. } = self.schedule.steps[index + 1] else { return None };
        let pair = fusion::pair(call.node, &self.runner.program.graph.nodes[node]);
        let is_gelu = pair == Some(FusedPair::LinearAndActivation(ActivationFunction::GeluTanh));
        if !is_gelu || !self.runner.fuses_gelu || next.inputs != own.writes[..1] {
            return None;
        }
        if !op::fuses_gelu(call, self.fp8_scaling(call), self.runner.precision) {
            return None;
        }
        let (taken, read) = (self.layout.place(next.writes[0]), self.layout.place(own.inputs[0]));
        let over = read.start < taken.end && taken.start < read.end;
        (!over).then(|| (node, self.place(next.writes[0])))
    }

    /// Returns where the gradient of an input goes, and marks it as written.
    fn to(&mut self, buffer: Buffer) -> Destination {
        let Buffer::Gradient(value) = buffer else { return Destination { ptr: 0, accumulate: false } };
        Destination { ptr: self.place(buffer), accumulate: !self.written.insert(value) }
    }

    pub(super) fn backward(&mut self, index: usize, node: usize) -> Result<()> {
        let schedule = self.schedule;
        let uses = &schedule.uses[index];
        let place = |buffer: Option<Buffer>| buffer.map_or(0, |buffer| self.place(buffer));
        let inputs: Vec<DevicePtr> = uses.inputs.iter().map(|&buffer| self.place(buffer)).collect();
        let (output, kept, gradient) = (place(uses.output), place(uses.saved), place(uses.gradient));
        let to: Vec<Option<Destination>> =
            uses.input_gradients.iter().map(|buffer| buffer.map(|buffer| self.to(buffer))).collect();
        let call = self.call(node, None);
        let back = OpBackward {
            inputs: &inputs,
            output,
            saved: kept,
            gradient,
            input_gradients: &to,
            weight_gradients: &self.runner.weights.gradients,
            fp8: self.fp8_scaling(&call),
        };
        op::backward(&mut self.builder, &call, &back);
        if let (Some(routers), Some(Some(to)), Some(&scores)) = (self.routers, to.first(), inputs.first()) {
            let own = RouterGradient { rows: call.rows, scores, gradient: to.ptr };
            routers.add(&mut self.builder, &self.runner.program, self.batch, node, self.factors, own);
        }
        Ok(())
    }
}
