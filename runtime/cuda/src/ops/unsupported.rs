//! Operations without kernels.

use siskin_format::{Error, Result};
use siskin_graph::Node;
use siskin_graph::op::{ExternalInput, MultiLora, StoreCrossKv};

use super::{CudaForward, KernelLimits, OpCall, OpTensors};
use crate::command_builder::CommandBuilder;

/// Returns the error of a node without kernels.
pub(super) fn no_kernels(node: &Node) -> Error {
    let message = format!("there are no CUDA kernels for {} yet; use the CPU", node.op.name());
    Error::unsupported("device", message)
}

macro_rules! unsupported {
    ($($operation:ty),*) => {$(
        impl CudaForward for $operation {
            fn check(&self, node: &Node, _: KernelLimits) -> Result<()> {
                Err(no_kernels(node))
            }

            fn forward(&self, _: &mut CommandBuilder<'_>, _: &OpCall<'_>, _: OpTensors<'_>) {}
        }
    )*};
}

unsupported!(ExternalInput, MultiLora, StoreCrossKv);
