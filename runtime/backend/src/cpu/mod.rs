//! The CPU backend: runs a plan on the thread pool.

mod arena;
mod attention;
mod batch_parallel;
mod lora;
mod matmul;
mod module;
mod observation;
mod prefetch;
mod state;

use attention::Workspace;
use batch_parallel::BatchParallel;
use matmul::scratch_size;
pub use module::{CpuBackend, plan_text};

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use siskin_kernels::ops::attention::{BLOCK, PANEL};
use siskin_kernels::ops::norm;
use siskin_kernels::ops::{Kernels, rope};
use siskin_kernels::panel::ROWS;

use super::kv_storage::KvView;
use super::moe_routing::{self, Slots, slot_words};
use super::state as states;
use super::{Batch, Distances, TokenRow, Weights, marked_place};
use crate::plan::{BufferView, Plan, PlanStep, RowOp};
use crate::thread_pool::ThreadPool;
use arena::ArenaView;
use observation::Observation;
use prefetch::PrefetchingWorker;
use siskin_format::{Error, Result};
use siskin_graph::{Attention, AttentionMask, NormKind, Routing, RowKind};

/// Rows per chunk of row-wise work.
const ROW_BLOCK: usize = 8;
/// Rows whose keys and values a worker stores at once.
const PANEL_ROWS: usize = 2 * PANEL;

/// The inputs of a forward pass, shared by all workers.
struct CpuPass<'a> {
    pub plan: &'a Plan,
    pub weights: &'a Weights,
    pub kernels: &'a Kernels,
    pub arena: ArenaView<'a>,
    pub workspace: Workspace,
    /// State for batch parallelism, if supported.
    pub apart: Option<&'a BatchParallel>,
    pub cache: KvView<'a>,
    pub batch: &'a Batch,
    pub distances: &'a Distances,
    /// Cancel flag, set by another thread.
    pub cancel: &'a AtomicBool,
    /// Whether the pass observed the cancel flag; initially false.
    pub stopped: &'a AtomicBool,
    /// Observer of matmul inputs, used for calibration.
    pub observation: Option<Observation<'a>>,
}

