//! The attention step: divides queries and keys among the workers.
//!
//! A chunk of work is one KV head with up to [`QUERIES`] queries. Few queries over many keys are divided by chunks of
//! keys instead, and the partial results merged in order (split-K attention, as in Flash-Decoding).

use std::ops::Range;

use siskin_kernels::ops::attention::{self as attend, CHUNK, KeySpan, QUERIES, Query};

use super::CpuPass;
use super::prefetch::PrefetchingWorker;
use crate::block_table::CacheOptions;
use crate::plan::BufferView;
use siskin_graph::{Attention, AttentionMask};

/// The maximum number of rows for split-K attention.
const SPLIT_ROWS: usize = 8;
/// The maximum number of words of partial results in split-K attention.
const PARTS_WORDS: usize = 1 << 20;

/// Parts of the arena that are scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workspace {
    /// Scratch memory of each worker: at least [`attend::scratch_size`] f32 values.
    scratch: BufferView,
    /// Split-K attention: partial results per row, head and chunk of keys.
    parts: BufferView,
    /// The number of rows that there are partial results for.
    split_rows: usize,
}

impl Workspace {
    /// Returns the scratch memory, one row for each worker.
    pub(super) fn scratch(&self) -> BufferView {
        self.scratch
    }

    /// Lays out the workspace from word `start` on, and returns the first word after it. Each of `threads` workers gets
    /// at least `scratch` words.
    pub(crate) fn new<'a>(
        attentions: impl Iterator<Item = &'a Attention> + Clone,
        cache: &CacheOptions,
        (threads, scratch): (usize, usize),
        start: usize,
    ) -> (Self, usize) {
        let max = |size: &dyn Fn(&Attention) -> usize| attentions.clone().map(size).max().unwrap_or(0);
        let line = |words: usize| words.next_multiple_of(16);
        let columns = line(max(&|attention| attend::scratch_size(attention.head_size)).max(scratch));
        let scratch = BufferView { offset: line(start), stride: columns, columns };
        let chunks = |attention: &Attention| {
            let seen = match attention.attention_mask {
                AttentionMask::Causal(window) => {
                    window.map_or(cache.context_length, |window| window.min(cache.context_length))
                }
                AttentionMask::CausalEncoder(window) => {
                    window.map_or(cache.encoder_context, |window| window.min(cache.encoder_context))
                }
                AttentionMask::Full | AttentionMask::LongformerGlobal | AttentionMask::CrossAttention => {
                    cache.encoder_context
                }
                // Never computed by split-K attention.
                AttentionMask::LongformerLocal(_)
                | AttentionMask::StreamingLlm { .. }
                | AttentionMask::BigBird { .. } => 1,
                AttentionMask::Linformer => attention.projection.map_or(1, |projection| projection.count),
                AttentionMask::LocalWindow(reach) => {
                    reach.saturating_mul(2).saturating_add(1).min(cache.encoder_context)
                }
            };
            seen.div_ceil(CHUNK) + 1 + usize::from(attention.sinks.is_some())
        };
        let columns = max(&|attention| line(chunks(attention) * attend::part_size(attention.head_size)));
        let parts =
            BufferView { offset: scratch.offset + scratch.stride * threads, stride: columns, columns };
        let row = max(&|attention| attention.heads) * columns;
        let fitting = PARTS_WORDS.checked_div(row).unwrap_or(0).clamp(1, SPLIT_ROWS);
        let split_rows =
            if threads > 1 { fitting.min(cache.max_batch_tokens.max(cache.encoder_context)) } else { 0 };
        (Self { scratch, parts, split_rows }, parts.offset + split_rows * row)
    }
}

impl CpuPass<'_> {
    pub(super) fn attend(
        &self,
        worker: &PrefetchingWorker<'_>,
        attention: &Attention,
        queries: BufferView,
        to: BufferView,
    ) -> bool {
        let step = Attend { forward: self, attention, queries, to };
        let rows = self.batch.attending(attention);
        let max_chunks = (0..rows).map(|row| step.chunks(row).len()).max().unwrap_or(0);
        // With one worker there is no load to balance: heads that share a KV head read its keys once.
        let few = worker.worker_count > 1 && rows * attention.kv_heads < 4 * worker.worker_count;
        let apart = !matches!(
            attention.attention_mask,
            AttentionMask::LongformerLocal(_)
                | AttentionMask::StreamingLlm { .. }
                | AttentionMask::BigBird { .. }
        );
        if few && apart && max_chunks > 1 && rows <= self.workspace.split_rows {
            step.chunk_by_chunk(worker, rows, max_chunks)
        } else if few {
            step.query_by_query(worker, rows)
        } else {
            step.rows_together(worker, rows)
        }
    }
}

