//! Attention on a device: which keys each query attends to, and the tiles that blocks process.

mod linformer;
mod tables;

use self::linformer::ProjectedGradient;
use siskin_device::{CommandList, DevicePtr, GridSize, KernelArgument, Precision};
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask};

use crate::cuda::command_builder::{CommandBuilder, flag, int};
use crate::cuda::op::call::{GradientTarget, OpBackward, OpCall};
use tables::{SequenceTables, is_marked, key_sequences, tables};

/// The head sizes that kernels are compiled for; smaller heads are padded with zeros.
const SIZES: [usize; 3] = [64, 128, 256];

/// Refuses attention variants without kernels, or whose kernels need more than `shared` bytes of shared memory.
pub(super) fn check(description: &Attention, precision: Precision, shared: usize) -> Result<()> {
    if description.head_size > SIZES[SIZES.len() - 1] {
        let message = format!(
            "heads of {} columns are wider than the {} of the CUDA kernels; train with device = \"cpu\"",
            description.head_size,
            SIZES[SIZES.len() - 1]
        );
        return Err(Error::unsupported("device", message));
    }
    let bytes = AttentionConfig::new(precision, description).max_bytes();
    if bytes > shared {
        let message = format!(
            "heads of {} columns take {bytes} bytes of shared memory in this precision, and this device has {shared}; \
             train with precision = \"bf16\", or with device = \"cpu\"",
            description.head_size
        );
        return Err(Error::unsupported("device", message));
    }
    Ok(())
}

/// Returns true if the kernels of dense attention apply, which assume 16-bit values, one run of keys per query, and
/// scores that are products times a positive factor.
fn is_dense(precision: Precision, description: &Attention) -> bool {
    let one_run = !matches!(
        description.attention_mask,
        AttentionMask::StreamingLlm { .. }
            | AttentionMask::LongformerLocal(_)
            | AttentionMask::BigBird { .. }
    );
    let alone = description.alibi.is_empty() && description.bias.is_none() && description.sinks.is_none();
    let product = description.softcap.is_none() && description.scale > 0.0;
    let fits = description.head_size <= 128 && description.head_size.is_multiple_of(precision.vector_width());
    precision != Precision::F32 && one_run && alone && product && fits
}

/// The tile sizes and shared memory of the attention kernels: `TileConfig` in `runtime/cuda/kernels/attention.cuh`,
/// `dense_step` in `attention_dense.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttentionConfig {
    /// Whether the kernels of dense attention are used.
    dense: bool,
    /// Whether gradients of scores are kept for a bias table.
    bias_table: bool,
    /// The head size that kernels are compiled for.
    size: usize,
    /// Rows that a block owns.
    tile: usize,
    /// Keys that it processes at a time, and queries.
    step: usize,
    query_step: usize,
    bytes: usize,
    stride: usize,
}

impl AttentionConfig {
    fn new(precision: Precision, description: &Attention) -> Self {
        let fits = |size: &usize| description.head_size <= *size;
        let size = SIZES.into_iter().find(fits).unwrap_or(SIZES[SIZES.len() - 1]);
        let floats = precision == Precision::F32;
        let dense = is_dense(precision, description);
        Self {
            dense,
            bias_table: description.bias.is_some(),
            size,
            tile: if floats && size > 128 { 32 } else { 64 },
            step: match (floats, size) {
                (true, 256) => 16,
                (true, 128) | (false, 256) => 32,
                (false, 128) if dense => 32,
                _ => 64,
            },
            query_step: match (floats, size) {
                (true, 256) => 16,
                (_, 128 | 256) => 32,
                _ => 64,
            },
            bytes: precision.bytes(),
            stride: size + precision.vector_width(),
        }
    }

    fn threads(&self) -> usize {
        self.tile / 16 * 32
    }

    /// Returns the name of a forward or backward kernel.
    fn name(&self, commands: &CommandList, direction: &str, kind: &str) -> String {
        let dense = if self.dense { "_dense" } else { "" };
        format!("{}_{}", commands.kernel_name(&format!("{direction}{dense}{kind}")), self.size)
    }

    /// Returns the bytes of this many rows.
    fn shared(&self, rows: usize) -> usize {
        rows * self.stride * self.bytes
    }

    /// Returns the rows of both tables that a step loads.
    fn rows(&self, step: usize) -> usize {
        if self.dense { 4 * step } else { 2 * step }
    }

