//! Steps with recurrent states: a chunk of work is a part of one sequence's state.

use siskin_kernels::ops::attention::padded;

use super::super::state::{self, COLUMNS, LinearAttentionHead};
use super::CpuPass;
use super::prefetch::PrefetchingWorker;
use crate::plan::BufferView;
use siskin_graph::{Attention, LinearAttention, LinformerProjection};

impl CpuPass<'_> {
    /// Returns the rows of a sequence, in order.
    fn rows_of(&self, sequence: usize) -> impl Iterator<Item = usize> + Clone {
        let rows = &self.batch.rows;
        (0..rows.len()).filter(move |&row| rows[row].sequence == sequence)
    }

    pub(super) fn convolve(
        &self,
        worker: &PrefetchingWorker<'_>,
        (number, taps): (usize, usize),
        weights: &[f32],
        from: BufferView,
        to: BufferView,
    ) -> bool {
        let parts = from.columns.div_ceil(COLUMNS);
        self.share(worker, self.batch.sequences.len() * parts, |piece| {
            let (sequence, first) = (self.batch.sequences[piece / parts], piece % parts * COLUMNS);
            let Some(state) = self.cache.state(number, sequence) else { return };
            let columns = COLUMNS.min(from.columns - first);
            let part = |view: BufferView| BufferView { offset: view.offset + first, columns, ..view };
            let weights = &weights[first * taps..(first + columns) * taps];
            // SAFETY: only this chunk accesses these columns of the state and of the results; the input was written in
            // an earlier step.
            unsafe {
                let history = state.begin(first * (taps - 1), columns * (taps - 1));
                for row in self.rows_of(sequence) {
                    let (x, out) = (self.arena.row(part(from), row), self.arena.row_mut(part(to), row));
                    state::convolve(taps, weights, history, x, out);
                }
            }
        })
    }

    pub(super) fn recur(
        &self,
        worker: &PrefetchingWorker<'_>,
        attention: &LinearAttention,
        inputs: &[BufferView],
        to: BufferView,
    ) -> bool {
        let (heads, size) = (attention.heads, attention.value_size);
        self.share(worker, self.batch.sequences.len() * heads, |piece| {
            let (sequence, head) = (self.batch.sequences[piece / heads], piece % heads);
            let Some(state) = self.cache.state(attention.state, sequence) else { return };
            let result = BufferView { offset: to.offset + head * size, columns: size, ..to };
            // SAFETY: only this chunk accesses this head's part of the state, its columns of the results and the
            // worker's scratch; inputs were written in an earlier step.
            unsafe {
                let numbers = state.begin(head * attention.head_words(), attention.head_words());
                let scratch = self.arena.row_mut(self.workspace.scratch(), worker.index);
                let input = |number: usize, row: usize| self.arena.row(inputs[number], row);
                let out = |row: usize, finish: &mut dyn FnMut(&mut [f32])| {
                    finish(self.arena.row_mut(result, row));
                };
                let mut head = LinearAttentionHead::new(attention, head, self.kernels.recurrence(), scratch);
                head.run(self.rows_of(sequence), input, out, numbers);
            }
        })
    }

    /// Appends keys and values projected over the positions of each sequence (Linformer).
    pub(super) fn append_mixed(
        &self,
        worker: &PrefetchingWorker<'_>,
        attention: &Attention,
        projection: LinformerProjection,
        [keys, values]: [BufferView; 2],
    ) -> bool {
        let (heads, size) = (attention.kv_heads, attention.head_size);
        let weights = [projection.keys, projection.values].map(|id| self.weights.vector(Some(id)));
        self.share(worker, self.batch.sequences.len() * heads, |piece| {
            let (sequence, head) = (self.batch.sequences[piece / heads], piece % heads);
            let Some(layer) = self.cache.layer(attention, sequence) else { return };
            // SAFETY: only this chunk accesses the head of the sequence and the worker's scratch; keys and values were
            // written in an earlier step.
            unsafe {
                let scratch = self.arena.row_mut(self.workspace.scratch(), worker.index);
                let (key, rest) = scratch.split_at_mut(padded(size));
                for sum in 0..projection.count {
                    let part = sum * projection.positions..(sum + 1) * projection.positions;
                    let of = |view: BufferView| {
                        let view = BufferView { offset: view.offset + head * size, columns: size, ..view };
                        self.rows_of(sequence).map(move |row| self.arena.row(view, row))
                    };
                    state::mix(&weights[0][part.clone()], of(keys), &mut key[..size]);
                    state::mix(&weights[1][part], of(values), &mut rest[..size]);
                    layer.head(head).store(sum, &[(&key[..size], &rest[..size])]);
                }
            }
        })
    }
}
