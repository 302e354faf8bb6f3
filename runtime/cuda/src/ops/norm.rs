//! Normalization of groups of columns.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::NormKind;
use siskin_graph::op::{L2Normalize, Norm};

use super::{CudaForward, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, flag, int};

/// Returns the shape arguments of a norm: groups, elements per group, factors, whether it is centered, and epsilon.
pub fn shape_arguments(call: &OpCall<'_>, op: &Norm) -> [KernelArgument; 5] {
    let factors = call.weight(op.weight).count();
    let centered = flag(op.kind == NormKind::Layer);
    [int(call.count() / op.group), int(op.group), int(factors), centered, KernelArgument::Float(op.epsilon)]
}

/// Returns the shape arguments of an L2 normalization: groups, elements per group, epsilon, and factor.
pub fn l2_arguments(call: &OpCall<'_>, op: &L2Normalize) -> [KernelArgument; 4] {
    let &L2Normalize { group, epsilon, factor } = op;
    [int(call.count() / group), int(group), KernelArgument::Float(epsilon), KernelArgument::Float(factor)]
}

/// The tensors of a norm.
#[derive(Clone, Copy, Debug)]
pub struct NormPtrs {
    /// The input.
    pub x: DevicePtr,
    /// What is added to x first; 0: nothing.
    pub residual: DevicePtr,
    /// Where the sum is kept, if there is one.
    pub sum: DevicePtr,
    /// The output.
    pub out: DevicePtr,
}

/// Appends the norm of x, or of the sum of x and another value (fused residual); the sum is kept.
pub fn norm(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, op: &Norm, ptrs: NormPtrs) {
    let NormPtrs { x, residual, sum, out } = ptrs;
    let bias = op.bias.map_or(0, |bias| call.weight(bias).f32);
    let places = [x, residual, sum, out, call.weight(op.weight).f32, bias].map(KernelArgument::Ptr);
    let arguments = [&places[..], &shape_arguments(call, op)].concat();
    work.commands.warp_per_item("norm", call.count() / op.group, &arguments);
}

impl CudaForward for Norm {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let ptrs = NormPtrs { x: tensors.inputs[0], residual: 0, sum: 0, out: tensors.out };
        norm(work, call, self, ptrs);
    }
}

impl CudaForward for L2Normalize {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let places = [tensors.inputs[0], tensors.out].map(KernelArgument::Ptr);
        let arguments = [&places[..], &l2_arguments(call, self)].concat();
        work.commands.warp_per_item("l2_normalize", call.count() / self.group, &arguments);
    }
}
