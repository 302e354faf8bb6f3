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
use siskin_graph::{Node, Op};

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
            Op::Route(routing) if routing.experts > experts::most(precision) => {
                let most = experts::most(precision);
                let message = format!(
                    "more than {most} experts are not supported in this precision; use precision = \"f32\""
                );
                return Err(Error::unsupported("precision", message));
            }
            Op::LinearAttention(recurrence) => recurrence.key_size <= linear_attention::MAX_KEYS,
            Op::ExternalInput | Op::StoreCrossKv(_) => false,
            Op::Embed { .. }
            | Op::EmbedSegment { .. }
            | Op::EmbedPosition { .. }
            | Op::EmbedSine { .. }
            | Op::Features
            | Op::Im2col { .. }
            | Op::Norm { .. }
            | Op::L2Normalize { .. }
            | Op::Linear { .. }
            | Op::Route(_)
            | Op::Dispatch(_)
            | Op::ExpertLinear { .. }
            | Op::Combine(_)
            | Op::SliceColumns { .. }
            | Op::RepeatColumns(_)
            | Op::SelectOutputs
            | Op::Rope { .. }
            | Op::DecayGate { .. }
            | Op::CausalConv1d { .. }
            | Op::Activate(_)
            | Op::Gate(_)
            | Op::GateLimited(_)
            | Op::Add
            | Op::Affine { .. }
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
        Op::Embed { table } => embed::forward(work, call, table, LookupIndex::Token, out),
        Op::EmbedSegment { table } => embed::forward(work, call, table, LookupIndex::Segment, out),
        Op::EmbedPosition { table, offset } => {
            embed::forward(work, call, table, LookupIndex::Position(offset), out);
        }
        Op::EmbedSine { .. } => embed::sines(work, call, out),
        Op::Features => embed::features(work, call, out),
        Op::Norm { .. } | Op::L2Normalize { .. } => norm::forward(work, call, inputs[0], out),
        Op::Linear { .. } => linear::forward(work, call, LinearPtrs { x: inputs[0], out, activated: 0 }),
        Op::SliceColumns { start } => {
            indexing::forward(work, call, IndexingOp::SliceColumns { start }, inputs[0], out)
        }
        Op::RepeatColumns(times) => {
            indexing::forward(work, call, IndexingOp::RepeatColumns(times), inputs[0], out)
        }
        Op::SelectOutputs => indexing::forward(work, call, IndexingOp::SelectOutputs, inputs[0], out),
        Op::Rope { rope, head_size } => {
            indexing::forward(work, call, IndexingOp::Rope { rope, head_size }, inputs[0], out);
        }
        Op::Attention(ref description) => attention::forward(work, call, description, inputs, out, kept),
        Op::Route(ref routing) => experts::forward(work, call, ExpertOp::Route(routing), inputs, out),
        Op::Dispatch(ref routing) => experts::forward(work, call, ExpertOp::Dispatch(routing), inputs, out),
        Op::Combine(ref routing) => experts::forward(work, call, ExpertOp::Combine(routing), inputs, out),
        Op::ExpertLinear { ref routing, ref weights, ref biases } => {
            experts::forward(work, call, ExpertOp::Linear { routing, weights, biases }, inputs, out);
        }
        Op::Im2col { .. } => im2col::forward(work, call, inputs[0], out),
        Op::DecayGate { log, bias } => {
            linear_attention::forward(work, call, StateOp::DecayGate { log, bias }, inputs, out);
        }
        Op::CausalConv1d { taps, weight, .. } => {
            linear_attention::forward(work, call, StateOp::CausalConv1d { taps, weight }, inputs, out);
        }
        Op::LinearAttention(ref recurrence) => {
            linear_attention::forward(work, call, StateOp::LinearAttention(recurrence), inputs, out);
        }
        Op::Activate(kind) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Activation(kind)),
            inputs,
            out,
        ),
        Op::Scale(factor) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Scale(factor)),
            inputs,
            out,
        ),
        Op::Softcap(cap) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Softcap(cap)),
            inputs,
            out,
        ),
        Op::Clamp(limit) => elementwise::forward(
            work,
            call,
            ElementwiseOp::Unary(PointwiseFunction::Clamp(limit)),
            inputs,
            out,
        ),
        Op::Gate(kind) => elementwise::forward(work, call, ElementwiseOp::Gate(kind), inputs, out),
        Op::GateLimited(limits) => {
            elementwise::forward(work, call, ElementwiseOp::GateLimited(limits), inputs, out)
        }
        Op::Affine { weight, bias } => {
            elementwise::forward(work, call, ElementwiseOp::Affine { weight, bias }, inputs, out)
        }
        Op::Add => elementwise::forward(work, call, ElementwiseOp::Add, inputs, out),
        // Refused by `check`.
        Op::ExternalInput | Op::StoreCrossKv(_) => {}
    }
}

