//! Matmuls of rows with weight matrices, and their epilogues.

use std::ops::Range;

use siskin_kernels::ops::matmul::{Input, MatmulOperands, Output};
use siskin_kernels::panel::{InputKind, ROWS};

use super::CpuPass;
use super::observation::Observation;
use super::prefetch::PrefetchingWorker;
use crate::plan::{BufferView, Epilogue, MatmulPart, Plan, PlanStep};
use siskin_graph::ActivationFunction;
use siskin_graph::Routing;

/// Rows per matmul tile: their int8 activations fit in L2.
pub(super) const PRODUCT_ROWS: usize = 128;
/// Panels per tile of a matmul with an activation epilogue: with [`PRODUCT_ROWS`] rows of two matrices the outputs fit
/// in L2.
const NEAR_PANELS: usize = 8;
/// The maximum number of panels per tile of other matmuls.
const FAR_PANELS: usize = 64;

/// Rows as a matmul input of this kind.
type Rows = (BufferView, InputKind);

/// Returns the scratch words that a worker needs for matmul outputs before their epilogue.
pub(crate) fn scratch_size(plan: &Plan) -> usize {
    let words = |step: &PlanStep| {
        let PlanStep::Linear { rows, parts, after: Epilogue::Activate(_) | Epilogue::Gate(_), .. } = step
        else {
            return 0;
        };
        let panels = parts.iter().map(panels_of).max().unwrap_or(0).min(NEAR_PANELS);
        plan.row_count(*rows).min(PRODUCT_ROWS) * parts.len() * panels * ROWS
    };
    plan.steps.iter().map(words).max().unwrap_or(0)
}

