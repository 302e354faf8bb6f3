//! Activation functions of graphs, as the kernels name them.

pub(super) fn activation(
    kind: siskin_graph::ActivationKind,
) -> siskin_kernels::ops::activation::ActivationFunction {
    use siskin_graph::ActivationKind as Ours;
    use siskin_kernels::ops::activation::ActivationFunction;
    match kind {
        Ours::Silu => ActivationFunction::Silu,
        Ours::Gelu => ActivationFunction::Gelu,
        Ours::GeluTanh => ActivationFunction::GeluTanh,
        Ours::Relu => ActivationFunction::Relu,
        Ours::Sigmoid => ActivationFunction::Sigmoid,
        Ours::EluPlusOne => ActivationFunction::EluPlusOne,
    }
}

pub(super) fn limits(limits: siskin_graph::ClampLimits) -> siskin_kernels::ops::activation::GateLimits {
    siskin_kernels::ops::activation::GateLimits { limit: limits.limit, slope: limits.slope }
}