    /// Returns the shared memory of the forward kernel.
    fn forward_bytes(&self) -> usize {
        self.shared(self.tile + self.rows(self.step))
    }

    /// Returns the shared memory of the backward kernel for queries, which may keep the gradients of a tile's scores.
    fn query_backward_bytes(&self, keeps_scores: bool) -> usize {
        let scores = if keeps_scores { 4 * self.tile * (self.step + 1) } else { 0 };
        self.shared(2 * self.tile + self.rows(self.step)) + scores
    }

    /// Returns the static shared memory of the dense backward kernel for keys, with per-query values for its warps.
    fn static_bytes_for_keys(&self) -> usize {
        if self.dense { 40 * self.query_step } else { 0 }
    }

    /// Returns the dynamic shared memory of the backward kernels for keys.
    fn key_backward_bytes(&self) -> usize {
        self.shared(2 * self.tile + self.rows(self.query_step))
    }

    /// Returns the shared memory of the kernel that needs the most.
    fn max_bytes(&self) -> usize {
        self.forward_bytes()
            .max(self.query_backward_bytes(self.bias_table))
            .max(self.key_backward_bytes() + self.static_bytes_for_keys())
    }
}

/// Returns the score arguments of the kernels, the bias buckets by distance, and their reach; dense kernels take
/// fewer arguments.
fn scores(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    description: &Attention,
    tables: &SequenceTables,
    dense: bool,
) -> (Vec<KernelArgument>, DevicePtr, usize) {
    let scale = KernelArgument::Float(description.scale);
    if dense {
        return (vec![KernelArgument::Ptr(tables.visible), int(description.heads), scale], 0, 0);
    }
    let (queries, keys) = (call.sequences(), key_sequences(call, description));
    let max_distance = queries.max_length().max(keys.max_length());
    let slopes = match description.alibi.is_empty() {
        true => 0,
        false => work.tables.floats(&format!("slopes {:?}", description.alibi), || description.alibi.clone()),
    };
    let (mut bias, mut steps) = (0, 0);
    if let Some(table) = description.bias {
        let last = max_distance as i64 - 1;
        bias = call.weight(table.table).f32;
        steps = work.tables.ints(&format!("steps {table:?} {max_distance}"), || {
            (-last..=last).map(|distance| table.bucket(distance) as i32).collect()
        });
    }
    let cap = KernelArgument::Float(description.softcap.unwrap_or(0.0));
    let places = [slopes, bias, steps].map(KernelArgument::Ptr);
    let (many_end, many) = match description.attention_mask {
        AttentionMask::BigBird { size, random } => (size, ((1 + random) as f32).ln()),
        _ => (0, 0.0),
    };
    let arguments = [
        &[KernelArgument::Ptr(tables.visible), int(tables.runs)],
        &places[..],
        &[int(max_distance), int(description.heads), scale, cap],
        &[int(many_end), KernelArgument::Float(many)],
    ];
    (arguments.concat(), steps, max_distance)
}

/// Returns the place of the attention-sink scores; 0: none.
fn sinks(call: &OpCall<'_>, description: &Attention) -> DevicePtr {
    description.sinks.map_or(0, |sinks| call.weight(sinks).f32)
}

pub(super) fn forward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    description: &Attention,
    inputs: &[DevicePtr],
    out: DevicePtr,
    kept: DevicePtr,
) {
    let config = AttentionConfig::new(work.commands.precision(), description);
    let tables = tables(work, call, description, config.tile);
    let (mut scores, _, _) = scores(work, call, description, &tables, config.dense);
    if !config.dense {
        scores.push(KernelArgument::Ptr(sinks(call, description)));
    }
    let widths = [call.input(0).columns, call.input(1).columns, call.input(2).columns, description.head_size];
    let [keys, values] = match &description.projection {
        Some(projection) => linformer::project(work, call, projection, [inputs[1], inputs[2]]),
        None => [inputs[1], inputs[2]],
    };
    let arguments = [
        &[inputs[0], keys, values].map(KernelArgument::Ptr)[..],
        &widths.map(int),
        &[KernelArgument::Ptr(out), int(call.columns())],
        &[kept, tables.query_tiles].map(KernelArgument::Ptr),
        &scores,
        &[int(description.kv_heads)],
    ];
    let name = config.name(work.commands, "attention", "");
    let grid = GridSize::new(tables.query_count, description.heads, 1);
    work.commands.kernel(&name, grid, config.threads(), config.forward_bytes(), &arguments.concat());
    if let Some(&others) = inputs.get(3) {
        copy_non_attending_rows(work, call, others, GradientTarget { ptr: out, accumulate: true });
    }
}

