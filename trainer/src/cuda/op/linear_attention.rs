//! Linear attention with a recurrent state of constant size, its causal convolution and decay gates.

use siskin_cuda::ops::causal_conv1d::positions;
use siskin_cuda::ops::linear_attention::{COLUMNS, THREADS, first_arguments, is_logarithm, sequence_starts};
use siskin_cuda::ops::{Destination, OpCall};
use siskin_cuda::{CommandBuilder, flag, int};
use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_graph::op::{CausalConv1d, DecayGate, LinearAttention, StateUpdate};

use super::call::sum_rows;
use super::{CudaBackward, OpBackward};

/// The tokens between two checkpointed states, as in `runtime/cuda/kernels/linear_attention.cu`.
const CHUNK: usize = 32;
/// Keys are padded to a multiple of this.
const LANES: usize = 32;

impl CudaBackward for DecayGate {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let (rows, columns) = (call.rows, call.columns());
        let weights = [self.log, self.bias].map(|weight| call.weight(weight).f32);
        let places = [back.inputs[0], back.gradient, weights[0], weights[1]].map(KernelArgument::Ptr);
        let logarithm = flag(is_logarithm(call.graph, call.node.output));
        if let Some(to) = back.input_gradients[0] {
            let numbers =
                [KernelArgument::Ptr(to.ptr), logarithm, flag(to.accumulate), int(rows), int(columns)];
            let arguments = [&places[..], &numbers].concat();
            work.commands.elementwise_2d("decay_gate_backward", rows, columns, &arguments);
        }
        for (weight, of_log) in [(self.log, true), (self.bias, false)] {
            let to = back.weight_gradient(weight);
            if to > 0 {
                let numbers = [logarithm, flag(of_log), int(rows), int(columns)];
                let arguments = [&places[..], &numbers].concat();
                let shape = MatrixShape { rows, columns };
                sum_rows(work, "decay_gate_weights_backward", shape, &arguments, to);
            }
        }
    }
}

impl CudaBackward for CausalConv1d {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let (rows, columns, positions) = (call.rows, call.columns(), positions(work, call));
        let sizes = [rows, columns, self.taps].map(int);
        if let Some(to) = back.input_gradients[0] {
            let places = [back.gradient, call.weight(self.weight).f32, positions].map(KernelArgument::Ptr);
            let arguments = [&places[..], &to.arguments(), &sizes].concat();
            work.commands.elementwise_2d("causal_conv1d_backward", rows, columns, &arguments);
        }
        let to = back.weight_gradient(self.weight);
        if to > 0 {
            let places = [back.inputs[0], back.gradient, positions].map(KernelArgument::Ptr);
            let arguments = [&places[..], &sizes].concat();
            let shape = MatrixShape { rows, columns: columns * self.taps };
            sum_rows(work, "causal_conv1d_weights_backward", shape, &arguments, to);
        }
    }
}

/// The heads of a value.
#[derive(Clone, Copy, Debug)]
struct HeadShape {
    heads: usize,
    /// Columns of a head.
    size: usize,
}

/// Returns the heads of each input.
fn input_heads(op: &LinearAttention) -> Vec<HeadShape> {
    let mut heads = vec![
        HeadShape { heads: op.query_heads, size: op.key_size },
        HeadShape { heads: op.key_heads, size: op.key_size },
        HeadShape { heads: op.value_heads, size: op.value_size },
    ];
    if op.rule == StateUpdate::GatedDelta {
        heads.extend([HeadShape { heads: op.heads, size: 1 }; 2]);
    }
    heads
}

impl CudaBackward for LinearAttention {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let (rows, texts) = (call.rows, call.sequences().sequences.len());
        let inputs = input_heads(self);
        let mut gradients = [0; 5];
        for (gradient, input) in gradients.iter_mut().zip(&inputs) {
            *gradient = work.scratch.floats(rows * self.heads * input.size);
        }
        let sums = work.scratch.floats(2 * rows * self.heads);
        // Every sequence begins a chunk of its own. Without causality there is a single state.
        let lengths = call.sequences().spans().map(ExactSizeIterator::len);
        let rows_kept = lengths.max().unwrap_or(0).min(CHUNK);
        let kept = match self.rule {
            StateUpdate::BidirectionalAdditive => 0,
            StateUpdate::Additive | StateUpdate::GatedDelta => {
                self.heads * COLUMNS * self.key_size.next_multiple_of(LANES)
            }
        };
        let states = work.scratch.floats((rows / CHUNK + texts + 1) * kept);
        let recent = work.scratch.floats(texts * rows_kept * kept);
        let starts = sequence_starts(work, call);
        let places = [&[starts, back.gradient], &gradients[..], &[sums, states, recent]].concat();
        let places = places.into_iter().map(KernelArgument::Ptr).chain([int(rows_kept)]);
        let arguments: Vec<KernelArgument> =
            first_arguments(call, self, back.inputs).into_iter().chain(places).collect();
        let name = work.commands.kernel_name("linear_attention_backward");
        work.commands.kernel(&name, GridSize::new(self.heads, texts, 1), THREADS, 0, &arguments);
        for ((to, gradient), HeadShape { heads, size }) in
            back.input_gradients.iter().zip(gradients).zip(inputs)
        {
            let Some(to) = to else { continue };
            let shape = MatrixShape { rows, columns: heads * size };
            sum_shared_heads(work, gradient, *to, shape, HeadShape { heads: self.heads, size });
        }
    }
}

/// Sums what the heads that share columns of an input contribute.
fn sum_shared_heads(
    work: &mut CommandBuilder<'_>,
    gradients: DevicePtr,
    to: Destination,
    MatrixShape { rows, columns }: MatrixShape,
    HeadShape { heads, size }: HeadShape,
) {
    let numbers = [rows, columns, heads, size].map(int);
    let arguments = [&[KernelArgument::Ptr(gradients)], &to.arguments()[..], &numbers].concat();
    work.commands.elementwise_2d("sum_shared_heads", rows, columns, &arguments);
}
