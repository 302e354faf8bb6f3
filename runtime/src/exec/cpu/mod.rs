//! Runs a plan on a team of threads.

mod attention;

pub(crate) use attention::Workspace;

use std::sync::atomic::{AtomicBool, Ordering};

use siskin_kernels::ops::matmul::{Input, Output, Product};
use siskin_kernels::ops::norm;
use siskin_kernels::ops::{Kernels, rope};
use siskin_kernels::panel::{self, InputKind, ROWS};

use super::{Batch, Distances, activation, marked_place};
use crate::cache::Cache;
use crate::graph::{Attention, NormKind, Rows};
use crate::observe::Observation;
use crate::plan::{Arena, Plan, ProductPart, RowOp, Step, View, Weights};
use crate::team::{Team, Worker};
use crate::{Error, ErrorKind, Result};

/// Rows that a worker takes at once.
const ROW_BLOCK: usize = 8;
/// Rows of a product that a worker takes at once: their integers stay in the second cache.
const PRODUCT_ROWS: usize = 128;

/// What all workers of a forward pass read.
pub(crate) struct Forward<'a> {
    pub plan: &'a Plan,
    pub weights: &'a Weights,
    pub kernels: &'a Kernels,
    pub arena: &'a Arena,
    pub workspace: Workspace,
    pub cache: &'a Cache,
    pub batch: &'a Batch,
    pub distances: &'a Distances,
    /// Set by whoever wants the pass to end early.
    pub stop: &'a AtomicBool,
    /// Who is shown what goes into matrices.
    pub observation: Option<Observation<'a>>,
}

