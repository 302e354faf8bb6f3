//! Attention over sixteen-lane vectors: keys side by side for scores, columns side by side for sums.

use core::ops::Range;

use super::int8::{self, Seen};
use super::softmax::{Part, State, merge, weights};
use super::tile::{Cached, Plain, Vectors, multiply, unpack, unpack_keys};
use super::{
    Arguments, BLOCK, CHUNK, Cache, CacheType, PANEL, QUERIES, Query, Span, chunk_of, chunk_positions, padded,
};
use crate::simd::Simd;

/// Queries that share the vectors loaded for them; more of them make it worth to unpack a block first.
const TOGETHER: usize = 6;

/// The parts of a worker's scratch.
struct Scratch<'a> {
    /// [`CHUNK`] scores, then weights, of each query.
    scores: &'a mut [f32],
    /// What each query has gathered.
    totals: &'a mut [f32],
    /// The sums of the chunk.
    sums: &'a mut [f32],
    /// A block of keys or values as f32.
    unpacked: &'a mut [f32],
}

/// Runs a block of code for queries `$q..$q + $Q` until `$count` are done, as many at once as there are.
macro_rules! in_groups {
    ($count:expr, |$q:ident, $Q:ident| $body:expr) => {{
        let (mut $q, count) = (0, $count);
        while $q < count {
            macro_rules! group {
                ($size:literal) => {{
                    const $Q: usize = $size;
                    $body;
                    $q += $Q;
                }};
            }
            match count - $q {
                1 => group!(1),
                2 => group!(2),
                3 => group!(3),
                4 | 5 => group!(4),
                _ => group!(6),
            }
        }
    }};
}

#[inline(always)]
pub(super) fn attend<S: Simd>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    span: Span,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    // As many vectors side by side as the registers hold beside those of the sums.
    if const { S::REGISTERS >= 32 } {
        attend_with::<S, 4>(s, arguments, queries, cache, span, scratch, out);
    } else {
        attend_with::<S, 1>(s, arguments, queries, cache, span, scratch, out);
    }
}

#[inline(always)]
fn attend_with<S: Simd, const V: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    span: Span,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let queries = &queries[..queries.len().min(QUERIES)];
    let columns = padded(arguments.head_size);
    let (scores, rest) = scratch.split_at_mut(QUERIES * CHUNK);
    let (totals, rest) = rest.split_at_mut(QUERIES * columns);
    let (sums, unpacked) = rest.split_at_mut(QUERIES * columns);
    let mut scratch = Scratch { scores, totals, sums, unpacked };
    let mut states = [State::EMPTY; QUERIES];
    let first = queries.iter().map(|query| query.first).min().unwrap_or(0);
    let last = queries.iter().map(|query| query.position).max().unwrap_or(0);
    let chunks = match span {
        Span::Whole => chunk_of(first)..chunk_of(last) + 1,
        Span::Chunk(chunk) => chunk..chunk + 1,
    };
    for chunk in chunks {
        attend_chunk::<S, V>(s, arguments, queries, cache, chunk, &mut states, &mut scratch);
    }
    for ((out, state), totals) in out.iter_mut().zip(&states).zip(scratch.totals.chunks(columns)) {
        match span {
            Span::Whole => finish(s, *state, totals, out),
            Span::Chunk(_) => {
                out[..columns].copy_from_slice(totals);
                out[columns..][..2].copy_from_slice(&[state.maximum, state.sum]);
            }
        }
    }
}

/// Divides what was gathered by the sum of the weights.
#[inline(always)]
fn finish<S: Simd>(s: S, state: State, totals: &[f32], out: &mut [f32]) {
    let sum = s.splat(state.sum);
    for (total, out) in totals.chunks(16).zip(out.chunks_mut(16)) {
        s.store_part(s.div(s.load_part(total, 0.0), sum), out);
    }
}

/// Merges what [`Span::Chunk`] gave for one query, in the order of the chunks, and divides by the sum.
#[inline(always)]
pub(super) fn merge_chunks<S: Simd>(
    s: S,
    head_size: usize,
    parts: &[f32],
    totals: &mut [f32],
    out: &mut [f32],
) {
    let columns = padded(head_size);
    let totals = &mut totals[..columns];
    let mut state = State::EMPTY;
    for part in parts.chunks_exact(super::part_size(head_size)) {
        let chunk = State { maximum: part[columns], sum: part[columns + 1] };
        merge(s, &mut state, chunk, totals, &part[..columns]);
    }
    finish(s, state, totals, out);
}

