//! The kernels and matmuls of each operation, forward and backward: the device counterpart of the rules in
//! [`grad`](crate::grad).

#![deny(clippy::wildcard_enum_match_arm, reason = "a new operation is a compile error here")]

pub(super) mod call;
mod elementwise;
mod embed;
mod experts;
mod fp8_linear;
mod im2col;
mod indexing;
mod linear;
mod linear_attention;
mod norm;

pub(super) use linear::LinearPtrs;
pub(super) use linear_attention::is_logarithm;
pub(super) use norm::NormPtrs;

use self::call::{OpBackward, OpCall};
use elementwise::ElementwiseOp;
use embed::LookupIndex;
use experts::ExpertOp;
use indexing::IndexingOp;
use linear_attention::StateOp;
use siskin_cuda::PointwiseFunction;
use siskin_device::{DevicePtr, Precision};
use siskin_format::{Error, Result};
use siskin_graph::{Node, Op, op};

use super::attention;
use super::command_builder::CommandBuilder;
use crate::program::Program;

/// Returns the f32 elements that forward keeps for backward.
pub(super) fn saved_len(node: &Node, rows: usize) -> usize {
    if let Op::Attention(attention) = &node.op { rows * attention.heads } else { 0 }
}

/// Refuses operations without kernels, or whose kernels need more than `shared` bytes of shared memory.
pub(super) fn check(program: &Program, precision: Precision, shared: usize) -> Result<()> {
    for node in &program.graph.nodes {
        let known = match &node.op {
            Op::Attention(description) => {
                attention::check(description, precision, shared)?;
                true
            }
            Op::Route(op::Route { routing }) if routing.experts > experts::most(precision) => {
                let most = experts::most(precision);
                let message = format!(
                    "more than {most} experts are not supported in this precision; use precision = \"f32\""
                );
                return Err(Error::unsupported("precision", message));
            }
            Op::LinearAttention(recurrence) => recurrence.key_size <= linear_attention::MAX_KEYS,
            Op::ExternalInput(_) | Op::StoreCrossKv(_) => false,
            Op::Embed(_)
            | Op::EmbedSegment(_)
            | Op::EmbedPosition(_)
            | Op::SinusoidalPositions(_)
            | Op::InputFeatures(_)
            | Op::Im2col(_)
            | Op::Norm(_)
            | Op::L2Normalize(_)
            | Op::Linear(_)
            | Op::Route(_)
            | Op::Dispatch(_)
            | Op::ExpertLinear(_)
            | Op::Combine(_)
            | Op::SliceColumns(_)
            | Op::RepeatColumns(_)
            | Op::SelectOutputs(_)
            | Op::Rope(_)
            | Op::DecayGate(_)
            | Op::CausalConv1d(_)
            | Op::Activate(_)
            | Op::Gate(_)
            | Op::ClampedGate(_)
            | Op::Add(_)
            | Op::Affine(_)
            | Op::Scale(_)
            | Op::Softcap(_)
            | Op::Clamp(_) => true,
        };
        if !known {
            let name = node.op.name();
            let message = format!("there are no CUDA kernels for {name} yet; train with device = \"cpu\"");
            return Err(Error::unsupported("device", message));
        }
    }
    Ok(())
}