impl CpuPass<'_> {
    pub(super) fn products(
        &self,
        worker: &PrefetchingWorker<'_>,
        rows: usize,
        input: Rows,
        parts: &[MatmulPart],
        after: Epilogue,
    ) -> bool {
        match after {
            Epilogue::Nothing => self.plain_products(worker, rows, input, parts, None),
            Epilogue::Plus(residual) => self.plain_products(worker, rows, input, parts, Some(residual)),
            Epilogue::Activate(kind) | Epilogue::Gate(kind) => {
                self.activated_products(worker, rows, input, parts, kind)
            }
        }
    }

    fn plain_products(
        &self,
        worker: &PrefetchingWorker<'_>,
        rows: usize,
        input: Rows,
        parts: &[MatmulPart],
        residual: Option<BufferView>,
    ) -> bool {
        let (run, runs) = runs_of(parts, rows, worker, false);
        self.share(worker, runs * rows.div_ceil(PRODUCT_ROWS), |piece| {
            if let Some((part, panels)) = plain_piece(parts, run, piece % runs) {
                self.product(part, rows, input, residual, block_of(piece / runs, rows), panels);
            }
        })
    }

    /// Returns the weights of the worker's own tiles of a matmul of few rows, limited to the matrix in which they
    /// begin; one slice for each of two gated matrices.
    pub(super) fn first_weights(
        &self,
        worker: &PrefetchingWorker<'_>,
        rows: usize,
        parts: &[MatmulPart],
        after: Epilogue,
    ) -> [&[u8]; 2] {
        let near = matches!(after, Epilogue::Activate(_) | Epilogue::Gate(_));
        let (run, runs) = runs_of(parts, rows, worker, near);
        let own = worker.own_pieces(runs);
        let mut begins: [&[u8]; 2] = [&[]; 2];
        if near {
            for (begin, part) in begins.iter_mut().zip(parts) {
                *begin = self.weights_of(part, part.first / ROWS + own.start * run, own.len() * run);
            }
        } else if let Some((part, panels)) = plain_piece(parts, run, own.start) {
            begins[0] = self.weights_of(part, panels.start, own.len() * run);
        }
        begins
    }

    /// Returns the bytes of up to `count` panels of a matrix.
    fn weights_of(&self, part: &MatmulPart, first: usize, count: usize) -> &[u8] {
        let Some(tensor) = self.weights.matrix(part.weight) else { return &[] };
        let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        let from = tensor.data.get(first * bytes..).unwrap_or_default();
        &from[..from.len().min(count * bytes)]
    }

    /// Matmul with an activation epilogue, applied while the outputs are in cache: of one matrix, or of two where the
    /// first gates the second.
    fn activated_products(
        &self,
        worker: &PrefetchingWorker<'_>,
        rows: usize,
        input: Rows,
        parts: &[MatmulPart],
        kind: ActivationFunction,
    ) -> bool {
        let Some(first) = parts.first() else { return true };
        let (run, runs) = runs_of(parts, rows, worker, true);
        self.share(worker, runs * rows.div_ceil(PRODUCT_ROWS), |piece| {
            let (rows, at) = (block_of(piece / runs, rows), piece % runs * run);
            let columns = at * ROWS..first.to.columns.min((at + run) * ROWS);
            let width = columns.len().next_multiple_of(ROWS);
            let stride = width * parts.len();
            // SAFETY: only this worker accesses its scratch.
            let scratch = unsafe { self.arena.row_mut(self.workspace.scratch(), worker.index) };
            let near = &mut scratch[..rows.len() * stride];
            for (part, number) in parts.iter().zip(0..) {
                self.product_apart(
                    part,
                    input,
                    rows.clone(),
                    columns.clone(),
                    &mut near[number * width..],
                    stride,
                );
            }
            let to =
                BufferView { offset: first.to.offset + columns.start, columns: columns.len(), ..first.to };
            for (row, near) in rows.zip(near.chunks_exact(stride)) {
                // SAFETY: each tile has its own rows and columns of the result.
                let out = unsafe { self.arena.row_mut(to, row) };
                let (gate, up) = near.split_at(width);
                match parts.len() {
                    1 => self.kernels.activate()(kind, &gate[..out.len()], out),
                    _ => self.kernels.gate()(kind, &gate[..out.len()], &up[..out.len()], out),
                }
            }
        })
    }

    /// Multiplies each expert's matrix by its slots; matrices of unselected experts are not read.
    pub(super) fn expert_products(
        &self,
        worker: &PrefetchingWorker<'_>,
        routing: &Routing,
        slots: BufferView,
        input: Rows,
        parts: &[(usize, MatmulPart)],
    ) -> bool {
        // SAFETY: the slots were written in an earlier step.
        let slots = unsafe { self.slots(routing, slots) };
        let panels = parts.first().map_or(0, |(_, part)| panels_of(part));
        let run = (panels / (worker.worker_count * 2)).next_multiple_of(4).clamp(4, 64);
        let runs = panels.div_ceil(run);
        let rows = self.batch.rows.len() * routing.top_k;
        self.share(worker, parts.len() * runs, |piece| {
            let (expert, part) = &parts[piece / runs];
            let panels = piece % runs * run..panels.min((piece % runs + 1) * run);
            let of = slots.of(*expert);
            for start in of.clone().step_by(PRODUCT_ROWS) {
                let rows_here = start..of.end.min(start + PRODUCT_ROWS);
                self.product(part, rows, input, None, rows_here, panels.clone());
            }
        })
    }

    /// # Safety
    /// No thread may write the first `rows` rows of the view while the input is alive.
    unsafe fn input(&self, (view, kind): Rows, rows: usize) -> Input<'_> {
        // SAFETY: no thread writes the rows of `view` while the input is alive (see `# Safety`).
        unsafe {
            match kind {
                InputKind::Float => Input::Float { rows: self.arena.rows(view, rows), stride: view.stride },
                InputKind::Quantized => Input::Quantized(self.arena.word_rows(view, rows)),
                InputKind::Rotated => Input::Rotated(self.arena.word_rows(view, rows)),
            }
        }
    }

    pub(super) fn show(&self, observation: Observation<'_>, parts: &[MatmulPart], rows: usize, input: Rows) {
        let columns =
            parts.iter().find_map(|part| self.weights.matrix(part.weight)).map(|tensor| tensor.columns);
        // SAFETY: the input was written in an earlier step, and this phase writes nothing.
        let input = unsafe { self.input(input, rows) };
        observation.show(parts, columns.unwrap_or(0), rows, input);
    }

    pub(super) fn product(
        &self,
        part: &MatmulPart,
        rows: usize,
        input: Rows,
        residual: Option<BufferView>,
        rows_here: Range<usize>,
        panels: Range<usize>,
    ) {
        let Some(tensor) = self.weights.matrix(part.weight) else { return };
        // SAFETY: the input was written in an earlier step, and this step writes elsewhere.
        let input = unsafe { self.input(input, rows) };
        let product = MatmulOperands {
            panel: tensor.panel,
            weights: &tensor.data,
            outputs: tensor.rows,
            columns: tensor.columns,
            bias: self.weights.vector(part.bias),
            input,
        };
        let to = part.to;
        // SAFETY: the view lies inside the arena, and each tile writes its own rows and panels.
        let out = unsafe { Output::new(self.arena.pointer(to.offset), rows, to.columns, to.stride) };
        let out = match residual {
            // SAFETY: the residual was written in an earlier step, has the matmul's columns, and stays alive.
            Some(view) => unsafe { out.plus(self.arena.pointer(view.offset), view.stride) },
            None => out,
        };
        self.kernels.matmul()(&product, rows_here, panels, out);
    }

    /// Multiplies some rows by some outputs of a matrix, starting at a panel, into the separate buffer `out`.
    fn product_apart(
        &self,
        part: &MatmulPart,
        (input, kind): Rows,
        rows: Range<usize>,
        outputs: Range<usize>,
        out: &mut [f32],
        stride: usize,
    ) {
        let Some(tensor) = self.weights.matrix(part.weight) else { return };
        let input = BufferView { offset: input.offset + rows.start * input.stride, ..input };
        let bytes = tensor.panel.panel_bytes(tensor.columns).unwrap_or(0);
        let outputs = part.first + outputs.start..part.first + outputs.end;
        let bias = self.weights.vector(part.bias);
        let product = MatmulOperands {
            panel: tensor.panel,
            weights: &tensor.data[outputs.start / ROWS * bytes..],
            outputs: outputs.len(),
            columns: tensor.columns,
            bias: bias.get(outputs.clone()).unwrap_or_default(),
            // SAFETY: the input was written in an earlier step, and this step writes elsewhere.
            input: unsafe { self.input((input, kind), rows.len()) },
        };
        assert!((rows.len() - 1) * stride + outputs.len() <= out.len(), "a table too short for the product");
        // SAFETY: the output lies inside `out`.
        let to = unsafe { Output::new(out.as_mut_ptr(), rows.len(), outputs.len(), stride) };
        self.kernels.matmul()(&product, 0..rows.len(), 0..outputs.len().div_ceil(ROWS), to);
    }
}

