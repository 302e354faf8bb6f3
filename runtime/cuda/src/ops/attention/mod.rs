//! Attention over whole sequences: which keys each query attends to, and the tiles that blocks process.

mod config;
pub mod linformer;
mod tables;

pub use config::AttentionConfig;
pub use tables::{SequenceTables, tables};

use siskin_device::{DevicePtr, GridSize, KernelArgument, MatrixShape};
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask, Node};

use self::tables::key_sequences;
use super::indexing::gather_rows;
use super::{CudaForward, Destination, KernelLimits, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, int};

/// The arguments of kernels that say how scores are computed.
#[derive(Clone, Debug)]
pub struct ScoreArguments {
    /// The arguments; dense kernels take fewer.
    pub arguments: Vec<KernelArgument>,
    /// The buckets of a relative position bias by distance; 0: none.
    pub bias_buckets: DevicePtr,
    /// The number of distances in each direction.
    pub max_distance: usize,
}

impl ScoreArguments {
    /// Returns the arguments of an attention, and writes the tables that they refer to.
    pub fn new(
        work: &mut CommandBuilder<'_>,
        call: &OpCall<'_>,
        attention: &Attention,
        tables: &SequenceTables,
        dense: bool,
    ) -> Self {
        let scale = KernelArgument::Float(attention.scale);
        if dense {
            let arguments = vec![KernelArgument::Ptr(tables.visible), int(attention.heads), scale];
            return Self { arguments, bias_buckets: 0, max_distance: 0 };
        }
        let (queries, keys) = (call.sequences(), key_sequences(call, attention));
        let max_distance = queries.max_length().max(keys.max_length());
        let slopes = match attention.alibi.is_empty() {
            true => 0,
            false => work.tables.floats(&format!("slopes {:?}", attention.alibi), || attention.alibi.clone()),
        };
        let (mut bias, mut bias_buckets) = (0, 0);
        if let Some(table) = attention.bias {
            let last = max_distance as i64 - 1;
            bias = call.weight(table.table).f32;
            bias_buckets = work.tables.ints(&format!("buckets {table:?} {max_distance}"), || {
                (-last..=last).map(|distance| table.bucket(distance) as i32).collect()
            });
        }
        let cap = KernelArgument::Float(attention.softcap.unwrap_or(0.0));
        let places = [slopes, bias, bias_buckets].map(KernelArgument::Ptr);
        let (mut many_end, mut many) = (0, 0.0);
        if let AttentionMask::BigBird { size, random } = attention.attention_mask {
            (many_end, many) = (size, ((1 + random) as f32).ln());
        }
        let arguments = [
            &[KernelArgument::Ptr(tables.visible), int(tables.runs)],
            &places[..],
            &[int(max_distance), int(attention.heads), scale, cap],
            &[int(many_end), KernelArgument::Float(many)],
        ];
        Self { arguments: arguments.concat(), bias_buckets, max_distance }
    }
}

/// Returns the place of the attention-sink scores; 0: none.
pub fn sinks(call: &OpCall<'_>, attention: &Attention) -> DevicePtr {
    attention.sinks.map_or(0, |sinks| call.weight(sinks).f32)
}

/// Passes through the rows that do not attend, where only marked rows attend.
pub fn copy_non_attending_rows(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    from: DevicePtr,
    to: Destination,
) {
    let sequences = call.sequences();
    let list = work.tables.ints(&call.table_name("non-attending rows"), || {
        let without = |row: usize| if sequences.is_marked(row) { -1 } else { row as i32 };
        (0..sequences.rows.len()).map(without).collect()
    });
    gather_rows(work, from, list, to, MatrixShape { rows: call.rows, columns: call.columns() });
}

impl CudaForward for Attention {
    fn check(&self, node: &Node, limits: KernelLimits) -> Result<()> {
        if self.attention_mask == AttentionMask::CrossAttention && node.inputs.len() < 3 {
            let message =
                "CUDA kernels take keys and values of cross-attention as inputs, not from a KV cache";
            return Err(Error::unsupported("device", message));
        }
        config::check(self, limits)
    }

    fn saved_len(&self, rows: usize) -> usize {
        rows * self.heads
    }

    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let OpTensors { inputs, out, saved } = tensors;
        let config = AttentionConfig::new(work.commands.precision(), self);
        let tables = tables(work, call, self, config.tile);
        let mut scores = ScoreArguments::new(work, call, self, &tables, config.dense).arguments;
        if !config.dense {
            scores.push(KernelArgument::Ptr(sinks(call, self)));
        }
        let widths = [0, 1, 2].map(|input| int(call.input(input).columns));
        let [keys, values] = match &self.projection {
            Some(projection) => linformer::project(work, call, projection, [inputs[1], inputs[2]]),
            None => [inputs[1], inputs[2]],
        };
        let arguments = [
            &[inputs[0], keys, values].map(KernelArgument::Ptr)[..],
            &widths,
            &[int(self.head_size), KernelArgument::Ptr(out), int(call.columns())],
            &[saved, tables.query_tiles].map(KernelArgument::Ptr),
            &scores,
            &[int(self.kv_heads)],
        ];
        let name = config.name(work.commands, "attention", "");
        let grid = GridSize::new(tables.query_count, self.heads, 1);
        work.commands.kernel(&name, grid, config.threads(), config.forward_bytes(), &arguments.concat());
        if let Some(&others) = inputs.get(3) {
            copy_non_attending_rows(work, call, others, Destination { ptr: out, accumulate: true });
        }
    }
}