/// Passes through the rows that do not attend, where only marked rows attend.
fn copy_non_attending_rows(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    from: DevicePtr,
    to: GradientTarget,
) {
    let texts = call.sequences();
    let rows = work.tables.ints(&call.name("non-attending rows"), || {
        let without = |row: usize| if is_marked(texts, row) { -1 } else { row as i32 };
        (0..texts.rows.len()).map(without).collect()
    });
    let places = [
        KernelArgument::Ptr(from),
        KernelArgument::Ptr(rows),
        KernelArgument::Ptr(to.ptr),
        flag(to.accumulate),
    ];
    let arguments = [&places[..], &[int(call.rows), int(call.columns())]].concat();
    work.commands.elementwise_2d("gather_rows", call.rows, call.columns(), &arguments);
}

pub(super) fn backward(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    description: &Attention,
    back: &OpBackward<'_>,
) {
    let config = AttentionConfig::new(work.commands.precision(), description);
    let tables = tables(work, call, description, config.tile);
    let (scores, steps, max_distance) = scores(work, call, description, &tables, config.dense);
    let delta = work.scratch.floats(call.rows * description.heads);
    let places = [back.output, back.gradient].map(KernelArgument::Ptr);
    let numbers = [int(call.columns()), int(description.head_size), KernelArgument::Ptr(delta)];
    let heads = [int(call.rows), int(description.heads)];
    let arguments = [&places[..], &numbers, &heads].concat();
    work.commands.warp_per_item("attention_delta", call.rows * description.heads, &arguments);

    let projection = description.projection.as_ref();
    let [keys, values] = match projection {
        Some(projection) => linformer::project(work, call, projection, [back.inputs[1], back.inputs[2]]),
        None => [back.inputs[1], back.inputs[2]],
    };
    let inputs = [back.inputs[0], keys, values, back.gradient].map(KernelArgument::Ptr);
    let widths =
        [0, 1, 2].map(|input| call.input(input).columns).map(int).into_iter().chain([int(call.columns())]);
    let mut common = inputs.to_vec();
    common.extend(widths);
    common.push(int(description.head_size));
    common.extend([back.saved, delta].map(KernelArgument::Ptr));

    let to_bias = description.bias.map_or(0, |bias| call.weight(bias.table).gradient);
    let to_queries = back.input_gradients[0];
    if to_queries.is_some() || to_bias > 0 {
        let mut diagonals = 0;
        if to_bias > 0 {
            let count = tables.query_count * description.heads * (max_distance + config.tile);
            diagonals = work.scratch.floats(count);
            work.commands.clear(diagonals, 4 * count);
        }
        // If the gradient of queries is not needed, it is written to scratch memory.
        let to = to_queries.map_or_else(
            || (work.scratch.floats(call.rows * call.columns()), false),
            |to| (to.ptr, to.accumulate),
        );
        let arguments = [
            &common[..],
            &[KernelArgument::Ptr(to.0), flag(to.1), KernelArgument::Ptr(tables.query_tiles)],
            &scores,
            &[int(description.kv_heads), KernelArgument::Ptr(diagonals)][..if config.dense { 1 } else { 2 }],
        ];
        let name = config.name(work.commands, "attention_backward", "_queries");
        let grid = GridSize::new(tables.query_count, description.heads, 1);
        let shared = config.query_backward_bytes(diagonals > 0);
        work.commands.kernel(&name, grid, config.threads(), shared, &arguments.concat());
        if let Some(bias) = description.bias.filter(|_| to_bias > 0) {
            let arguments = [
                &[diagonals, tables.query_tiles].map(KernelArgument::Ptr)[..],
                &[int(tables.query_count), int(config.tile), KernelArgument::Ptr(steps)],
                &[int(max_distance), int(description.heads), KernelArgument::Ptr(to_bias)],
            ];
            let grid = GridSize::new(bias.buckets, description.heads, 1);
            work.commands.kernel("attention_backward_bias", grid, 256, 0, &arguments.concat());
        }
    }
    let mut to = [back.input_gradients[1], back.input_gradients[2]];
    if let Some(projection) = projection {
        for (which, to) in to.iter_mut().enumerate() {
            let wanted = linformer::needs_gradient(call, projection, which, *to);
            *to = wanted.then(|| GradientTarget {
                ptr: linformer::allocate_projected(work, call, projection),
                accumulate: false,
            });
        }
    }
    keys_backward(work, &config, &tables, description, (&common, &scores), to);
    if let Some(projection) = projection {
        for (which, given) in to.into_iter().enumerate() {
            let Some(given) = given else { continue };
            let projected = ProjectedGradient { which, input: back.inputs[1 + which], gradient: given.ptr };
            linformer::project_backward(work, call, projection, projected, back.input_gradients[1 + which]);
        }
    }
    if let Some(Some(to)) = back.input_gradients.get(3) {
        copy_non_attending_rows(work, call, back.gradient, *to);
    }
    let to_sinks = description.sinks.map_or(0, |sinks| call.weight(sinks).gradient);
    if to_sinks > 0 {
        let places = [sinks(call, description), back.saved, delta].map(KernelArgument::Ptr);
        let arguments = [&places[..], &heads, &[KernelArgument::Ptr(to_sinks)]].concat();
        work.commands.kernel(
            "attention_backward_sinks",
            GridSize::linear(description.heads),
            256,
            0,
            &arguments,
        );
    }
}