/// An attention step. Row numbers count attending rows only: see [`Attend::row`].
struct Attend<'a> {
    forward: &'a CpuPass<'a>,
    attention: &'a Attention,
    queries: BufferView,
    to: BufferView,
}

impl Attend<'_> {
    /// Returns the number of query heads that share a KV head (GQA).
    fn group(&self) -> usize {
        self.attention.heads / self.attention.kv_heads
    }

    /// Returns the batch row of attending row `index`.
    fn row(&self, index: usize) -> usize {
        self.forward.batch.attending_row(self.attention, index)
    }

    /// Returns the attention sink logit of a head.
    fn sink(&self, head: usize) -> Option<f32> {
        self.forward.weights.vector(self.attention.sinks).get(head).copied()
    }

    /// Returns where the output of a row and head goes.
    fn result(&self, row: usize, head: usize) -> (BufferView, usize) {
        (head_view(self.to, head, self.attention.head_size), self.row(row))
    }

    /// Returns the chunks of keys that a row attends to.
    fn chunks(&self, row: usize) -> Range<usize> {
        let row = self.forward.batch.rows[self.row(row)];
        let (first, last) = self.attention.seen(super::super::place(row, self.forward.cache.table));
        first / CHUNK..last / CHUNK + 1
    }

    /// Many rows: a chunk of work is a block of rows that share loaded keys and values.
    fn rows_together(&self, worker: &PrefetchingWorker<'_>, rows: usize) -> bool {
        let kv_heads = self.attention.kv_heads;
        let fair = rows * kv_heads / (4 * worker.worker_count);
        let together = fair.min(QUERIES / self.group().min(QUERIES)).max(1);
        let blocks = rows.div_ceil(together);
        self.forward.share(worker, blocks * kv_heads, |piece| {
            // A worker's chunks share keys. Under a causal mask the last rows attend to most keys: they alternate with
            // the first ones, which balances the load.
            let (turn, kv_head) = (piece % blocks, piece / blocks);
            let block = if turn.is_multiple_of(2) { blocks - 1 - turn / 2 } else { turn / 2 };
            let heads = kv_head * self.group()..(kv_head + 1) * self.group();
            let rows = block * together..rows.min((block + 1) * together);
            let mut next = rows.flat_map(|row| heads.clone().map(move |head| (row, head))).peekable();
            while let Some(&first) = next.peek() {
                let sequence_of = |row: usize| self.forward.batch.rows[self.row(row)].sequence;
                let sequence = sequence_of(first.0);
                let mut chosen = [first; QUERIES];
                let mut count = 0;
                while count < QUERIES {
                    match next.next_if(|(row, _)| sequence_of(*row) == sequence) {
                        Some(query) => chosen[count] = query,
                        None => break,
                    }
                    count += 1;
                }
                let result = |row, head| self.result(row, head);
                self.queries(worker, kv_head, &chosen[..count], KeySpan::Whole, result);
            }
        })
    }

    /// Few rows with few keys: a chunk of work is one query, so that an odd number of heads is divided evenly.
    fn query_by_query(&self, worker: &PrefetchingWorker<'_>, rows: usize) -> bool {
        self.forward.share(worker, rows * self.attention.heads, |piece| {
            let (row, head) = (piece / self.attention.heads, piece % self.attention.heads);
            let result = |row, head| self.result(row, head);
            self.queries(worker, head / self.group(), &[(row, head)], KeySpan::Whole, result);
        })
    }

    /// Split-K attention (Flash-Decoding), for few rows with many keys: a chunk of work is a chunk of the keys, and
    /// partial results are merged at the end.
    fn chunk_by_chunk(&self, worker: &PrefetchingWorker<'_>, rows: usize, max_chunks: usize) -> bool {
        let (heads, kv_heads) = (self.attention.heads, self.attention.kv_heads);
        let size = attend::part_size(self.attention.head_size);
        let parts = self.forward.workspace.parts;
        let attended = self.forward.share(worker, rows * kv_heads * max_chunks, |piece| {
            let (row, kv_head, index) =
                (piece / max_chunks / kv_heads, piece / max_chunks % kv_heads, piece % max_chunks);
            let Some(chunk) = self.chunks(row).nth(index) else { return };
            let part = BufferView { offset: parts.offset + index * size, columns: size, ..parts };
            for first in (0..self.group()).step_by(QUERIES) {
                let count = QUERIES.min(self.group() - first);
                let head = kv_head * self.group() + first;
                let chosen: [_; QUERIES] = std::array::from_fn(|i| (row, head + i));
                self.queries(worker, kv_head, &chosen[..count], KeySpan::Chunk(chunk), |row, head| {
                    (part, row * heads + head)
                });
            }
        });
        let merged = self.forward.share(worker, rows * heads, |piece| {
            let (row, head) = (piece / heads, piece % heads);
            let chunks = self.chunks(row).len();
            let sink = self.sink(head);
            let view = BufferView { columns: (chunks + usize::from(sink.is_some())) * size, ..parts };
            // SAFETY: the partial results were written in the previous phase; only this worker accesses the part after
            // them, the output and its own scratch.
            unsafe {
                let arena = self.forward.arena;
                if let Some(sink) = sink {
                    let last = BufferView { offset: parts.offset + chunks * size, columns: size, ..parts };
                    attend::sink_part(sink, arena.row_mut(last, piece));
                }
                let scratch = arena.row_mut(self.forward.workspace.scratch, worker.index);
                let (to, to_row) = self.result(row, head);
                let out = arena.row_mut(to, to_row);
                let head_size = self.attention.head_size;
                self.forward.kernels.merge()(head_size, arena.row(view, piece), scratch, out);
            }
        });
        attended && merged
    }

    /// Returns the query of a row of the batch: its position and the keys that it attends to.
    fn query_of(&self, row: usize) -> Query<'static> {
        let place = super::super::place(self.forward.batch.rows[row], self.forward.cache.table);
        let (first, last) = self.attention.seen(place);
        Query { first, last, also: self.attention.also_seen(place), ..Query::at(place.position, &[]) }
    }

    /// Computes attention for queries, given as (row, head), of one sequence and one KV head. `place` returns the view
    /// and the row for a query's output.
    fn queries(
        &self,
        worker: &PrefetchingWorker<'_>,
        kv_head: usize,
        chosen: &[(usize, usize)],
        span: KeySpan,
        place: impl Fn(usize, usize) -> (BufferView, usize),
    ) {
        let CpuPass { arena, batch, cache, kernels, workspace, .. } = self.forward;
        let attention = self.attention;
        let Some(&first) = chosen.first() else { return };
        let Some(layer) = cache.layer(attention, batch.rows[self.row(first.0)].sequence) else { return };
        let arguments = attend::AttentionArguments {
            head_size: attention.head_size,
            scale: attention.scale,
            softcap: attention.softcap.unwrap_or(0.0),
            cache: layer.cached(),
        };
        // SAFETY: queries were written in an earlier step; only this worker accesses its (row, head) outputs and its
        // scratch.
        unsafe {
            let mut list = [Query::at(0, &[]); QUERIES];
            let mut out: [&mut [f32]; QUERIES] = std::array::from_fn(|_| Default::default());
            // Shared by the heads of a row.
            let (mut of_row, mut shared) = (None, list[0]);
            for ((list, out), &(index, head)) in list.iter_mut().zip(&mut out).zip(chosen) {
                let row = self.row(index);
                if of_row.replace(row) != Some(row) {
                    shared = self.query_of(row);
                }
                *list = Query {
                    values: arena.row(head_view(self.queries, head, attention.head_size), row),
                    slope: attention.alibi.get(head).copied().unwrap_or(0.0),
                    bias: batch.bias(attention, self.forward.distances, head, row, shared.last, cache.table),
                    sink: self.sink(head),
                    ..shared
                };
                let (view, row) = place(index, head);
                *out = arena.row_mut(view, row);
            }
            let scratch = arena.row_mut(workspace.scratch, worker.index);
            let (list, out) = (&list[..chosen.len()], &mut out[..chosen.len()]);
            kernels.attention()(&arguments, list, &layer.head(kv_head), span, scratch, out);
        }
    }
}

/// Returns the columns of a head.
fn head_view(view: BufferView, head: usize, size: usize) -> BufferView {
    BufferView { offset: view.offset + head * size, columns: size, ..view }
}