impl Forward<'_> {
    /// Runs every step. An error leaves the cache with tokens whose keys are not valid.
    pub(crate) fn run(&self, team: &mut Team) -> Result<()> {
        let stopped = AtomicBool::new(false);
        team.run(&|worker| {
            for step in &self.plan.steps {
                if !self.step(step, worker) {
                    stopped.store(true, Ordering::Relaxed);
                    return;
                }
            }
        })?;
        if stopped.into_inner() {
            return Err(Error::new(ErrorKind::Cancelled, "", "stopped by the caller"));
        }
        Ok(())
    }

    /// A phase of the pass, which ends early when the caller wants it.
    fn share(&self, worker: &Worker<'_>, pieces: usize, work: impl Fn(usize)) -> bool {
        worker.share(pieces, || self.stop.load(Ordering::Relaxed), work)
    }

    fn row_count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Batch => self.batch.rows.len(),
            Rows::Wanted => self.batch.wanted.len(),
            Rows::Frames => self.batch.frames.len(),
        }
    }

    /// A worker's part of a step; false when the pass is to end.
    fn step(&self, step: &Step, worker: &Worker<'_>) -> bool {
        match step {
            Step::Rows { rows, ops } => {
                let count = self.row_count(*rows);
                self.share(worker, count.div_ceil(ROW_BLOCK), |block| {
                    for row in block * ROW_BLOCK..count.min((block + 1) * ROW_BLOCK) {
                        for op in ops {
                            // SAFETY: every row is given to one worker, and a step's operations touch only
                            // their own row; a step begins when the one before is done.
                            unsafe { self.row_op(op, row) }
                        }
                    }
                })
            }
            Step::Products { rows, input, kind, parts, residual } => {
                if let Some(observation) = self.observation {
                    let count = self.row_count(*rows);
                    let show = |_| self.show(observation, parts, count, *input, *kind);
                    if !self.share(worker, 1, show) {
                        return false;
                    }
                }
                self.products(worker, self.row_count(*rows), *input, *kind, parts, *residual)
            }
            Step::Append { attention, keys, values } => self.append(worker, attention, *keys, *values),
            Step::Attend { attention, queries, to } => self.attend(worker, attention, *queries, *to),
        }
    }

    /// # Safety
    /// Nobody else may use row `row` of the operation's views.
    unsafe fn row_op(&self, op: &RowOp, row: usize) {
        let (arena, kernels) = (self.arena, self.kernels);
        // SAFETY: the caller's promise; the planner gives an operation's views places that do not overlap.
        unsafe {
            match *op {
                RowOp::EmbedSine { rope: index, offset, to } => {
                    let table = &self.plan.ropes[index];
                    let position = (self.batch.rows[row].position + offset) as u32;
                    let out = arena.row_mut(to, row);
                    rope::turns(&table.frequencies, table.magnitude, position, out);
                    out.rotate_left(to.columns / 2);
                }
                RowOp::Features { to } => {
                    let frame = &self.batch.features[row * to.columns..][..to.columns];
                    arena.row_mut(to, row).copy_from_slice(frame);
                }
                RowOp::Neighbours { ref offsets, stride, rows: [kind, ours], from, to } => {
                    let out = arena.row_mut(to, row).chunks_mut(from.columns);
                    for (offset, out) in offsets.iter().zip(out) {
                        match self.batch.neighbour(kind, ours, row, *offset, stride) {
                            Some(other) => out.copy_from_slice(arena.row(from, other)),
                            None => out.fill(0.0),
                        }
                    }
                }
                RowOp::Turns { rope: index, to } => {
                    let table = &self.plan.ropes[index];
                    let position = self.batch.rows[row].position as u32;
                    rope::turns(&table.frequencies, table.magnitude, position, arena.row_mut(to, row));
                }
                RowOp::Embed { table, to } => {
                    self.table_row(table, self.batch.rows[row].token as usize, arena.row_mut(to, row));
                }
                RowOp::EmbedSegment { table, to } => {
                    self.table_row(table, self.batch.rows[row].segment as usize, arena.row_mut(to, row));
                }
                RowOp::EmbedPosition { table, offset, to } => {
                    self.table_row(table, self.batch.rows[row].position + offset, arena.row_mut(to, row));
                }
                RowOp::Pick { from, to } => {
                    arena.row_mut(to, row).copy_from_slice(arena.row(from, self.batch.wanted[row]));
                }
                RowOp::Norm { kind, weight, bias, epsilon, from, to } => {
                    let arguments = norm::Arguments {
                        centred: kind == NormKind::Layer,
                        weight: self.weights.vector(Some(weight)),
                        bias: self.weights.vector(bias),
                        epsilon,
                    };
                    kernels.norm()(&arguments, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Rope { turns, head_size, from, to } => {
                    kernels.rope()(
                        arena.row(turns, row),
                        head_size,
                        arena.row(from, row),
                        arena.row_mut(to, row),
                    );
                }
                RowOp::Activate { kind, from, to } => {
                    kernels.activate()(activation(kind), arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Gate { kind, gate, up, to } => {
                    let (gate, up) = (arena.row(gate, row), arena.row(up, row));
                    kernels.gate()(activation(kind), gate, up, arena.row_mut(to, row));
                }
                RowOp::Add { a, b, to } => {
                    kernels.add()(arena.row(a, row), arena.row(b, row), arena.row_mut(to, row));
                }
                RowOp::Affine { weight, bias, from, to } => {
                    let (weight, bias) = (self.weights.vector(Some(weight)), self.weights.vector(Some(bias)));
                    kernels.affine()(arena.row(from, row), weight, bias, arena.row_mut(to, row));
                }
                RowOp::Map { map, from, to } => {
                    kernels.map()(map, arena.row(from, row), arena.row_mut(to, row));
                }
                RowOp::Quantise { from, to } => {
                    kernels.quantise()(arena.row(from, row), arena.words_mut(to, row));
                }
                RowOp::QuantiseRotated { from, to } => {
                    kernels.quantise_rotated()(arena.row(from, row), arena.words_mut(to, row));
                }
            }
        }
    }

    /// A row of a packed table.
    fn table_row(&self, table: usize, row: usize, out: &mut [f32]) {
        let Some(tensor) = self.weights.matrix(table) else { return };
        let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        if let Some(panel) = tensor.data.get(row / ROWS * bytes..(row / ROWS + 1) * bytes) {
            panel::row_values(tensor.panel, panel, row % ROWS, tensor.columns, out);
        }
    }

    fn products(
        &self,
        worker: &Worker<'_>,
        rows: usize,
        input: View,
        kind: InputKind,
        parts: &[ProductPart],
        residual: Option<View>,
    ) -> bool {
        let panels_of = |part: &ProductPart| part.to.columns.div_ceil(ROWS);
        let total: usize = parts.iter().map(panels_of).sum();
        let row_blocks = rows.div_ceil(PRODUCT_ROWS);
        let pieces = worker.team * 8;
        // Few rows: runs of panels long enough to stream; many rows: enough pieces to share.
        let run = (total * row_blocks / pieces).next_multiple_of(4).clamp(4, 64);
        let runs: usize = parts.iter().map(|part| panels_of(part).div_ceil(run)).sum();
        self.share(worker, runs * row_blocks, |piece| {
            let (block, mut at) = (piece / runs, piece % runs);
            for part in parts {
                let count = panels_of(part).div_ceil(run);
                if at >= count {
                    at -= count;
                    continue;
                }
                let panels = at * run..panels_of(part).min((at + 1) * run);
                let rows_here = block * PRODUCT_ROWS..rows.min((block + 1) * PRODUCT_ROWS);
                self.product(part, rows, input, kind, residual, rows_here, panels);
                break;
            }
        })
    }

    /// # Safety
    /// Nobody may write the rows of the view.
    unsafe fn input(&self, view: View, rows: usize, kind: InputKind) -> Input<'_> {
        // SAFETY: the caller's promise.
        unsafe {
            match kind {
                InputKind::Float => Input::Float { rows: self.arena.rows(view, rows), stride: view.stride },
                InputKind::Quantised => Input::Quantised(self.arena.word_rows(view, rows)),
                InputKind::Rotated => Input::Rotated(self.arena.word_rows(view, rows)),
            }
        }
    }

    fn show(
        &self,
        observation: Observation<'_>,
        parts: &[ProductPart],
        rows: usize,
        input: View,
        kind: InputKind,
    ) {
        let columns =
            parts.iter().find_map(|part| self.weights.matrix(part.weight)).map(|tensor| tensor.columns);
        // SAFETY: the input was written in an earlier step, and this phase writes nothing.
        let input = unsafe { self.input(input, rows, kind) };
        observation.show(parts, columns.unwrap_or(0), rows, input);
    }

    fn product(
        &self,
        part: &ProductPart,
        rows: usize,
        input: View,
        kind: InputKind,
        residual: Option<View>,
        rows_here: std::ops::Range<usize>,
        panels: std::ops::Range<usize>,
    ) {
        let Some(tensor) = self.weights.matrix(part.weight) else { return };
        // SAFETY: the input was written in an earlier step, and this step writes other places.
        let input = unsafe { self.input(input, rows, kind) };
        let product = Product {
            panel: tensor.panel,
            weights: &tensor.data,
            outputs: tensor.rows,
            columns: tensor.columns,
            bias: self.weights.vector(part.bias),
            input,
        };
        let to = part.to;
        // SAFETY: the view lies inside the arena, and each piece of work writes its own rows and panels.
        let out = unsafe { Output::new(self.arena.pointer(to.offset), rows, to.columns, to.stride) };
        let out = match residual {
            // SAFETY: the residual was written in an earlier step, has the product's columns, and stays.
            Some(view) => unsafe { out.plus(self.arena.pointer(view.offset), view.stride) },
            None => out,
        };
        self.kernels.matmul()(&product, rows_here, panels, out);
    }

    /// Each worker stores all rows of its heads, so that no two write the same lines.
    fn append(&self, worker: &Worker<'_>, attention: &Attention, keys: View, values: View) -> bool {
        let size = attention.head_size;
        self.share(worker, attention.kv_heads, |head| {
            for (index, row) in self.batch.rows.iter().enumerate() {
                let Some(layer) = self.cache.layer(attention, row.sequence) else { continue };
                let columns = head * size..(head + 1) * size;
                let second = marked_place(attention, *row, self.cache);
                // SAFETY: keys and values were written in an earlier step; the head is this worker's alone,
                // and a block that is written belongs to one sequence.
                unsafe {
                    let key = &self.arena.row(keys, index)[columns.clone()];
                    let value = &self.arena.row(values, index)[columns];
                    for place in [Some(row.position), second].into_iter().flatten() {
                        layer.head(head).store(place, key, value);
                    }
                }
            }
        })
    }
}