#[inline(always)]
fn attend_chunk<S: Simd, const V: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    chunk: usize,
    states: &mut [State; QUERIES],
    scratch: &mut Scratch<'_>,
) {
    let columns = padded(arguments.head_size);
    let positions = chunk_positions(chunk);
    let mut parts = [Part { first: 0, end: 0 }; QUERIES];
    for (part, query) in parts.iter_mut().zip(queries) {
        let first = query.first.max(positions.start);
        *part = Part { first, end: (query.position + 1).min(positions.end).max(first) };
    }
    let parts = &parts[..queries.len()];
    let seen = parts.iter().filter(|part| part.first < part.end);
    let (first, end) = seen.fold((positions.end, positions.start), |(first, end), part| {
        (first.min(part.first), end.max(part.end))
    });
    if first >= end {
        return;
    }
    let blocks = first / BLOCK..end.div_ceil(BLOCK);
    let whole = arguments.cache == CacheType::Int8;
    for block in blocks.clone() {
        if !whole {
            score_block::<S, V>(s, arguments, queries, cache, (block, blocks.end), scratch);
        }
    }
    if whole {
        in_groups!(queries.len(), |q, Q| {
            let scores = &mut scratch.scores[q * CHUNK..];
            int8::score::<S, Q, V>(s, &queries[q..], cache, blocks.clone(), scores);
        });
    }
    let mut chunk_states = [State::EMPTY; QUERIES];
    for (q, part) in parts.iter().enumerate() {
        let scores = &mut scratch.scores[q * CHUNK..][..CHUNK];
        chunk_states[q] = weights(s, arguments, &queries[q], *part, positions.start, scores);
    }
    scratch.sums[..queries.len() * columns].fill(0.0);
    if whole {
        mix_whole::<S, V>(s, arguments, parts, &chunk_states, cache, blocks.clone(), scratch);
    }
    for block in blocks.clone() {
        if !whole {
            mix_block::<S, V>(s, arguments, parts, cache, (block, blocks.end), scratch);
        }
    }
    for q in 0..queries.len() {
        let columns = q * columns..(q + 1) * columns;
        let totals = &mut scratch.totals[columns.clone()];
        merge(s, &mut states[q], chunk_states[q], totals, &scratch.sums[columns]);
    }
}

/// The dot products of all queries with the keys of a block.
#[inline(always)]
fn score_block<S: Simd, const V: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    cache: &dyn Cache,
    (block, end): (usize, usize),
    scratch: &mut Scratch<'_>,
) {
    let columns = padded(arguments.head_size);
    let (keys, values) = cache.block(block);
    let next = if block + 1 < end { cache.block(block + 1).0 } else { values };
    let at = block * BLOCK % CHUNK;
    if queries.len() <= TOGETHER {
        in_groups!(queries.len(), |q, Q| {
            for panel in (0..BLOCK / PANEL).step_by(V) {
                let next = &next[next.len() / (BLOCK / PANEL) * panel..][..next.len() / (BLOCK / PANEL) * V];
                let keys = Cached::keys(arguments.cache, keys, columns, panel).before(next);
                let scores = &mut scratch.scores[q * CHUNK + at + panel * PANEL..];
                score::<S, _, Q, V>(s, arguments, &queries[q..], keys, scores);
            }
        });
        return;
    }
    unpack_keys::<S, V>(s, arguments.cache, keys, columns, scratch.unpacked);
    for panel in (0..BLOCK / PANEL).step_by(V) {
        let run = &scratch.unpacked[panel * PANEL * columns..][..V * PANEL * columns];
        let keys = Plain::<V>(run.as_chunks().0.as_chunks().0);
        in_groups!(queries.len(), |q, Q| {
            let scores = &mut scratch.scores[q * CHUNK + at + panel * PANEL..];
            score::<S, _, Q, V>(s, arguments, &queries[q..], keys, scores);
        });
    }
}