/// Appends an operation's forward pass to the command list.
pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    inputs: &[DevicePtr],
    out: DevicePtr,
    kept: DevicePtr,
) {
    work.scratch.clear();
    match call.node.op {
        Op::Embed(op::Embed { table }) => embed::forward(work, call, table, LookupIndex::Token, out),
        Op::EmbedSegment(op::EmbedSegment { table }) => {
            embed::forward(work, call, table, LookupIndex::Segment, out)
        }
        Op::EmbedPosition(op::EmbedPosition { table, offset }) => {
            embed::forward(work, call, table, LookupIndex::Position(offset), out);
        }
        Op::SinusoidalPositions(_) => embed::sines(work, call, out),
        Op::InputFeatures(_) => embed::features(work, call, out),
        Op::Norm(_) | Op::L2Normalize(_) => norm::forward(work, call, inputs[0], out),
        Op::Linear(_) => linear::forward(work, call, LinearPtrs { x: inputs[0], out, activated: 0 }),
        Op::SliceColumns(op::SliceColumns { start, .. }) => {
            indexing::forward(work, call, IndexingOp::SliceColumns { start }, inputs[0], out)
        }
        Op::RepeatColumns(op::RepeatColumns { times }) => {
            indexing::forward(work, call, IndexingOp::RepeatColumns(times), inputs[0], out)
        }
        Op::SelectOutputs(_) => indexing::forward(work, call, IndexingOp::SelectOutputs, inputs[0], out),
        Op::Rope(op::Rope { rope, head_size }) => {
            indexing::forward(work, call, IndexingOp::Rope { rope, head_size }, inputs[0], out);
        }
        Op::Attention(ref description) => attention::forward(work, call, description, inputs, out, kept),
        Op::Route(op::Route { ref routing }) => {
            experts::forward(work, call, ExpertOp::Route(routing), inputs, out)
        }
        Op::Dispatch(op::Dispatch { ref routing }) => {
            experts::forward(work, call, ExpertOp::Dispatch(routing), inputs, out)
        }
        Op::Combine(op::Combine { ref routing }) => {
            experts::forward(work, call, ExpertOp::Combine(routing), inputs, out)
        }
        Op::ExpertLinear(op::ExpertLinear { ref routing, ref weights, ref biases }) => {
            experts::forward(work, call, ExpertOp::Linear { routing, weights, biases }, inputs, out);
        }
        Op::Im2col(_) => im2col::forward(work, call, inputs[0], out),
        Op::DecayGate(op::DecayGate { log, bias }) => {
            linear_attention::forward(work, call, StateOp::DecayGate { log, bias }, inputs, out);
        }
        Op::CausalConv1d(op::CausalConv1d { taps, weight, .. }) => {
            linear_attention::forward(work, call, StateOp::CausalConv1d { taps, weight }, inputs, out);
        }
        Op::LinearAttention(ref recurrence) => {
            linear_attention::forward(work, call, StateOp::LinearAttention(recurrence), inputs, out);
        }
        Op::Activate(op::Activate { function: kind }) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Activation(kind)),
            inputs,
            out,
        ),
        Op::Scale(op::Scale { factor }) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Scale(factor)),
            inputs,
            out,
        ),
        Op::Softcap(op::Softcap { cap }) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Softcap(cap)),
            inputs,
            out,
        ),
        Op::Clamp(op::Clamp { limit }) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Clamp(limit)),
            inputs,
            out,
        ),
        Op::Gate(op::Gate { function: kind }) => {
            elementwise::forward(work, call, ElementwiseOp::Gate(kind), inputs, out)
        }
        Op::ClampedGate(op::ClampedGate { limits }) => {
            elementwise::forward(work, call, ElementwiseOp::GateLimited(limits), inputs, out)
        }
        Op::Affine(op::Affine { weight, bias }) => {
            elementwise::forward(work, call, ElementwiseOp::Affine { weight, bias }, inputs, out)
        }
        Op::Add(_) => elementwise::forward(work, call, ElementwiseOp::Add, inputs, out),
        // Refused by `check`.
        Op::ExternalInput(_) | Op::StoreCrossKv(_) => {}
    }
}

