//! Attention: gradients of queries, keys, values, and of the tables that scores depend on.

use siskin_cuda::ops::attention::linformer::{self, ProjectedRows};
use siskin_cuda::ops::attention::{
    AttentionConfig, ScoreArguments, SequenceTables, copy_non_attending_rows, sinks, tables,
};
use siskin_cuda::ops::{Destination, OpCall};
use siskin_cuda::{CommandBuilder, flag, int};
use siskin_device::{DeviceMatrix, DevicePtr, GemmShape, GridSize, KernelArgument, MatmulCommand};
use siskin_graph::{Attention, LinformerProjection};

use super::{CudaBackward, OpBackward};

/// What the kernels of an attention's backward pass share.
struct AttentionBackward<'a> {
    attention: &'a Attention,
    config: AttentionConfig,
    tables: SequenceTables,
    /// Inputs, their shapes, and what forward kept.
    common: Vec<KernelArgument>,
    scores: ScoreArguments,
}

impl CudaBackward for Attention {
    fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let config = AttentionConfig::new(work.commands.precision(), self);
        let tables = tables(work, call, self, config.tile);
        let scores = ScoreArguments::new(work, call, self, &tables, config.dense);
        let delta = delta(work, call, self, back);
        let [keys, values] = match &self.projection {
            Some(projection) => linformer::project(work, call, projection, [back.inputs[1], back.inputs[2]]),
            None => [back.inputs[1], back.inputs[2]],
        };
        let widths = [0, 1, 2].map(|input| int(call.input(input).columns));
        let common = [
            &[back.inputs[0], keys, values, back.gradient].map(KernelArgument::Ptr)[..],
            &widths,
            &[int(call.columns()), int(self.head_size)],
            &[back.saved, delta].map(KernelArgument::Ptr),
        ];
        let kernels = AttentionBackward { attention: self, config, tables, common: common.concat(), scores };
        kernels.queries(work, call, back);
        kernels.keys(work, call, back);
        if let Some(Some(to)) = back.input_gradients.get(3) {
            copy_non_attending_rows(work, call, back.gradient, *to);
        }
        let to_sinks = self.sinks.map_or(0, |sinks| back.weight_gradient(sinks));
        if to_sinks > 0 {
            let places = [sinks(call, self), back.saved, delta].map(KernelArgument::Ptr);
            let sizes = [call.rows, self.heads].map(int);
            let arguments = [&places[..], &sizes, &[KernelArgument::Ptr(to_sinks)]].concat();
            let grid = GridSize::linear(self.heads);
            work.commands.kernel("attention_backward_sinks", grid, 256, 0, &arguments);
        }
    }
}

/// Computes the dot products of output and gradient, head by head.
fn delta(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    attention: &Attention,
    back: &OpBackward<'_>,
) -> DevicePtr {
    let count = call.rows * attention.heads;
    let delta = work.scratch.floats(count);
    let places = [back.output, back.gradient].map(KernelArgument::Ptr);
    let numbers = [int(call.columns()), int(attention.head_size), KernelArgument::Ptr(delta)];
    let arguments = [&places[..], &numbers, &[call.rows, attention.heads].map(int)].concat();
    work.commands.warp_per_item("attention_delta", count, &arguments);
    delta
}

