//! Attention and recurrent states: what reads and writes the cache of a sequence.

use super::pass::{ReferenceCall, ReferenceOperation, ReferencePass, Table};
use crate::marked_place;
use crate::state::{self, LinearAttentionHead};
use siskin_graph::op::{Attention, AttentionMask};
use siskin_graph::op::{CausalConv1d, LinearAttention, LinformerProjection, StoreCrossKv};
use siskin_kernels::ops::{attention, recurrence};

impl ReferenceOperation for Attention {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let pass = call.pass;
        if self.attention_mask != AttentionMask::CrossAttention {
            pass.append(self, call.input(1), call.input(2));
        }
        call.each(|row, out| {
            if self.attention_mask == AttentionMask::LongformerGlobal
                && pass.batch.rows[row].global_index.is_none()
            {
                out.copy_from_slice(&call.input(3)[row]);
            } else {
                pass.attend(self, row, &call.input(0)[row], out);
            }
        })
    }
}

impl ReferenceOperation for StoreCrossKv {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.pass.append(&self.attention, call.input(0), call.input(1));
        Table::new()
    }
}

impl ReferenceOperation for CausalConv1d {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        call.pass.convolve(self, call.input(0))
    }
}

impl ReferenceOperation for LinearAttention {
    fn compute(&self, call: &ReferenceCall<'_>) -> Table {
        let inputs: Vec<&Table> = (0..call.node.inputs.len()).map(|index| call.input(index)).collect();
        call.pass.recur(self, &inputs, call.columns())
    }
}

impl ReferencePass<'_> {
    /// Returns the rows of a sequence, in order.
    fn rows_of(&self, sequence: usize) -> impl Iterator<Item = usize> + Clone {
        (0..self.batch.rows.len()).filter(move |&row| self.batch.rows[row].sequence == sequence)
    }

    fn convolve(&self, convolution: &CausalConv1d, x: &Table) -> Table {
        let taps = convolution.taps;
        let weights = self.weights.vector(Some(convolution.weight));
        let mut out = x.clone();
        let columns = x.first().map_or(0, Vec::len);
        for &sequence in &self.batch.sequences {
            let Some(state) = self.cache.state(convolution.state, sequence) else { continue };
            for first in (0..columns).step_by(state::COLUMNS) {
                let part = first..columns.min(first + state::COLUMNS);
                let weights = &weights[part.start * taps..part.end * taps];
                // SAFETY: the reference backend is single-threaded.
                let history = unsafe { state.begin(first * (taps - 1), part.len() * (taps - 1)) };
                for row in self.rows_of(sequence) {
                    let (x, out) = (&x[row][part.clone()], &mut out[row][part.clone()]);
                    state::convolve(taps, weights, history, x, out);
                }
            }
        }
        out
    }

    fn recur(&self, attention: &LinearAttention, inputs: &[&Table], columns: usize) -> Table {
        let size = attention.value_size;
        let mut table = vec![vec![0.0; columns]; self.batch.rows.len()];
        let mut scratch = vec![0.0; state::scratch_size(attention)];
        for &sequence in &self.batch.sequences {
            let Some(state) = self.cache.state(attention.state, sequence) else { continue };
            for head in 0..attention.heads {
                let words = attention.head_words();
                // SAFETY: the reference backend is single-threaded.
                let numbers = unsafe { state.begin(head * words, words) };
                let input = |number: usize, row: usize| inputs[number][row].as_slice();
                let out = |row: usize, finish: &mut dyn FnMut(&mut [f32])| {
                    finish(&mut table[row][head * size..(head + 1) * size]);
                };
                let mut head = LinearAttentionHead::new(attention, head, recurrence::reference, &mut scratch);
                head.run(self.rows_of(sequence), input, out, numbers);
            }
        }
        table
    }

    fn append_mixed(
        &self,
        attention: &Attention,
        projection: LinformerProjection,
        keys: &Table,
        values: &Table,
    ) {
        let size = attention.head_size;
        let weights = [projection.keys, projection.values].map(|id| self.weights.vector(Some(id)));
        for &sequence in &self.batch.sequences {
            let Some(layer) = self.cache.layer(attention, sequence) else { continue };
            for (head, sum) in
                (0..attention.kv_heads).flat_map(|h| (0..projection.count).map(move |s| (h, s)))
            {
                let part = sum * projection.positions..(sum + 1) * projection.positions;
                let mixed = |table: &Table, weights: &[f32]| {
                    let rows = self.rows_of(sequence).map(|row| &table[row][head * size..(head + 1) * size]);
                    let mut out = vec![0.0; size];
                    state::mix(&weights[part.clone()], rows, &mut out);
                    out
                };
                let (key, value) = (mixed(keys, weights[0]), mixed(values, weights[1]));
                // SAFETY: the reference backend is single-threaded.
                unsafe { layer.head(head).store(sum, &[(&key, &value)]) }
            }
        }
    }

    fn append(&self, attention: &Attention, keys: &Table, values: &Table) {
        if let Some(projection) = attention.projection {
            return self.append_mixed(attention, projection, keys, values);
        }
        for (index, row) in self.batch.rows.iter().enumerate() {
            let Some(layer) = self.cache.layer(attention, row.sequence) else { continue };
            for head in 0..attention.kv_heads {
                let columns = head * attention.head_size..(head + 1) * attention.head_size;
                let (key, value) = (&keys[index][columns.clone()], &values[index][columns]);
                let second = marked_place(attention, *row, self.cache.table);
                for place in [Some(row.position), second].into_iter().flatten() {
                    // SAFETY: the reference backend is single-threaded.
                    unsafe { layer.head(head).store(place, &[(key, value)]) }
                }
            }
        }
    }

    fn attend(&self, attention: &Attention, row: usize, queries: &[f32], out: &mut [f32]) {
        let size = attention.head_size;
        let place = self.batch.rows[row];
        let Some(layer) = self.cache.layer(attention, place.sequence) else { return };
        let arguments = attention::AttentionArguments {
            head_size: size,
            scale: attention.scale,
            softcap: attention.softcap.unwrap_or(0.0),
            cache: layer.cached(),
        };
        let (mut scores, mut columns) = (vec![0.0; attention::CHUNK], vec![0.0; 2 * size]);
        let seen_from = crate::place(place, self.cache.table);
        let (first, last) = attention.seen(seen_from);
        for (head, (values, out)) in queries.chunks(size).zip(out.chunks_mut(size)).enumerate() {
            let query = attention::Query {
                values,
                position: place.position,
                first,
                last,
                slope: attention.alibi.get(head).copied().unwrap_or(0.0),
                bias: self.batch.bias(attention, self.distances, head, row, last, self.cache.table),
                also: attention.also_seen(seen_from),
                sink: self.weights.vector(attention.sinks).get(head).copied(),
            };
            let head = layer.head(head * attention.kv_heads / attention.heads);
            attention::reference(&arguments, &query, &head, &mut scores, &mut columns, out);
        }
    }
}
