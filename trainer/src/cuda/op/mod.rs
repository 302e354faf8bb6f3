//! The kernels and matmuls of each operation's backward pass. Forward passes are those of `siskin-cuda`, except for
//! matmuls in fp8, whose scaling only training knows.

mod attention;
mod call;
mod elementwise;
mod embed;
mod experts;
mod fp8_linear;
mod im2col;
mod indexing;
mod linear;
mod linear_attention;
mod no_gradient;
mod norm;

pub(super) use call::OpBackward;

use siskin_cuda::CommandBuilder;
use siskin_cuda::ops::linear::LinearPtrs;
use siskin_cuda::ops::norm::NormPtrs;
use siskin_cuda::ops::{self, OpCall, OpTensors};
use siskin_device::Precision;
use siskin_graph::{Op, dispatch};

use super::fp8::Fp8LinearScaling;

/// The kernels and matmuls of an operation's backward pass.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no backward pass on CUDA",
    note = "implement `CudaBackward` for it in `trainer/src/cuda/op/`, or list it in `no_gradient!`"
)]
trait CudaBackward {
    /// Appends them to the command list.
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>);
}

/// Appends an operation's forward pass to the command list.
pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    tensors: OpTensors<'_>,
    fp8: Option<Fp8LinearScaling>,
) {
    if let (Op::Linear(linear), Some(scaling)) = (&call.node.op, fp8) {
        work.scratch.clear();
        return fp8_linear::forward(work, call, linear, tensors, scaling);
    }
    ops::forward(work, call, tensors);
}

/// Appends an operation's backward pass to the command list.
pub(super) fn backward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
    work.scratch.clear();
    let operation: &dyn CudaBackward = dispatch!(&call.node.op, |operation| operation);
    operation.backward(work, call, back);
}

/// Appends the fused norm of a sum of two values, which the node before adds.
pub(super) fn add_and_norm(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: NormPtrs) {
    work.scratch.clear();
    if let Op::Norm(norm) = &call.node.op {
        ops::norm::norm(work, call, norm, ptrs);
    }
}

/// Returns true if GELU can be fused into the epilogue of a matmul, whose call this is.
pub(super) fn fuses_gelu(call: &OpCall<'_>, fp8: Option<Fp8LinearScaling>, precision: Precision) -> bool {
    fp8.is_none() && ops::linear::fuses_gelu(call, precision)
}

/// Appends a matmul with a GELU epilogue.
pub(super) fn linear_gelu(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, ptrs: LinearPtrs) {
    work.scratch.clear();
    if let Op::Linear(linear) = &call.node.op {
        ops::linear::linear(work, call, linear, ptrs);
    }
}