#[inline(always)]
fn score<S: Simd, R: Vectors<S>, const Q: usize, const V: usize>(
    s: S,
    arguments: &Arguments,
    queries: &[Query<'_>],
    keys: R,
    scores: &mut [f32],
) {
    let mut left: [&[f32]; Q] = [&[]; Q];
    for (left, query) in left.iter_mut().zip(queries) {
        *left = query.values;
    }
    let mut dots = [[s.splat(0.0); V]; Q];
    multiply(s, &left, keys, arguments.head_size, &mut dots);
    for (q, dots) in dots.iter().enumerate() {
        let scores = scores[q * CHUNK..].as_chunks_mut().0;
        for (dot, scores) in dots.iter().zip(scores) {
            s.store(*dot, scores);
        }
    }
}

/// The weighted values of eight bits of a chunk, for all queries.
#[inline(always)]
fn mix_whole<S: Simd, const V: usize>(
    s: S,
    arguments: &Arguments,
    parts: &[Part],
    states: &[State; QUERIES],
    cache: &dyn Cache,
    blocks: Range<usize>,
    scratch: &mut Scratch<'_>,
) {
    let columns = padded(arguments.head_size);
    let start = blocks.start * BLOCK / CHUNK * CHUNK;
    let mut seen = [Seen { range: (0, 0), sum: 0.0 }; QUERIES];
    for ((seen, part), state) in seen.iter_mut().zip(parts).zip(states) {
        *seen = Seen { range: (part.first - start, part.end - start), sum: state.sum };
    }
    let mut q = 0;
    while q < parts.len() {
        let weights = &mut scratch.scores[q * CHUNK..];
        let sums = &mut scratch.sums[q * columns..];
        // Two digits each: half as many queries fill the registers.
        if parts.len() - q >= 3 {
            int8::mix::<S, 3, V>(s, arguments, &seen[q..], cache, blocks.clone(), weights, sums);
            q += 3;
        } else {
            int8::mix::<S, 1, V>(s, arguments, &seen[q..], cache, blocks.clone(), weights, sums);
            q += 1;
        }
    }
}

/// Adds the weighted values of a block to the sums of all queries. Positions that the queries of a group see
/// together are taken for all at once.
#[inline(always)]
fn mix_block<S: Simd, const V: usize>(
    s: S,
    arguments: &Arguments,
    parts: &[Part],
    cache: &dyn Cache,
    (block, end): (usize, usize),
    scratch: &mut Scratch<'_>,
) {
    let columns = padded(arguments.head_size);
    let (_, values) = cache.block(block);
    let next = if block + 1 < end { cache.block(block + 1).1 } else { &[] };
    let unpacked = parts.len() > TOGETHER;
    let here = |range: Range<usize>| {
        range.start.max(block * BLOCK)..range.end.min((block + 1) * BLOCK).max(range.start)
    };
    let mut vector = 0;
    macro_rules! strip {
        ($width:expr) => {{
            if unpacked {
                let values = Cached::values(arguments.cache, values, columns, 0, vector);
                unpack::<S, { $width }>(s, values, BLOCK, scratch.unpacked);
            }
            let mut mix = Mix {
                arguments,
                values,
                next,
                unpacked,
                vector,
                weights: scratch.scores,
                sums: scratch.sums,
                buffer: scratch.unpacked,
            };
            in_groups!(parts.len(), |q, Q| {
                let group = &parts[q..q + Q];
                let common_first = group.iter().map(|part| part.first).max().unwrap_or(0);
                let common_end = group.iter().map(|part| part.end).min().unwrap_or(0).max(common_first);
                for (i, part) in group.iter().enumerate() {
                    let before = here(part.first..common_first.min(part.end));
                    mix.range::<S, 1, { $width }>(s, q + i, before);
                }
                mix.range::<S, Q, { $width }>(s, q, here(common_first..common_end));
                for (i, part) in group.iter().enumerate() {
                    let after = here(common_end.max(part.first)..part.end);
                    mix.range::<S, 1, { $width }>(s, q + i, after);
                }
            });
            vector += $width;
        }};
    }
    while vector + V <= columns / 16 {
        strip!(V);
    }
    if V > 1 {
        while vector < columns / 16 {
            strip!(1);
        }
    }
}

/// Some vectors of columns of a block of values.
struct Mix<'a> {
    arguments: &'a Arguments,
    /// The block as the cache keeps it, and whether `buffer` has it as f32.
    values: &'a [u32],
    /// The block after it.
    next: &'a [u32],
    unpacked: bool,
    buffer: &'a [f32],
    /// The first vector of columns.
    vector: usize,
    weights: &'a [f32],
    sums: &'a mut [f32],
}

impl Mix<'_> {
    /// Adds the values of `positions`, all in one block, to the sums of `Q` queries from `query` on.
    #[inline(always)]
    fn range<S: Simd, const Q: usize, const V: usize>(
        &mut self,
        s: S,
        query: usize,
        positions: Range<usize>,
    ) {
        if positions.is_empty() {
            return;
        }
        let columns = padded(self.arguments.head_size);
        let (slot, count) = (positions.start % BLOCK, positions.len());
        let mut left: [&[f32]; Q] = [&[]; Q];
        for (q, left) in left.iter_mut().enumerate() {
            *left = &self.weights[(query + q) * CHUNK + positions.start % CHUNK..];
        }
        let at = |q: usize| (query + q) * columns + self.vector * 16;
        let mut sums = [[s.splat(0.0); V]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            for (sum, from) in sums.iter_mut().zip(self.sums[at(q)..].as_chunks().0) {
                *sum = s.load(from);
            }
        }
        if self.unpacked {
            let rows = Plain::<V>(&self.buffer.as_chunks().0.as_chunks().0[slot..slot + count]);
            multiply(s, &left, rows, count, &mut sums);
        } else {
            let rows = Cached::values(self.arguments.cache, self.values, columns, slot, self.vector);
            // The first strip asks for all strips of the next block.
            let rows = rows.before(if self.vector == 0 { self.next } else { &[] });
            multiply(s, &left, rows, count, &mut sums);
        }
        for (q, sums) in sums.iter().enumerate() {
            for (sum, to) in sums.iter().zip(self.sums[at(q)..].as_chunks_mut().0) {
                s.store(*sum, to);
            }
        }
    }
}
