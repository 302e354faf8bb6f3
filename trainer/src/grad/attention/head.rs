//! One KV head of one sequence, with the query heads that share it.

use std::ops::Range;

use siskin_graph::{Attention, AttentionMask, QueryPosition};

use crate::gemm::{MatrixOutput, MatrixView, multiply};
use crate::real::Real;

/// Queries of a tile.
const TILE: usize = 64;

/// The terms added to scores: ALiBi, relative position bias, BigBird weights.
pub(super) struct ScoreTerms<'a, T> {
    description: &'a Attention,
    bias: &'a [T],
    sinks: &'a [T],
    /// The bias bucket of each distance from `1 − max_distance` to `max_distance − 1`.
    buckets: Vec<usize>,
    max_distance: usize,
}

impl<'a, T: Real> ScoreTerms<'a, T> {
    /// Terms for positions below `max_distance`.
    pub(super) fn new(
        description: &'a Attention,
        weight: impl Fn(usize) -> &'a [T],
        max_distance: usize,
    ) -> Self {
        let last = max_distance as i64 - 1;
        let steps =
            description.bias.map_or(Vec::new(), |bias| (-last..=last).map(|d| bias.bucket(d)).collect());
        Self {
            description,
            bias: description.bias.map_or(&[], |bias| weight(bias.table)),
            sinks: description.sinks.map_or(&[], weight),
            buckets: steps,
            max_distance,
        }
    }

    /// Returns the index in the bias table for a query and a key.
    fn bias_index(&self, head: usize, query: usize, key: usize) -> Option<usize> {
        let step = self.buckets.get((key + self.max_distance - 1).checked_sub(query)?)?;
        Some(step * self.description.heads + head)
    }

    /// Returns the term that is added to a score after the softcap.
    fn term(&self, head: usize, query: usize, key: usize, global_term: Option<T>) -> T {
        let mut term = match self.description.alibi.get(head) {
            Some(slope) => T::of(f64::from(*slope)) * T::of(key as f64 - query as f64),
            None => T::ZERO,
        };
        if let Some(place) = self.bias_index(head, query, key) {
            term += self.bias[place];
        }
        match (self.description.attention_mask, global_term) {
            (AttentionMask::BigBird { size, .. }, Some(global_term)) if key < size => term + global_term,
            _ => term,
        }
    }

    /// Returns the term added for keys of the first block (BigBird), which count several times for a query that does
    /// not attend to all keys.
    fn global_block_term(&self, query: usize, text: usize) -> Option<T> {
        let AttentionMask::BigBird { random, .. } = self.description.attention_mask else { return None };
        let place = QueryPosition {
            position: query,
            encoded_length: text,
            bidirectional_prefix: 0,
            global_tokens: 0,
        };
        self.description.attention_mask.block(place).map(|_| T::of((1 + random) as f64).ln())
    }

    fn has_terms(&self) -> bool {
        !self.description.alibi.is_empty()
            || !self.buckets.is_empty()
            || matches!(self.description.attention_mask, AttentionMask::BigBird { .. })
    }
}

/// A projection over positions (Linformer): weighted sums of rows.
pub(super) struct PositionProjection<'a, T> {
    /// A row of weights for each sum.
    pub weights: &'a [T],
    /// The number of sums.
    pub count: usize,
    /// The number of positions that have a weight.
    pub positions: usize,
}

impl<T: Real> PositionProjection<'_, T> {
    /// Returns the sums over the rows of `x`.
    pub(super) fn project(&self, size: usize, x: &[T]) -> Vec<T> {
        let mut out = vec![T::ZERO; self.count * size];
        let rows = x.len() / size;
        let weights = MatrixView::new(self.weights, self.count, rows, self.positions);
        multiply(
            T::ONE,
            weights,
            MatrixView::new(x, rows, size, size),
            false,
            MatrixOutput::new(&mut out, size),
        );
        out
    }
}

