//! The kernels and matmuls of each operation's forward pass.
//!
//! An operation needs its node, the numbers of rows, the sequences that they belong to and the places of weights and
//! tensors ([`OpCall`], [`OpTensors`]), and appends commands to a [`CommandBuilder`]. Each operation implements
//! [`CudaForward`]; an operation without kernels says so there. The helpers that are public in the modules are shared
//! with backward passes, which are no part of this crate.

pub mod attention;
mod call;
pub mod causal_conv1d;
pub mod elementwise;
pub mod embed;
pub mod experts;
pub mod im2col;
pub mod indexing;
pub mod linear;
pub mod linear_attention;
pub mod norm;
pub mod rope;
mod unsupported;

pub use call::{Destination, DeviceWeight, OpCall, OpTensors, RowSequences};

use siskin_device::Precision;
use siskin_format::Result;
use siskin_graph::{Graph, Node, Op, dispatch};

use crate::command_builder::CommandBuilder;

/// What kernels are limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// The precision of activations.
    pub precision: Precision,
    /// The maximum shared memory of a block, in bytes.
    pub shared_memory: usize,
}

/// The kernels and matmuls of an operation's forward pass.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no forward pass on CUDA",
    note = "implement `CudaForward` for it in `runtime/cuda/src/ops/`, or list it in `unsupported!`"
)]
pub trait CudaForward {
    /// Rejects a node without kernels, or whose kernels exceed the limits.
    ///
    /// # Errors
    /// As described.
    fn check(&self, _node: &Node, _limits: KernelLimits) -> Result<()> {
        Ok(())
    }

    /// Returns the f32 elements that forward writes for backward, in addition to the output.
    fn saved_len(&self, _rows: usize) -> usize {
        0
    }

    /// Appends the operation to the command list. [`check`] has accepted it.
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>);
}

/// Returns the forward pass of an operation.
fn forward_of(op: &Op) -> &dyn CudaForward {
    dispatch!(op, |operation| operation)
}

/// Rejects operations without kernels, or whose kernels exceed the limits.
///
/// # Errors
/// As described.
pub fn check(graph: &Graph, limits: KernelLimits) -> Result<()> {
    graph.nodes.iter().try_for_each(|node| forward_of(&node.op).check(node, limits))
}

/// Returns the f32 elements that a node's forward pass writes for backward.
pub fn saved_len(node: &Node, rows: usize) -> usize {
    forward_of(&node.op).saved_len(rows)
}

/// Appends a node's forward pass to the command list. Scratch memory of operations before it is free again.
pub fn forward(work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
    work.scratch.clear();
    forward_of(&call.node.op).forward(work, call, tensors);
}
