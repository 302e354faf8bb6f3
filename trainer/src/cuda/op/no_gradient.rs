//! Operations without a backward pass.

use siskin_cuda::CommandBuilder;
use siskin_cuda::ops::OpCall;
use siskin_graph::op::{ExternalInput, InputFeatures, MultiLora, SinusoidalPositions, StoreCrossKv};

use super::{CudaBackward, OpBackward};

macro_rules! no_gradient {
    ($($operation:ty),*) => {$(
        impl CudaBackward for $operation {
            fn backward(&self, _: &mut CommandBuilder<'_>, _: &OpCall<'_>, _: &OpBackward<'_>) {}
        }
    )*};
}

// They have neither inputs nor weights.
no_gradient!(SinusoidalPositions, InputFeatures);
// They have no forward pass either, and are rejected when a runner is built.
no_gradient!(ExternalInput, MultiLora, StoreCrossKv);
