//! Attention with all masks, in tiles of queries. As in FlashAttention (arXiv:2205.14135), forward keeps only the
//! log-sum-exp per query and head, from which backward recomputes the softmax.

mod head;

use rayon::prelude::*;
use siskin_graph::op::{Attention, AttentionMask};

use self::head::{HeadGradients, KvHead, PositionProjection, ScoreTerms};
use super::{GradientRule, Reads, RuleBackward, RuleCall, table};
use crate::batch::BatchSequences;
use crate::parameters::Gradients;
use crate::real::Real;

/// The shared inputs of a node's heads.
struct AttentionCall<'a, 'b, T> {
    description: &'a Attention,
    queries: &'a BatchSequences,
    keys: &'a BatchSequences,
    terms: ScoreTerms<'a, T>,
    /// The projections of keys and values over positions (Linformer), if any.
    projections: Option<[PositionProjection<'a, T>; 2]>,
    inputs: [&'b [T]; 3],
    /// Columns of a row of queries, and of keys.
    widths: [usize; 2],
    /// The rows of each sequence that attend, counted from its first.
    attending: Vec<Vec<usize>>,
    /// The index of each row among the attending rows of its sequence.
    numbers: Vec<Option<usize>>,
}

impl<'a, 'b, T: Real> AttentionCall<'a, 'b, T> {
    fn new(description: &'a Attention, call: &RuleCall<'a, T>, inputs: &[&'b [T]]) -> Self {
        let (queries, keys) = (call.sequences(), call.input_sequences(1));
        let marked = |row: usize| queries.rows.get(row).is_some_and(|row| row.marked);
        let attends =
            |row: usize| description.attention_mask != AttentionMask::LongformerGlobal || marked(row);
        let of_text = |span: &std::ops::Range<usize>| -> Vec<usize> {
            (0..span.len()).filter(|&row| attends(span.start + row)).collect()
        };
        let attending: Vec<Vec<usize>> = queries.spans().map(of_text).collect();
        let mut numbers = vec![None; queries.rows.len()];
        for (span, rows) in queries.spans().zip(&attending) {
            rows.iter().enumerate().for_each(|(number, row)| numbers[span.start + row] = Some(number));
        }
        let max_distance = queries.max_length().max(keys.max_length());
        let mixes = description.projection.map(|projection| {
            [projection.keys, projection.values].map(|weight| PositionProjection {
                weights: call.weight(weight),
                count: projection.count,
                positions: projection.positions,
            })
        });
        Self {
            description,
            queries,
            keys,
            terms: ScoreTerms::new(description, |weight| call.weight(weight), max_distance),
            projections: mixes,
            inputs: [inputs[0], inputs[1], inputs[2]],
            widths: [call.input(0).columns, call.input(1).columns],
            attending,
            numbers,
        }
    }

    /// Returns the number of query heads per KV head.
    fn group(&self) -> usize {
        self.description.heads / self.description.kv_heads
    }

    /// Calls `work` for each KV head of each sequence, on all threads, sequence by sequence.
    fn each<R: Send>(&self, work: impl Fn(usize, &KvHead<'_, T>) -> R + Sync) -> Vec<R> {
        let heads = self.description.kv_heads;
        let tasks = (0..self.queries.sequences.len() * heads).into_par_iter();
        tasks
            .map(|task| self.with_head(task / heads, task % heads, |head| work(task / heads, head)))
            .collect()
    }

    fn with_head<R>(&self, text: usize, kv_head: usize, work: impl FnOnce(&KvHead<'_, T>) -> R) -> R {
        let size = self.description.head_size;
        let span = self.keys.sequences[text].rows.clone();
        let part = |which: usize| -> Vec<T> {
            let rows = span.clone().map(|row| table::row(self.inputs[which], self.widths[1], row));
            rows.flat_map(|row| &row[kv_head * size..(kv_head + 1) * size]).copied().collect()
        };
        let (keys, values) = (part(1), part(2));
        let queries = self.head_columns(self.inputs[0], text, kv_head);
        let projected =
            self.projections.as_ref().map(|[k, v]| [k.project(size, &keys), v.project(size, &values)]);
        let (k, v) = projected.as_ref().map_or((&keys, &values), |[k, v]| (k, v));
        let rows = &self.attending[text];
        let visible: Vec<_> =
            rows.iter().map(|&row| self.description.key_runs(self.queries, self.keys, text, row)).collect();
        work(&KvHead {
            terms: &self.terms,
            first: kv_head * self.group(),
            group: self.group(),
            size,
            rows,
            visible: &visible,
            queries: &queries,
            keys: k,
            values: v,
            unprojected: [&keys, &values],
        })
    }

    /// Returns the columns of a KV head's query heads, head by head, for the attending rows.
    fn head_columns(&self, from: &[T], text: usize, kv_head: usize) -> Vec<T> {
        let (size, group, first) =
            (self.description.head_size, self.group(), self.queries.sequences[text].rows.start);
        let head = |head: usize| {
            let start = (kv_head * group + head) * size;
            self.attending[text].iter().flat_map(move |row| {
                table::row(from, self.widths[0], first + row)[start..start + size].iter().copied()
            })
        };
        (0..group).flat_map(head).collect()
    }

    /// Calls `set` with the columns of each attending row and the matching rows of the heads' tables.
    fn scatter_queries(&self, out: &mut [T], of: impl Fn(usize) -> &'b [T] + Sync, add: bool) {
        let (size, group, heads) = (self.description.head_size, self.group(), self.description.kv_heads);
        table::each(out, self.widths[0], |row, out| {
            let (text, Some(number)) = (self.queries.rows[row].sequence, self.numbers[row]) else { return };
            let count = self.attending[text].len();
            for (head, out) in out.chunks_mut(size).enumerate() {
                let from = of(text * heads + head / group);
                copy(table::row(from, size, head % group * count + number), out, add);
            }
        });
    }

    /// Adds the heads' tables to rows of keys or values.
    fn scatter_keys(&self, out: &mut [T], of: impl Fn(usize) -> &'b [T] + Sync) {
        let (size, heads) = (self.description.head_size, self.description.kv_heads);
        table::each(out, self.widths[1], |row, out| {
            let place = self.keys.rows[row];
            for (head, out) in out.chunks_mut(size).enumerate() {
                copy(table::row(of(place.sequence * heads + head), size, place.position), out, true);
            }
        });
    }
}

fn copy<T: Real>(from: &[T], to: &mut [T], add: bool) {
    if add {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
    } else {
        to.copy_from_slice(from);
    }
}

impl<T: Real> GradientRule<T> for Attention {
    fn reads(&self) -> Reads {
        Reads::BOTH
    }

    fn saved_len(&self, call: &RuleCall<'_, T>) -> usize {
        call.rows * self.heads
    }

    fn flops(&self, call: &RuleCall<'_, T>) -> f64 {
        let (queries, keys) = (call.sequences(), call.input_sequences(1));
        let visible = |text| self.key_pairs(queries, keys, text);
        let pairs: usize = (0..queries.sequences.len()).map(visible).sum();
        4.0 * pairs as f64 * (self.heads * self.head_size) as f64
    }

    fn forward(&self, call: &RuleCall<'_, T>, inputs: &[&[T]], out: &mut [T], kept: &mut [T]) {
        let work = AttentionCall::new(self, call, inputs);
        if let Some(others) = inputs.get(3) {
            out.copy_from_slice(others);
        }
        let results = work.each(|_, head| head.forward());
        work.scatter_queries(out, |task| &results[task].0, false);
        let (heads, group) = (work.description.heads, work.group());
        table::each(kept, heads, |row, kept| {
            let (text, Some(number)) = (work.queries.rows[row].sequence, work.numbers[row]) else { return };
            let count = work.attending[text].len();
            for (head, kept) in kept.iter_mut().enumerate() {
                *kept =
                    results[text * work.description.kv_heads + head / group].1[head % group * count + number];
            }
        });
    }

    fn backward(&self, call: &RuleCall<'_, T>, back: RuleBackward<'_, '_, T>) {
        let work = AttentionCall::new(self, call, back.inputs);
        let (heads, group) = (work.description.heads, work.group());
        let results = work.each(|text, head| {
            let kv_head = head.first / group;
            let log_sum_exps = (0..group).flat_map(|own| {
                let first = work.queries.sequences[text].rows.start;
                head.rows.iter().map(move |row| back.saved[(first + row) * heads + head.first + own])
            });
            let log_sum_exps: Vec<T> = log_sum_exps.collect();
            let gradient = work.head_columns(back.gradient, text, kv_head);
            let output = work.head_columns(back.output, text, kv_head);
            let mut gradients = head.backward(&gradient, &output, &log_sum_exps);
            if let Some(mixes) = &work.projections {
                gradients.project_backward(mixes, head);
            }
            gradients
        });
        if let Some(to) = &mut back.input_gradients[0] {
            work.scatter_queries(to, |task| &results[task].queries, true);
        }
        for (input, to) in back.input_gradients.iter_mut().enumerate().skip(1).take(2) {
            if let Some(to) = to {
                work.scatter_keys(to, |task| &results[task].keys_and_values[input - 1]);
            }
        }
        if let Some(Some(to)) = back.input_gradients.get_mut(3) {
            table::each(to, call.columns(), |row, to| {
                if work.numbers[row].is_none() {
                    copy(table::row(back.gradient, call.columns(), row), to, true);
                }
            });
        }
        weights(work.description, group, &results, back.weight_gradients);
    }
}

/// Adds the gradients of the node's own weights.
fn weights<T: Real>(
    description: &Attention,
    group: usize,
    results: &[HeadGradients<T>],
    weights: &mut Gradients<T>,
) {
    if let Some(bias) = description.bias
        && let Some(to) = weights.of(bias.table)
    {
        results.iter().for_each(|gradients| copy(&gradients.bias, to, true));
    }
    if let Some(to) = description.sinks.and_then(|sinks| weights.of(sinks)) {
        for (task, gradients) in results.iter().enumerate() {
            copy(&gradients.sinks, &mut to[task % description.kv_heads * group..][..group], true);
        }
    }
    if let Some(projection) = description.projection {
        for (which, weight) in [projection.keys, projection.values].into_iter().enumerate() {
            if let Some(to) = weights.of(weight) {
                results.iter().for_each(|gradients| copy(&gradients.projections[which], to, true));
            }
        }
    }
}