impl CpuPass<'_> {
    /// Runs every step with up to `threads` threads, and returns where the outputs are. After an error the KV cache has
    /// tokens with invalid keys and values.
    fn run(&self, pool: &mut ThreadPool, threads: usize) -> Result<BufferView> {
        let output = match self.dealt(pool.size().min(threads)) {
            Some((apart, parts)) => {
                pool.run(threads, &|worker| self.share_apart(worker, apart, &parts))?;
                apart.output()
            }
            None => {
                pool.run(threads, &|worker| self.steps(&PrefetchingWorker::new(worker)))?;
                self.plan.output
            }
        };
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::canceled(""));
        }
        Ok(output)
    }

    /// Runs a worker's share of all steps, until the end or cancellation.
    fn steps(&self, worker: &PrefetchingWorker<'_>) {
        for (number, step) in self.plan.steps.iter().enumerate() {
            worker.begin(number);
            if !self.step(step, worker) {
                return;
            }
        }
    }

    /// Returns whether the pass was canceled. This is sticky, even if the caller resets its flag: chunks may have been
    /// skipped.
    fn is_stopped(&self) -> bool {
        if self.cancel.load(Ordering::Relaxed) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    /// Runs a phase in parallel. On cancellation the remaining chunks are skipped; false if the pass ends.
    fn share(&self, worker: &PrefetchingWorker<'_>, pieces: usize, work: impl Fn(usize)) -> bool {
        let unless_stopped = |piece| {
            if !self.is_stopped() {
                work(piece);
            }
        };
        worker.share(pieces, || self.is_stopped(), unless_stopped, || self.ask_ahead(worker))
    }

    fn row_count(&self, rows: RowKind) -> usize {
        self.batch.counts().of(rows)
    }

    /// Runs a worker's share of a step; false if the pass ends.
    fn step(&self, step: &PlanStep, worker: &PrefetchingWorker<'_>) -> bool {
        match step {
            PlanStep::Rows { rows, ops } => {
                let count = self.row_count(*rows);
                self.share(worker, count.div_ceil(ROW_BLOCK), |block| {
                    for row in block * ROW_BLOCK..count.min((block + 1) * ROW_BLOCK) {
                        for op in ops {
                            // SAFETY: every row belongs to one worker, and a step's operations write only their own
                            // row and read others only from views that an earlier, finished step wrote.
                            unsafe { self.row_op(op, row) }
                        }
                    }
                })
            }
            PlanStep::Linear { rows, input, kind, parts, after } => {
                if let Some(observation) = self.observation {
                    let count = self.row_count(*rows);
                    let show = |_| self.show(observation, parts, count, (*input, *kind));
                    if !self.share(worker, 1, show) {
                        return false;
                    }
                }
                let input = (*input, *kind);
                self.products(worker, self.row_count(*rows), input, parts, *after)
            }
            PlanStep::Arrange { routing, routed, to } => self.share(worker, 1, |_| {
                // SAFETY: rows were routed in an earlier step, and one worker writes the slots.
                unsafe {
                    let chosen = |row: usize| self.arena.row(*routed, row);
                    let words =
                        &mut self.arena.words_mut(*to, 0)[..slot_words(routing, self.batch.rows.len())];
                    moe_routing::assign_slots(routing, self.batch, chosen, words);
                }
            }),
            PlanStep::ExpertLinear { routing, slots, input, kind, parts } => {
                self.expert_products(worker, routing, *slots, (*input, *kind), parts)
            }
            PlanStep::LoraLinear { rows, input, parts, residual } => {
                self.lora_products(worker, *rows, *input, parts, *residual)
            }
            PlanStep::StoreKv { attention, keys, values } => match attention.projection {
                Some(projection) => self.append_mixed(worker, attention, projection, [*keys, *values]),
                None => self.append(worker, attention, *keys, *values),
            },
            PlanStep::CausalConv1d { state, taps, weight, from, to } => {
                self.convolve(worker, (*state, *taps), self.weights.vector(Some(*weight)), *from, *to)
            }
            PlanStep::LinearAttention { attention, inputs, to } => self.recur(worker, attention, inputs, *to),
            PlanStep::Attention { attention, queries, to } => self.attend(worker, attention, *queries, *to),
        }
    }

    /// # Safety
    /// No other thread may access row `row` of the view that the operation writes, nor write a row that it reads: row
    /// `row` of its inputs, or for `Im2col`, `Dispatch`, `Combine` and `SelectOutputs` any row of them.
    unsafe fn row_op(&self, op: &RowOp, row: usize) {
        let (arena, kernels) = (self.arena, self.kernels);
        // SAFETY: no other thread accesses the row that `op` writes, and none writes those that it reads (see
        // `# Safety`); the planner gives an operation's views disjoint memory.
        unsafe {
            match *op {
                RowOp::SinusoidalPositions { rope: index, offset, to } => {
                    let table = &self.plan.ropes[index];
                    let position = (self.batch.rows[row].position + offset) as u32;
                    let out = arena.row_mut(to, row);
                    rope::cos_sin(&table.frequencies, table.magnitude, position, out);
                    out.rotate_left(to.columns / 2);
                }
                RowOp::InputFeatures { to } => {
                    let frame = &self.batch.features[row * to.columns..][..to.columns];
                    arena.row_mut(to, row).copy_from_slice(frame);
                }
                RowOp::ExternalInput { to } => {
                    let external_input = &self.batch.external_input[row * to.columns..][..to.columns];
                    arena.row_mut(to, row).copy_from_slice(external_input);
                }
                RowOp::Im2col { ref offsets, stride, rows: [kind, ours], from, to } => {
                    let out = arena.row_mut(to, row).chunks_mut(from.columns);
                    for (offset, out) in offsets.iter().zip(out) {
                        match self.batch.neighbor(kind, ours, row, *offset, stride) {
                            Some(other) => out.copy_from_slice(arena.row(from, other)),
                            None => out.fill(0.0),
                        }
                    }
                }
                RowOp::Route { routing, from, to } => {
                    moe_routing::route(&routing, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Dispatch { routing, slots, from, to } => match self.slots(&routing, slots).row(row) {
                    Some(other) => arena.row_mut(to, row).copy_from_slice(arena.row(from, other)),
                    None => arena.row_mut(to, row).fill(0.0),
                },
                RowOp::Combine { routing, slots, routed, from, to } => {
                    let weights = arena.row(routed, row);
                    let given = |slot| arena.row(from, slot);
                    self.slots(&routing, slots).combine(row, weights, given, arena.row_mut(to, row));
                }
                RowOp::RopeCosSin { rope: index, to } => {
                    let (table, from) = (&self.plan.ropes[index], self.batch.rows[row]);
                    from.rope_frequencies(table, arena.row_mut(to, row));
                }
                RowOp::Embed { table, to } => {
                    self.table_row(table, self.batch.rows[row].token as usize, arena.row_mut(to, row));
                }
                RowOp::EmbedSegment { table, to } => {
                    self.table_row(table, self.batch.rows[row].token_type as usize, arena.row_mut(to, row));
                }
                RowOp::EmbedPosition { table, offset, to } => {
                    self.table_row(table, self.batch.rows[row].position + offset, arena.row_mut(to, row));
                }
                RowOp::SelectOutputs { from, to } => {
                    arena.row_mut(to, row).copy_from_slice(arena.row(from, self.batch.output_rows[row]));
                }
                RowOp::Norm { kind, weight, bias, epsilon, from, to } => {
                    let arguments = norm::NormArguments {
                        centered: kind == NormKind::Layer,
                        weight: self.weights.vector(Some(weight)),
                        bias: self.weights.vector(bias),
                        epsilon,
                    };
                    kernels.norm()(&arguments, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Rope { cos_sin, head_size, from, to } => {
                    kernels.rope()(
                        arena.row(cos_sin, row),
                        head_size,
                        arena.row(from, row),
                        arena.row_mut(to, row),
                    );
                }
                RowOp::Activate { function, from, to } => {
                    kernels.activate()(function, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Gate { function, gate, up, to } => {
                    let (gate, up) = (arena.row(gate, row), arena.row(up, row));
                    kernels.gate()(function, gate, up, arena.row_mut(to, row));
                }
                RowOp::ClampedGate { limits, gate, up, to } => {
                    let (gate, up) = (arena.row(gate, row), arena.row(up, row));
                    kernels.limited_gate()(limits, gate, up, arena.row_mut(to, row));
                }
                RowOp::RepeatColumns { times, from, to } => {
                    states::repeat(times, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::L2Normalize { group, epsilon, factor, from, to } => {
                    states::unit(group, epsilon, factor, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::DecayGate { log, bias, from, to } => {
                    let (log, bias) = (self.weights.vector(Some(log)), self.weights.vector(Some(bias)));
                    states::decay(log, bias, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Add { a, b, to } => {
                    kernels.add()(arena.row(a, row), arena.row(b, row), arena.row_mut(to, row));
                }
                RowOp::Affine { weight, bias, from, to } => {
                    let (weight, bias) = (self.weights.vector(Some(weight)), self.weights.vector(Some(bias)));
                    kernels.affine()(arena.row(from, row), weight, bias, arena.row_mut(to, row));
                }
                RowOp::LoraSum { ref lora, rows, product, delta, to } => {
                    let slot = self.batch.adapter(rows, row);
                    let (product, delta) = (arena.row(product, row), arena.row_mut(delta, row));
                    self.lora_sum(lora, slot, product, delta, arena.row_mut(to, row));
                }
                RowOp::Elementwise { function, from, to } => {
                    kernels.map()(function, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Quantize { from, to } => {
                    kernels.quantize()(arena.row(from, row), arena.words_mut(to, row));
                }
                RowOp::QuantizeRotated { from, to } => {
                    kernels.quantize_rotated()(arena.row(from, row), arena.words_mut(to, row));
                }
            }
        }
    }

    /// Returns the MoE slots of the batch.
    ///
    /// # Safety
    /// `view` must be that of the slots of `routing`, which an earlier step must have written.
    unsafe fn slots(&self, routing: &Routing, view: BufferView) -> Slots<'_> {
        let words = slot_words(routing, self.batch.rows.len());
        // SAFETY: the slots were written in an earlier step, in one row of `words` words (see `# Safety`).
        Slots::new(routing, unsafe {
            self.arena.word_rows(BufferView { stride: words, columns: words, ..view }, 1)
        })
    }

    /// Dequantizes a row of a packed table.
    fn table_row(&self, table: usize, row: usize, out: &mut [f32]) {
        let Some(tensor) = self.weights.matrix(table) else { return };
        let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        let Some(panel) = tensor.data.get(row / ROWS * bytes..(row / ROWS + 1) * bytes) else {
            // A padding row may be beyond the last position.
            return out.fill(0.0);
        };
        debug_assert_eq!(out.len(), tensor.columns, "a table of another width");
        self.kernels.lookup()(tensor.panel, panel, row % ROWS, out);
    }

    /// Appends to the KV cache without false sharing: each worker stores all rows of its heads or, if there are many
    /// rows, all heads of whole blocks of positions, so that rows are read sequentially.
    fn append(
        &self,
        worker: &PrefetchingWorker<'_>,
        attention: &Attention,
        keys: BufferView,
        values: BufferView,
    ) -> bool {
        let rows = &self.batch.rows;
        let begins = |row: usize| row == 0 || rows[row - 1].sequence != rows[row].sequence;
        let on_edge = |row: usize| rows[row].position.is_multiple_of(BLOCK);
        // A global token is stored a second time, in a block that it may share with others.
        let by_blocks = rows.len() >= PANEL_ROWS
            && !matches!(attention.attention_mask, AttentionMask::LongformerLocal(_))
            && (0..rows.len()).all(|row| !begins(row) || on_edge(row));
        if !by_blocks {
            return self.share(worker, attention.kv_heads, |head| {
                // SAFETY: keys and values were written in an earlier step; only this worker accesses the head, and a
                // block that is written belongs to one sequence.
                unsafe { self.store(attention, keys, values, 0..rows.len(), head..head + 1) }
            });
        }
        // A chunk of work has the blocks that begin within its rows.
        self.share(worker, rows.len().div_ceil(PANEL_ROWS), |piece| {
            let edge =
                |row: usize| (row..rows.len()).find(|&row| begins(row) || on_edge(row)).unwrap_or(rows.len());
            let (start, end) = (piece * PANEL_ROWS, rows.len().min((piece + 1) * PANEL_ROWS));
            // SAFETY: as above, except that this worker owns the rows' blocks instead of a head.
            unsafe { self.store(attention, keys, values, edge(start)..edge(end), 0..attention.kv_heads) }
        })
    }

    /// Stores some heads of some rows, by whole panels where rows fill one.
    ///
    /// # Safety
    /// No thread may write the keys and values, and no other thread may access these heads of the cache blocks that the
    /// rows are stored in.
    unsafe fn store(
        &self,
        attention: &Attention,
        keys: BufferView,
        values: BufferView,
        mut rows: Range<usize>,
        heads: Range<usize>,
    ) {
        let size = attention.head_size;
        while let Some(&place) = rows.clone().next().and_then(|row| self.batch.rows.get(row)) {
            let first = rows.start;
            let count = self.panel_from(first, rows.end);
            rows.start += count;
            let Some(layer) = self.cache.layer(attention, place.sequence) else { continue };
            let second = marked_place(attention, place, self.cache.table);
            for head in heads.clone() {
                let pair = |row: usize| {
                    let columns = head * size..(head + 1) * size;
                    // SAFETY: no thread writes rows of `keys` and `values` during the call (see `# Safety`).
                    unsafe {
                        (&self.arena.row(keys, row)[columns.clone()], &self.arena.row(values, row)[columns])
                    }
                };
                let mut pairs = [pair(first); PANEL];
                for (row, place) in (first + 1..first + count).zip(&mut pairs[1..]) {
                    *place = pair(row);
                }
                // SAFETY: no other thread accesses this head of the blocks that hold these positions (see `# Safety`).
                unsafe {
                    for position in [Some(place.position), second].into_iter().flatten() {
                        layer.head(head).store(position, &pairs[..count]);
                    }
                }
            }
        }
    }

    /// Returns how many rows from `row` on, before `end`, are stored together: a panel of consecutive positions, or 1.
    fn panel_from(&self, row: usize, end: usize) -> usize {
        let first = self.batch.rows[row];
        let follows = |(row, i): (&TokenRow, usize)| {
            (row.sequence, row.position, row.global_index) == (first.sequence, first.position + i, None)
        };
        let panel = self.batch.rows[..end].get(row..row + PANEL);
        let fills = first.position.is_multiple_of(PANEL)
            && panel.is_some_and(|panel| panel.iter().zip(0..).all(follows));
        if fills { PANEL } else { 1 }
    }
}