impl AttentionBackward<'_> {
    /// Appends the gradients of queries, and of a bias table.
    fn queries(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let Self { attention, config, tables, common, scores } = self;
        let to_bias = attention.bias.map_or(0, |bias| back.weight_gradient(bias.table));
        let to_queries = back.input_gradients[0];
        if to_queries.is_none() && to_bias == 0 {
            return;
        }
        let mut diagonals = 0;
        if to_bias > 0 {
            let count = tables.query_count * attention.heads * (scores.max_distance + config.tile);
            diagonals = work.scratch.floats(count);
            work.commands.clear(diagonals, 4 * count);
        }
        // If the gradient of queries is not needed, it is written to scratch memory.
        let to = to_queries
            .unwrap_or_else(|| Destination::overwrite(work.scratch.floats(call.rows * call.columns())));
        let last = [int(attention.kv_heads), KernelArgument::Ptr(diagonals)];
        let arguments = [
            common,
            &to.arguments()[..],
            &[KernelArgument::Ptr(tables.query_tiles)],
            &scores.arguments,
            &last[..if config.dense { 1 } else { 2 }],
        ];
        let name = config.name(work.commands, "attention_backward", "_queries");
        let grid = GridSize::new(tables.query_count, attention.heads, 1);
        let shared = config.query_backward_bytes(diagonals > 0);
        work.commands.kernel(&name, grid, config.threads(), shared, &arguments.concat());
        if let Some(bias) = attention.bias.filter(|_| to_bias > 0) {
            let arguments = [
                &[diagonals, tables.query_tiles].map(KernelArgument::Ptr)[..],
                &[tables.query_count, config.tile].map(int),
                &[KernelArgument::Ptr(scores.bias_buckets), int(scores.max_distance)],
                &[int(attention.heads), KernelArgument::Ptr(to_bias)],
            ];
            let grid = GridSize::new(bias.buckets, attention.heads, 1);
            work.commands.kernel("attention_backward_bias", grid, 256, 0, &arguments.concat());
        }
    }

    /// Appends the gradients of keys and values, and of their projections.
    fn keys(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
        let mut to = KeyGradients { keys: back.input_gradients[1], values: back.input_gradients[2] };
        let Some(projection) = &self.attention.projection else {
            return self.projected_keys(work, to);
        };
        let mut allocate = |weight: usize, to: Option<Destination>| {
            let needed = to.is_some() || back.weight_gradient(weight) > 0;
            needed.then(|| Destination::overwrite(linformer::allocate_projected(work, call, projection)))
        };
        to.keys = allocate(projection.keys, to.keys);
        to.values = allocate(projection.values, to.values);
        self.projected_keys(work, to);
        for (index, weight, gradient) in [(1, projection.keys, to.keys), (2, projection.values, to.values)] {
            if let Some(gradient) = gradient {
                let own = ProjectedGradient { index, weight, gradient: gradient.ptr };
                project_backward(work, call, projection, own, back);
            }
        }
    }

    fn projected_keys(&self, work: &mut CommandBuilder<'_>, all: KeyGradients) {
        let Self { attention, config, tables, common, scores } = self;
        // For wide heads, both accumulators do not fit in registers.
        let kernels: &[(&str, KeyGradients)] = match config.size {
            256 => &[
                ("_keys", KeyGradients { values: None, ..all }),
                ("_values", KeyGradients { keys: None, ..all }),
            ],
            _ => &[("_both", all)],
        };
        for (kind, KeyGradients { keys, values }) in kernels {
            let to = [keys, values];
            if to == [&None, &None] {
                continue;
            }
            let places = to.map(|to| KernelArgument::Ptr(to.map_or(0, |to| to.ptr)));
            let adds = to.map(|to| flag(to.is_some_and(|to| to.accumulate)));
            let arguments = [
                common,
                &places[..],
                &adds,
                &[KernelArgument::Ptr(tables.key_tiles)],
                &scores.arguments,
                &[int(attention.kv_heads)],
            ];
            let name = config.name(work.commands, "attention_backward", kind);
            let grid = GridSize::new(tables.key_count, attention.kv_heads, 1);
            let shared = config.key_backward_bytes();
            work.commands.kernel(&name, grid, config.threads(), shared, &arguments.concat());
        }
    }
}

/// Where the gradients of keys and of values go; `None` if not needed.
#[derive(Clone, Copy, Debug)]
struct KeyGradients {
    keys: Option<Destination>,
    values: Option<Destination>,
}

/// The gradient of projected keys or values.
struct ProjectedGradient {
    /// The input of the attention that is projected.
    index: usize,
    /// The weights of the projection.
    weight: usize,
    gradient: DevicePtr,
}

/// Backpropagates the gradients of projected rows to keys or values, and to the weights.
fn project_backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    projection: &LinformerProjection,
    ProjectedGradient { index, weight, gradient }: ProjectedGradient,
    back: &OpBackward<'_>,
) {
    let part = ProjectedRows::new(work, call, projection);
    let (input, to_weight) = (back.inputs[index], back.weight_gradient(weight));
    let precision = work.commands.precision();
    for (first, span) in part.sequences() {
        let given = part.rows(gradient, first);
        if let Some(to) = back.input_gradients[index] {
            let shape = GemmShape { m: span.len(), n: part.columns(), k: projection.count };
            let a = part.weights(call.weight(weight).compute, true);
            let out = part.rows(to.ptr, span.start);
            work.commands.matmul(MatmulCommand {
                accumulate: to.accumulate,
                ..MatmulCommand::new(precision, shape, a, given, out)
            });
        }
        if to_weight > 0 {
            let shape = GemmShape { m: projection.count, n: span.len(), k: part.columns() };
            let b = DeviceMatrix { transposed: true, ..part.rows(input, span.start) };
            work.commands.matmul(MatmulCommand {
                f32_output: true,
                accumulate: true,
                ..MatmulCommand::new(precision, shape, given, b, part.weights(to_weight, false))
            });
        }
    }
}