fn keys_backward(
    work: &mut CommandBuilder<'_>,
    config: &AttentionConfig,
    tables: &SequenceTables,
    description: &Attention,
    (common, scores): (&[KernelArgument], &[KernelArgument]),
    all: [Option<GradientTarget>; 2],
) {
    // For wide heads, both accumulators do not fit into registers.
    let kinds: &[(&str, [bool; 2])] = match config.size {
        256 => &[("_keys", [true, false]), ("_values", [false, true])],
        _ => &[("_both", [true, true])],
    };
    for (kind, does) in kinds {
        let to = [0, 1].map(|which| all[which].filter(|_| does[which]));
        if to == [None, None] {
            continue;
        }
        let places = to.map(|to| KernelArgument::Ptr(to.map_or(0, |to| to.ptr)));
        let adds = to.map(|to| flag(to.is_some_and(|to| to.accumulate)));
        let arguments = [
            common,
            &places,
            &adds,
            &[KernelArgument::Ptr(tables.key_tiles)],
            scores,
            &[int(description.kv_heads)],
        ];
        let name = config.name(work.commands, "attention_backward", kind);
        let grid = GridSize::new(tables.key_count, description.kv_heads, 1);
        work.commands.kernel(&name, grid, config.threads(), config.key_backward_bytes(), &arguments.concat());
    }
}

#[cfg(test)]
mod tests {
    use siskin_graph::RelativePositionBias;

    use super::tables::{TILE_FIELDS, tiles, visible_runs};
    use super::*;
    use crate::batch::BatchSequences;

    fn attention(attention_mask: AttentionMask) -> Attention {
        Attention {
            layer: 0,
            heads: 2,
            kv_heads: 1,
            head_size: 8,
            scale: 1.0,
            attention_mask,
            softcap: None,
            alibi: Vec::new(),
            bias: None,
            sinks: None,
            projection: None,
        }
    }

    fn texts(lengths: &[usize]) -> BatchSequences {
        let mut texts = BatchSequences::default();
        lengths.iter().for_each(|&length| texts.push(&vec![0; length], &[]));
        texts
    }