pub(super) fn panels_of(part: &MatmulPart) -> usize {
    part.to.columns.div_ceil(ROWS)
}

/// Returns the rows of a block.
fn block_of(block: usize, rows: usize) -> Range<usize> {
    block * PRODUCT_ROWS..rows.min((block + 1) * PRODUCT_ROWS)
}

/// Returns the matrix and the panels of a tile without activation epilogue.
fn plain_piece(parts: &[MatmulPart], run: usize, piece: usize) -> Option<(&MatmulPart, Range<usize>)> {
    let mut at = piece;
    for part in parts {
        let count = panels_of(part).div_ceil(run);
        if at < count {
            return Some((part, at * run..panels_of(part).min((at + 1) * run)));
        }
        at -= count;
    }
    None
}

/// Returns the panels per tile, and the tiles per block of rows. With an activation epilogue (`near`), a tile covers
/// all matrices at once.
fn runs_of(parts: &[MatmulPart], rows: usize, worker: &PrefetchingWorker<'_>, near: bool) -> (usize, usize) {
    if near {
        let panels = parts.first().map_or(0, panels_of);
        let run = run_of(panels, rows, worker, NEAR_PANELS);
        return (run, panels.div_ceil(run));
    }
    let run = run_of(parts.iter().map(panels_of).sum(), rows, worker, FAR_PANELS);
    (run, parts.iter().map(|part| panels_of(part).div_ceil(run)).sum())
}

/// Returns the panels per tile, of `total`: long enough to stream weights for few rows, enough tiles to balance the
/// load for many rows.
fn run_of(total: usize, rows: usize, worker: &PrefetchingWorker<'_>, max_run: usize) -> usize {
    (total * rows.div_ceil(PRODUCT_ROWS) / (worker.worker_count * 8)).next_multiple_of(4).clamp(4, max_run)
}