/// Appends an operation's backward pass to the command list.
pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    work.scratch.clear();
    match call.node.op {
        Op::Embed { table } => embed::backward(work, call, table, LookupIndex::Token, back),
        Op::EmbedSegment { table } => embed::backward(work, call, table, LookupIndex::Segment, back),
        Op::EmbedPosition { table, offset } => {
            embed::backward(work, call, table, LookupIndex::Position(offset), back);
        }
        Op::EmbedSine { .. } | Op::Features => {}
        Op::Norm { .. } | Op::L2Normalize { .. } => norm::backward(work, call, back),
        Op::Linear { .. } => linear::backward(work, call, back),
        Op::SliceColumns { start } => {
            indexing::backward(work, call, IndexingOp::SliceColumns { start }, back)
        }
        Op::RepeatColumns(times) => indexing::backward(work, call, IndexingOp::RepeatColumns(times), back),
        Op::SelectOutputs => indexing::backward(work, call, IndexingOp::SelectOutputs, back),
        Op::Rope { rope, head_size } => {
            indexing::backward(work, call, IndexingOp::Rope { rope, head_size }, back);
        }
        Op::Attention(ref description) => attention::backward(work, call, description, back),
        Op::Route(ref routing) => experts::backward(work, call, ExpertOp::Route(routing), back),
        Op::Dispatch(ref routing) => experts::backward(work, call, ExpertOp::Dispatch(routing), back),
        Op::Combine(ref routing) => experts::backward(work, call, ExpertOp::Combine(routing), back),
        Op::ExpertLinear { ref routing, ref weights, ref biases } => {
            experts::backward(work, call, ExpertOp::Linear { routing, weights, biases }, back);
        }
        Op::Im2col { .. } => im2col::backward(work, call, back),
        Op::DecayGate { log, bias } => {
            linear_attention::backward(work, call, StateOp::DecayGate { log, bias }, back);
        }
        Op::CausalConv1d { taps, weight, .. } => {
            linear_attention::backward(work, call, StateOp::CausalConv1d { taps, weight }, back);
        }
        Op::LinearAttention(ref recurrence) => {
            linear_attention::backward(work, call, StateOp::LinearAttention(recurrence), back);
        }
        Op::Activate(kind) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Activation(kind)), back)
        }
        Op::Scale(factor) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Scale(factor)), back)
        }
        Op::Softcap(cap) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Softcap(cap)), back)
        }
        Op::Clamp(limit) => {
            elementwise::backward(work, call, ElementwiseOp::Unary(PointwiseFunction::Clamp(limit)), back)
        }
        Op::Gate(kind) => elementwise::backward(work, call, ElementwiseOp::Gate(kind), back),
        Op::GateLimited(limits) => {
            elementwise::backward(work, call, ElementwiseOp::GateLimited(limits), back)
        }
        Op::Affine { weight, bias } => {
            elementwise::backward(work, call, ElementwiseOp::Affine { weight, bias }, back)
        }
        Op::Add => elementwise::backward(work, call, ElementwiseOp::Add, back),
        // Refused by `check`.
        Op::ExternalInput | Op::StoreCrossKv(_) => {}
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