    #[test]
    fn tiles_cover_exactly_the_visible_pairs() {
        for attention_mask in [
            AttentionMask::Causal(None),
            AttentionMask::Causal(Some(5)),
            AttentionMask::Full,
            AttentionMask::LocalWindow(3),
        ] {
            let texts = texts(&[1, 65, 200]);
            let seen = visible_runs(&attention(attention_mask), &texts, &texts);
            let [of_queries, of_keys] = tiles(64, &seen, &texts, &texts);
            let rows = |tiles: &[[i32; TILE_FIELDS]]| tiles.iter().map(|tile| tile[1]).sum::<i32>();
            assert_eq!([rows(&of_queries), rows(&of_keys)], [266, 266], "every row once");
            for tile in of_queries {
                let [first, count, base, _, key_first, key_end, ..] = tile.map(|number| number as usize);
                let runs: Vec<_> = seen[first..first + count].iter().flatten().collect();
                assert_eq!(
                    runs.iter().map(|run| run.start).min(),
                    Some(key_first),
                    "{attention_mask:?} {tile:?}"
                );
                assert_eq!(
                    runs.iter().map(|run| run.end).max(),
                    Some(key_end),
                    "{attention_mask:?} {tile:?}"
                );
                assert!(first >= base);
            }
            for tile in of_keys {
                let [first, count, base, query_base, query_first, query_end, ..] =
                    tile.map(|number| number as usize);
                let own = first - base..first - base + count;
                let length = tile[6] as usize;
                for row in 0..length {
                    let visible_here =
                        seen[query_base + row].iter().any(|run| run.start < own.end && own.start < run.end);
                    let inside = (query_first..query_end).contains(&row);
                    assert!(!visible_here || inside, "{attention_mask:?} {tile:?} {row}");
                }
            }
        }
    }

    #[test]
    fn the_longest_tiles_are_launched_first() {
        let texts = texts(&[300]);
        let seen = visible_runs(&attention(AttentionMask::Causal(None)), &texts, &texts);
        let [of_queries, _] = tiles(64, &seen, &texts, &texts);
        assert!(of_queries.is_sorted_by_key(|tile| std::cmp::Reverse(tile[5] - tile[4])));
    }

    #[test]
    fn dense_kernels_are_used_where_they_apply() {
        let whole = || Attention { head_size: 64, ..attention(AttentionMask::Full) };
        let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
        let cases = [
            (whole(), true),
            (Attention { attention_mask: AttentionMask::Causal(Some(9)), ..whole() }, true),
            (
                Attention { attention_mask: AttentionMask::StreamingLlm { window: 4, sinks: 1 }, ..whole() },
                false,
            ),
            (Attention { attention_mask: AttentionMask::LongformerLocal(3), ..whole() }, false),
            (Attention { head_size: 20, ..whole() }, false),
            (Attention { head_size: 136, ..whole() }, false),
            (Attention { softcap: Some(30.0), ..whole() }, false),
            (Attention { bias: Some(bias), ..whole() }, false),
            (Attention { sinks: Some(0), ..whole() }, false),
            (Attention { alibi: vec![0.5, 0.25], ..whole() }, false),
            (Attention { scale: -1.0, ..whole() }, false),
        ];
        for (description, dense) in cases {
            let config = AttentionConfig::new(Precision::Bf16, &description);
            let name = config.name(&CommandList::new(Precision::Bf16), "attention_backward", "_queries");
            assert_eq!(config.dense, dense, "{description:?}");
            assert_eq!(name.starts_with("attention_backward_dense_queries_bf16_"), dense, "{name}");
            assert!(!AttentionConfig::new(Precision::F32, &description).dense, "{description:?}");
        }
    }

    #[test]
    fn shared_memory_fits_all_devices() {
        let bias = RelativePositionBias { table: 0, buckets: 8, max_distance: 20, bidirectional: true };
        for precision in [Precision::F32, Precision::Bf16, Precision::Fp16] {
            for size in [1, 32, 64, 65, 128, 129, 256] {
                let with_table = |bias| {
                    let description = attention(AttentionMask::Full);
                    AttentionConfig::new(precision, &Attention { head_size: size, bias, ..description })
                        .max_bytes()
                };
                assert!(with_table(None) <= 99 << 10, "{precision:?} {size}: {}", with_table(None));
                let wide = if precision == Precision::F32 { 64 } else { 128 };
                assert_eq!(with_table(Some(bias)) <= 99 << 10, size <= wide, "{precision:?} {size}");
                assert!(with_table(Some(bias)) <= 163 << 10, "{precision:?} {size}");
            }
        }
        let whole = |head_size| Attention { head_size, ..attention(AttentionMask::Full) };
        let with_table = Attention { bias: Some(bias), ..whole(256) };
        assert!(check(&whole(257), Precision::Bf16, 227 << 10).is_err());
        assert!(check(&whole(256), Precision::F32, 99 << 10).is_ok());
        assert!(check(&with_table, Precision::Bf16, 163 << 10).is_ok());
        let refused = check(&with_table, Precision::Bf16, 99 << 10).unwrap_err();
        assert!(refused.message().contains("109824 bytes"), "{refused}");
    }
}