/// Appends an operation's backward pass to the command list.
pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    work.scratch.clear();
    match call.node.op {
        Op::Embed(op::Embed { table }) => embed::backward(work, call, table, LookupIndex::Token, back),
        Op::EmbedSegment(op::EmbedSegment { table }) => {
            embed::backward(work, call, table, LookupIndex::Segment, back)
        }
        Op::EmbedPosition(op::EmbedPosition { table, offset }) => {
            embed::backward(work, call, table, LookupIndex::Position(offset), back);
        }
        Op::SinusoidalPositions(_) | Op::InputFeatures(_) => {}
        Op::Norm(_) | Op::L2Normalize(_) => norm::backward(work, call, back),
        Op::Linear(_) => linear::backward(work, call, back),
        Op::SliceColumns(op::SliceColumns { start, .. }) => {
            indexing::backward(work, call, IndexingOp::SliceColumns { start }, back)
        }
        Op::RepeatColumns(op::RepeatColumns { times }) => {
            indexing::backward(work, call, IndexingOp::RepeatColumns(times), back)
        }
        Op::SelectOutputs(_) => indexing::backward(work, call, IndexingOp::SelectOutputs, back),
        Op::Rope(op::Rope { rope, head_size }) => {
            indexing::backward(work, call, IndexingOp::Rope { rope, head_size }, back);
        }
        Op::Attention(ref description) => attention::backward(work, call, description, back),
        Op::Route(op::Route { ref routing }) => experts::backward(work, call, ExpertOp::Route(routing), back),
        Op::Dispatch(op::Dispatch { ref routing }) => {
            experts::backward(work, call, ExpertOp::Dispatch(routing), back)
        }
        Op::Combine(op::Combine { ref routing }) => {
            experts::backward(work, call, ExpertOp::Combine(routing), back)
        }
        Op::ExpertLinear(op::ExpertLinear { ref routing, ref weights, ref biases }) => {
            experts::backward(work, call, ExpertOp::Linear { routing, weights, biases }, back);
        }
        Op::Im2col(_) => im2col::backward(work, call, back),
        Op::DecayGate(op::DecayGate { log, bias }) => {
            linear_attention::backward(work, call, StateOp::DecayGate { log, bias }, back);
        }
        Op::CausalConv1d(op::CausalConv1d { taps, weight, .. }) => {
            linear_attention::backward(work, call, StateOp::CausalConv1d { taps, weight }, back);
        }
        Op::LinearAttention(ref recurrence) => {
            linear_attention::backward(work, call, StateOp::LinearAttention(recurrence), back);
        }
        Op::Activate(op::Activate { function: kind }) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Activation(kind)), back)
        }
        Op::Scale(op::Scale { factor }) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Scale(factor)), back)
        }
        Op::Softcap(op::Softcap { cap }) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Softcap(cap)), back)
        }
        Op::Clamp(op::Clamp { limit }) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Clamp(limit)), back)
        }
        Op::Gate(op::Gate { function: kind }) => {
            elementwise::backward(work, call, ElementwiseOp::Gate(kind), back)
        }
        Op::ClampedGate(op::ClampedGate { limits }) => {
            elementwise::backward(work, call, ElementwiseOp::GateLimited(limits), back)
        }
        Op::Affine(op::Affine { weight, bias }) => {
            elementwise::backward(work, call, ElementwiseOp::Affine { weight, bias }, back)
        }
        Op::Add(_) => elementwise::backward(work, call, ElementwiseOp::Add, back),
        // Refused by `check`.
        Op::ExternalInput(_) | Op::StoreCrossKv(_) => {}
    }
}

/// Appends the fused norm of a sum of two values, which the node before adds.
pub(super) fn add_and_norm(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: NormPtrs) {
    work.scratch.clear();
    norm::of_sum(work, call, ptrs);
}

/// Returns true if GELU can be fused into the epilogue of a matmul, whose call this is.
pub(super) fn fuses_gelu(call: &OpCall<'_>, precision: Precision) -> bool {
    call.fp8_scaling().is_none() && linear::fuses_gelu(precision, call.node, call.columns())
}

/// Appends a matmul with a GELU epilogue.
pub(super) fn linear_gelu(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: LinearPtrs) {
    work.scratch.clear();
    linear::forward(work, call, ptrs);
}
