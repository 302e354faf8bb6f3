//! Mixture of experts.

use siskin_cuda::ops::OpCall;
use siskin_cuda::ops::experts::{
    ExpertSlots, RoutedRows, SIDE, THREADS, choices, pointers, shared_memory, weight_pointers,
};
use siskin_cuda::{CommandBuilder, flag, int};
use siskin_device::{GridSize, KernelArgument, MatrixShape};
use siskin_graph::Routing;
use siskin_graph::op::{Combine, Dispatch, ExpertLinear, Route};

use super::{CudaBackward, OpBackward};

impl CudaBackward for Route {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Some(to) = back.input_gradients[0] else { return };
        let routing = &self.routing;
        let places = [back.inputs[0], back.output, back.gradient].map(KernelArgument::Ptr);
        let sizes = [call.rows, routing.experts, routing.top_k].map(int);
        let arguments = [&places[..], &to.arguments(), &sizes, &[flag(routing.normalize)]].concat();
        let name = work.commands.kernel_name("route_backward");
        work.commands.kernel(&name, GridSize::linear(call.rows.div_ceil(256)), 256, 0, &arguments);
    }
}

/// The routing input gets no gradient, but later accumulation needs a zeroed buffer.
fn zero_routing_gradient(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    back: &OpBackward<'_>,
    routing: &Routing,
) {
    if let Some(to) = back.input_gradients[1].filter(|to| !to.accumulate) {
        work.commands.clear(to.ptr, 2 * choices(call, routing) * work.commands.precision().bytes());
    }
}

impl CudaBackward for Dispatch {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        zero_routing_gradient(work, call, back, &self.routing);
        let Some(to) = back.input_gradients[0] else { return };
        let slots = ExpertSlots::new(work, call, &self.routing, back.inputs[1]);
        let shape = MatrixShape { rows: call.sequences().rows.len(), columns: call.columns() };
        slots.combine(work, RoutedRows { from: back.gradient, routed: 0 }, to, shape);
    }
}

impl CudaBackward for Combine {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let (columns, rows) = (call.columns(), choices(call, &self.routing));
        let slots = ExpertSlots::new(work, call, &self.routing, back.inputs[1]);
        if let Some(to) = back.input_gradients[0] {
            let moved = RoutedRows { from: back.gradient, routed: back.inputs[1] };
            slots.dispatch(work, moved, to, MatrixShape { rows, columns });
        }
        if let Some(to) = back.input_gradients[1] {
            let places = [back.inputs[0], back.gradient, slots.places].map(KernelArgument::Ptr);
            let sizes = [rows, columns, self.routing.top_k].map(int);
            let arguments = [&places[..], &to.arguments(), &sizes].concat();
            work.commands.warp_per_item("combine_weights_backward", rows, &arguments);
        }
    }
}

impl CudaBackward for ExpertLinear {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        zero_routing_gradient(work, call, back, &self.routing);
        let slots = ExpertSlots::new(work, call, &self.routing, back.inputs[1]);
        input_backward(work, call, self, back, &slots);
        weights_backward(work, call, self, back, &slots);
    }
}

fn input_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: &ExpertLinear,
    back: &OpBackward<'_>,
    slots: &ExpertSlots,
) {
    let Some(to) = back.input_gradients[0] else { return };
    let (rows, columns, depth) = (call.rows, call.columns(), call.input(0).columns);
    let experts = op.routing.experts;
    let matrices = weight_pointers(work, call, &op.weights);
    let arguments = [
        &[KernelArgument::Ptr(back.gradient), matrices, KernelArgument::Ptr(slots.starts)][..],
        &to.arguments(),
        &[rows, depth, columns, experts].map(int),
    ];
    let name = work.commands.kernel_name("expert_linear_backward");
    let grid = GridSize::new(depth.div_ceil(SIDE), rows.div_ceil(SIDE) + experts + 1, 1);
    let shared = shared_memory(work.commands.precision());
    work.commands.kernel(&name, grid, THREADS, shared, &arguments.concat());
}

fn weights_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    op: &ExpertLinear,
    back: &OpBackward<'_>,
    slots: &ExpertSlots,
) {
    let ExpertLinear { weights, biases, .. } = op;
    let (columns, depth, starts) = (call.columns(), call.input(0).columns, KernelArgument::Ptr(slots.starts));
    let gradient = |weight: &usize| back.weight_gradient(*weight);
    if weights.iter().any(|weight| gradient(weight) > 0) {
        let gradients = pointers(work, &format!("gradients {weights:?}"), weights.iter().map(gradient));
        let places = [back.inputs[0], back.gradient].map(KernelArgument::Ptr);
        let arguments = [&places[..], &[gradients, starts], &[depth, columns].map(int)].concat();
        let name = work.commands.kernel_name("expert_linear_weights_backward");
        let grid = GridSize::new(depth.div_ceil(SIDE), columns.div_ceil(SIDE), weights.len());
        let shared = shared_memory(work.commands.precision());
        work.commands.kernel(&name, grid, THREADS, shared, &arguments);
    }
    if biases.iter().any(|bias| gradient(bias) > 0) {
        let gradients = pointers(work, &format!("gradients {biases:?}"), biases.iter().map(gradient));
        let arguments = [KernelArgument::Ptr(back.gradient), gradients, starts, int(columns)];
        let name = work.commands.kernel_name("expert_linear_bias_backward");
        work.commands.kernel(&name, GridSize::new(columns.div_ceil(32), biases.len(), 1), 256, 0, &arguments);
    }
}