/// The gradients that a head produces.
pub(super) struct HeadGradients<T> {
    pub queries: Vec<T>,
    pub keys_and_values: [Vec<T>; 2],
    pub bias: Vec<T>,
    pub sinks: Vec<T>,
    pub projections: [Vec<T>; 2],
}

impl<T: Real> HeadGradients<T> {
    /// Backpropagates gradients of the sums to keys, values and weights.
    pub(super) fn project_backward(&mut self, mixes: &[PositionProjection<'_, T>; 2], head: &KvHead<'_, T>) {
        for (which, mix) in mixes.iter().enumerate() {
            let (x, size) = (head.unprojected[which], head.size);
            let rows = x.len() / size;
            let sums = std::mem::take(&mut self.keys_and_values[which]);
            let sums = MatrixView::new(&sums, mix.count, size, size);
            let weights = MatrixView::new(mix.weights, mix.count, rows, mix.positions);
            let mut to = vec![T::ZERO; x.len()];
            multiply(T::ONE, weights.transposed(), sums, false, MatrixOutput::new(&mut to, size));
            let mut score_gradient = vec![T::ZERO; mix.weights.len()];
            let x = MatrixView::new(x, rows, size, size);
            multiply(
                T::ONE,
                sums,
                x.transposed(),
                false,
                MatrixOutput::new(&mut score_gradient, mix.positions),
            );
            self.keys_and_values[which] = to;
            self.projections[which] = score_gradient;
        }
    }
}

/// A KV head of a sequence. Queries and their derived buffers are stored head by head.
pub(super) struct KvHead<'a, T> {
    pub terms: &'a ScoreTerms<'a, T>,
    /// The first query head, and the number of query heads.
    pub first: usize,
    pub group: usize,
    pub size: usize,
    /// The position of each query.
    pub rows: &'a [usize],
    /// The runs of keys that each query attends to.
    pub visible: &'a [Vec<Range<usize>>],
    pub queries: &'a [T],
    pub keys: &'a [T],
    pub values: &'a [T],
    /// Keys and values before the projection over positions.
    pub unprojected: [&'a [T]; 2],
}

/// Some queries of a head, and the keys from the first to the last that any of them attends to.
struct Tile {
    head: usize,
    queries: Range<usize>,
    keys: Range<usize>,
}

impl<T: Real> KvHead<'_, T> {
    fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        let starts = (0..self.rows.len()).step_by(TILE);
        (0..self.group).flat_map(move |head| starts.clone().map(move |start| (head, start))).map(
            |(head, start)| {
                let queries = start..self.rows.len().min(start + TILE);
                let visible = self.visible[queries.clone()].iter().flatten();
                let first = visible.clone().map(|run| run.start).min().unwrap_or(0);
                let end = visible.map(|run| run.end).max().unwrap_or(0);
                Tile { head, queries, keys: first..end }
            },
        )
    }

    /// Returns the rows of a tile in a table of all queries.
    fn rows_of(&self, tile: &Tile) -> Range<usize> {
        let first = tile.head * self.rows.len();
        first + tile.queries.start..first + tile.queries.end
    }

    /// Returns the queries of a tile in a table of all queries.
    fn part<'b>(&self, tile: &Tile, table: &'b [T]) -> MatrixView<'b, T> {
        let rows = self.rows_of(tile);
        MatrixView::new(
            &table[rows.start * self.size..rows.end * self.size],
            rows.len(),
            self.size,
            self.size,
        )
    }

    fn keys_of<'b>(&self, tile: &Tile, table: &'b [T]) -> MatrixView<'b, T> {
        let keys = &table[tile.keys.start * self.size..tile.keys.end * self.size];
        MatrixView::new(keys, tile.keys.len(), self.size, self.size)
    }

    /// Computes the scaled products of queries and keys.
    fn products(&self, tile: &Tile, scores: &mut [T]) {
        let width = tile.keys.len();
        let scale = T::of(f64::from(self.terms.description.scale));
        let (q, k) = (self.part(tile, self.queries), self.keys_of(tile, self.keys));
        multiply(scale, q, k.transposed(), false, MatrixOutput::new(scores, width));
    }

    /// Turns the products of query `query` into scores: softcap and bias.
    fn apply_score_terms(&self, tile: &Tile, query: usize, scores: &mut [T]) {
        let cap = self.terms.description.softcap.map(|cap| T::of(f64::from(cap)));
        let (head, position) = (self.first + tile.head, self.rows[query]);
        let global_term = self.terms.global_block_term(position, self.keys.len() / self.size);
        let has_terms = self.terms.has_terms();
        for key in self.visible[query].iter().cloned().flatten() {
            let score = &mut scores[key - tile.keys.start];
            if let Some(cap) = cap {
                *score = cap * (*score / cap).tanh();
            }
            if has_terms {
                *score += self.terms.term(head, position, key, global_term);
            }
        }
    }

    /// Returns the outputs, and the log-sum-exp of each query's scores.
    pub(super) fn forward(&self) -> (Vec<T>, Vec<T>) {
        let mut out = vec![T::ZERO; self.queries.len()];
        let mut log_sum_exps = vec![T::ZERO; self.group * self.rows.len()];
        let mut scores = Vec::new();
        for tile in self.tiles() {
            let width = tile.keys.len();
            scores.resize(tile.queries.len() * width, T::ZERO);
            self.products(&tile, &mut scores);
            for (query, scores) in tile.queries.clone().zip(scores.chunks_mut(width.max(1))) {
                self.apply_score_terms(&tile, query, scores);
                let sink = self.terms.sinks.get(self.first + tile.head).copied();
                log_sum_exps[tile.head * self.rows.len() + query] = self.softmax(&tile, query, sink, scores);
            }
            let rows = self.rows_of(&tile);
            let probabilities = MatrixView::new(&scores, tile.queries.len(), width, width);
            let out = MatrixOutput::new(&mut out[rows.start * self.size..rows.end * self.size], self.size);
            multiply(T::ONE, probabilities, self.keys_of(&tile, self.values), false, out);
        }
        (out, log_sum_exps)
    }

    /// Turns a query's scores into softmax weights; zero for masked keys.
    fn softmax(&self, tile: &Tile, query: usize, sink: Option<T>, scores: &mut [T]) -> T {
        let place = |key: usize| key - tile.keys.start;
        let visible = || self.visible[query].iter().cloned().flatten();
        let maximum = visible().map(|key| scores[place(key)]).chain(sink).reduce(T::max).unwrap_or(T::ZERO);
        let sum: T = visible().map(|key| (scores[place(key)] - maximum).exp()).sum();
        let sum = sum + sink.map_or(T::ZERO, |sink| (sink - maximum).exp());
        let log_sum_exp = maximum + sum.ln();
        self.exponentials(tile, query, log_sum_exp, scores);
        log_sum_exp
    }

    /// Computes `exp(score − total)` for the keys that a query attends to, zero elsewhere.
    fn exponentials(&self, tile: &Tile, query: usize, log_sum_exp: T, scores: &mut [T]) {
        let mut at = tile.keys.start;
        for run in &self.visible[query] {
            scores[at - tile.keys.start..run.start - tile.keys.start].fill(T::ZERO);
            let run_scores = &mut scores[run.start - tile.keys.start..run.end - tile.keys.start];
            run_scores.iter_mut().for_each(|score| *score = (*score - log_sum_exp).exp());
            at = run.end;
        }
        scores[at - tile.keys.start..].fill(T::ZERO);
    }

    /// Returns the gradients of the inputs, given the gradient of the output.
    pub(super) fn backward(&self, gradient: &[T], output: &[T], log_sum_exps: &[T]) -> HeadGradients<T> {
        let mut gradients = HeadGradients {
            queries: vec![T::ZERO; self.queries.len()],
            keys_and_values: [vec![T::ZERO; self.keys.len()], vec![T::ZERO; self.values.len()]],
            bias: vec![T::ZERO; self.terms.bias.len()],
            sinks: vec![T::ZERO; if self.terms.sinks.is_empty() { 0 } else { self.group }],
            projections: [Vec::new(), Vec::new()],
        };
        let (mut probabilities, mut score_gradient, mut derivatives) = (Vec::new(), Vec::new(), Vec::new());
        let scale = T::of(f64::from(self.terms.description.scale));
        for tile in self.tiles() {
            let (width, count) = (tile.keys.len(), tile.queries.len());
            if width == 0 {
                continue;
            }
            [&mut probabilities, &mut score_gradient]
                .into_iter()
                .for_each(|table| table.resize(count * width, T::ZERO));
            self.products(&tile, &mut probabilities);
            let g = self.part(&tile, gradient);
            multiply(
                T::ONE,
                g,
                self.keys_of(&tile, self.values).transposed(),
                false,
                MatrixOutput::new(&mut score_gradient, width),
            );
            for (index, query) in tile.queries.clone().enumerate() {
                let row = tile.head * self.rows.len() + query;
                let delta: T =
                    (row * self.size..(row + 1) * self.size).map(|i| gradient[i] * output[i]).sum();
                let probabilities = &mut probabilities[index * width..(index + 1) * width];
                self.softcap_derivative(&tile, query, probabilities, &mut derivatives);
                self.apply_score_terms(&tile, query, probabilities);
                self.exponentials(&tile, query, log_sum_exps[row], probabilities);
                let score_gradient = &mut score_gradient[index * width..(index + 1) * width];
                score_gradient.iter_mut().zip(&*probabilities).for_each(|(score_gradient, probability)| {
                    *score_gradient = *probability * (*score_gradient - delta)
                });
                self.bias_backward(&tile, query, score_gradient, &mut gradients.bias);
                if let Some(sink) = self.terms.sinks.get(self.first + tile.head) {
                    gradients.sinks[tile.head] -= (*sink - log_sum_exps[row]).exp() * delta;
                }
                score_gradient
                    .iter_mut()
                    .zip(&derivatives)
                    .for_each(|(score_gradient, derivative)| *score_gradient *= *derivative);
            }
            let rows = self.rows_of(&tile);
            let probabilities = MatrixView::new(&probabilities, count, width, width);
            let score_gradient = MatrixView::new(&score_gradient, count, width, width);
            let keys = tile.keys.start * self.size..tile.keys.end * self.size;
            let [to_keys, to_values] = &mut gradients.keys_and_values;
            let to_queries = &mut gradients.queries[rows.start * self.size..rows.end * self.size];
            let target = MatrixOutput::new(to_queries, self.size);
            multiply(scale, score_gradient, self.keys_of(&tile, self.keys), false, target);
            let q = self.part(&tile, self.queries);
            multiply(
                scale,
                score_gradient.transposed(),
                q,
                true,
                MatrixOutput::new(&mut to_keys[keys.clone()], self.size),
            );
            multiply(
                T::ONE,
                probabilities.transposed(),
                g,
                true,
                MatrixOutput::new(&mut to_values[keys], self.size),
            );
        }
        gradients
    }

    /// Computes the derivative of the softcap at the products of a query; empty without a softcap.
    fn softcap_derivative(&self, tile: &Tile, query: usize, products: &[T], derivatives: &mut Vec<T>) {
        derivatives.clear();
        let Some(cap) = self.terms.description.softcap.map(|cap| T::of(f64::from(cap))) else { return };
        derivatives.resize(tile.keys.len(), T::ZERO);
        for key in self.visible[query].iter().cloned().flatten() {
            let t = (products[key - tile.keys.start] / cap).tanh();
            derivatives[key - tile.keys.start] = T::ONE - t * t;
        }
    }

    /// Adds the gradients of the bias terms of a query's scores.
    fn bias_backward(&self, tile: &Tile, query: usize, score_gradient: &[T], bias: &mut [T]) {
        if bias.is_empty() {
            return;
        }
        for key in self.visible[query].iter().cloned().flatten() {
            if let Some(place) = self.terms.bias_index(self.first + tile.head, self.rows[query], key) {
                bias[place] += score_gradient[key - tile.keys.start];
            }
        }
    }
}
