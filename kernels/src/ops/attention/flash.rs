//! Flash attention with sixteen-lane vectors: keys interleaved for scores, columns interleaved for sums.

use core::marker::PhantomData;
use core::ops::Range;

use super::instructions::{Instructions, with_dots, with_matrices};
use super::int8::{self, QuantizedQueries};
use super::int14::{self, RotatedQueries};
use super::int14_dot::Int14Dot;
use super::kv_chunk::{KvChunk, for_size, groups};
use super::online_softmax::{ChunkPositions, SoftmaxState, merge, weights};
use super::tile::{F16Numbers, F32Numbers, Number, TileRows, multiply};
use super::{
    AttentionArguments, BLOCK, CHUNK, CacheType, GROUP, HeadCache, KeySpan, PANEL, QUERIES, Query, chunk_of,
    chunk_positions, padded,
};
use crate::simd::{IntegerDot, Outlined, Simd};

/// The sections of a worker's scratch buffer.
pub(super) struct AttentionScratch<'a> {
    /// [`CHUNK`] scores, then weights, of each query of a group.
    scores: &'a mut [f32],
    /// Column sums of a group in one chunk.
    sums: &'a mut [f32],
    /// Running column totals of each query.
    totals: &'a mut [f32],
}

impl<'a> AttentionScratch<'a> {
    /// Splits `scratch` for groups of up to `group` queries; the rest is for the quantized queries.
    pub(super) fn new(scratch: &'a mut [f32], columns: usize, group: usize) -> (Self, &'a mut [f32]) {
        let (scores, rest) = scratch.split_at_mut(group * CHUNK);
        let (sums, rest) = rest.split_at_mut(group * columns);
        let (totals, whole) = rest.split_at_mut(QUERIES * columns);
        (Self { scores, sums, totals }, whole)
    }
}

/// The matrix products of attention for a group of queries and some blocks of a chunk: queries by keys, and
/// weights by values.
pub(super) trait AttentionProducts<S: Simd> {
    /// Computes the dot products with the keys: [`CHUNK`] for each query.
    fn score(
        &mut self,
        s: S,
        queries: (&[Query<'_>], Range<usize>),
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    );

    /// Computes the weighted sums of the values: one for each column of each query.
    fn mix(
        &mut self,
        s: S,
        parts: &[ChunkPositions],
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        weights: &mut [f32],
        sums: &mut [f32],
    );
}

/// Queries in the form that the cache type needs.
enum PreparedQueries<'a> {
    F16,
    F32,
    Int8(QuantizedQueries<'a>),
    Int14(RotatedQueries<'a>),
}

impl<'a> PreparedQueries<'a> {
    #[inline(always)]
    fn new<S: Simd + IntegerDot<Vectors = S>, D: IntegerDot, M: Int14Dot>(
        instructions: Instructions<S, D, M>,
        cache: CacheType,
        queries: &[Query<'_>],
        columns: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        match cache {
            CacheType::F16 => Self::F16,
            CacheType::F32 => Self::F32,
            CacheType::Int8 => {
                Self::Int8(QuantizedQueries::new(instructions.vectors, queries, columns, scratch))
            }
            CacheType::Int14 => Self::Int14(RotatedQueries::new(instructions, queries, columns, scratch)),
        }
    }
}

/// Products with SIMD, `V` vectors at a time.
struct Vectors<'a, S, D, M, const V: usize> {
    columns: usize,
    prepared: PreparedQueries<'a>,
    instructions: Instructions<S, D, M>,
}

impl<S: Simd + IntegerDot<Vectors = S>, D: IntegerDot, M: Int14Dot, const V: usize> AttentionProducts<S>
    for Vectors<'_, S, D, M, V>
{
    #[inline(always)]
    fn score(
        &mut self,
        s: S,
        (queries, group): (&[Query<'_>], Range<usize>),
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        scores: &mut [f32],
    ) {
        macro_rules! float {
            ($number:ty) => {
                for_size!(queries.len(), |Q| {
                    let number = PhantomData::<$number>;
                    s.outline(Score::<_, Q, V> {
                        number,
                        columns: self.columns,
                        queries,
                        chunk,
                        seen,
                        scores,
                    })
                })
            };
        }
        match &self.prepared {
            PreparedQueries::F16 => float!(F16Numbers),
            PreparedQueries::F32 => float!(F32Numbers),
            PreparedQueries::Int8(queries) => {
                with_dots!(self.instructions, |d| int8::score::<_, V>(d, queries, group, chunk, seen, scores))
            }
            PreparedQueries::Int14(queries) => {
                with_matrices!(self.instructions, |d| int14::score::<_, V>(
                    d, queries, group, chunk, seen, scores
                ))
            }
        }
    }

    #[inline(always)]
    fn mix(
        &mut self,
        s: S,
        parts: &[ChunkPositions],
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
        weights: &mut [f32],
        sums: &mut [f32],
    ) {
        let columns = self.columns;
        macro_rules! float {
            ($number:ty) => {{
                sums[..parts.len() * columns].fill(0.0);
                for_size!(parts.len(), |Q| {
                    let mix = Mix { columns, chunk, vector: 0, weights, sums };
                    s.outline(Strips::<$number, Q, V> { number: PhantomData, mix, parts })
                })
            }};
        }
        match &self.prepared {
            PreparedQueries::F16 => float!(F16Numbers),
            PreparedQueries::F32 => float!(F32Numbers),
            PreparedQueries::Int8(_) => {
                int8::mix::<_, _, _, V>(self.instructions, columns, parts, chunk, seen, weights, sums)
            }
            PreparedQueries::Int14(_) => {
                int14::mix::<_, _, _, V>(self.instructions, columns, parts, chunk, seen, weights, sums)
            }
        }
    }
}

#[inline(always)]
pub(super) fn attend<S: Simd + IntegerDot<Vectors = S>>(
    s: S,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let instructions = Instructions { vectors: s, dots: None::<S>, matrices: None::<S> };
    attend_with_instructions(instructions, arguments, queries, cache, span, scratch, out);
}

#[inline(always)]
pub(super) fn attend_with_instructions<S: Simd + IntegerDot<Vectors = S>, D: IntegerDot, M: Int14Dot>(
    instructions: Instructions<S, D, M>,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
    span: KeySpan,
    scratch: &mut [f32],
    out: &mut [&mut [f32]],
) {
    let s = instructions.vectors;
    let queries = &queries[..queries.len().min(QUERIES)];
    let columns = padded(arguments.head_size);
    let (scratch, words) = AttentionScratch::new(scratch, columns, GROUP);
    let prepared = PreparedQueries::new(instructions, arguments.cache, queries, columns, words);
    // As many vectors as fit in the registers beside the accumulators.
    if const { S::REGISTERS >= 32 } {
        let products = Vectors::<_, _, _, 4> { columns, prepared, instructions };
        attend_with::<S, _, GROUP>(s, arguments, queries, products, cache, span, scratch, out);
    } else {
        let products = Vectors::<_, _, _, 1> { columns, prepared, instructions };
        attend_with::<S, _, GROUP>(s, arguments, queries, products, cache, span, scratch, out);
    }
}

/// Computes attention for up to [`QUERIES`] queries, in groups of up to `GROUP`.
#[inline(always)]
pub(super) fn attend_with<S: Simd, P: AttentionProducts<S>, const GROUP: usize>(
    s: S,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    mut products: P,
    cache: &dyn HeadCache,
    span: KeySpan,
    mut scratch: AttentionScratch<'_>,
    out: &mut [&mut [f32]],
) {
    let columns = padded(arguments.head_size);
    let mut states = [SoftmaxState::EMPTY; QUERIES];
    let runs = match span {
        KeySpan::Whole => queries.iter().map(Query::runs).max().unwrap_or(1),
        KeySpan::Chunk(_) => 1,
    };
    for run in 0..runs {
        let seen = || queries.iter().filter_map(|query| query.sees(run));
        let first = seen().map(|(first, _)| first).min().unwrap_or(0);
        let last = seen().map(|(_, last)| last).max().unwrap_or(0);
        let chunks = match span {
            KeySpan::Whole => chunk_of(first)..chunk_of(last) + 1,
            KeySpan::Chunk(chunk) => chunk..chunk + 1,
        };
        for chunk in chunks {
            let chunk = (chunk, last / BLOCK);
            // The only call site: each one inlines a copy of all inner loops.
            attend_chunk::<S, P, GROUP>(
                s,
                arguments,
                (queries, run),
                &mut products,
                cache,
                chunk,
                &mut states,
                &mut scratch,
            );
        }
    }
    let sinks = queries.iter().map(|query| query.sink.filter(|_| span == KeySpan::Whole));
    scratch.sums[..columns].fill(0.0);
    let states = states.iter_mut().zip(sinks);
    for ((out, (state, sink)), totals) in
        out.iter_mut().zip(states).zip(scratch.totals.chunks_exact_mut(columns))
    {
        if let Some(maximum) = sink {
            merge(s, state, SoftmaxState { maximum, sum: 1.0 }, totals, &scratch.sums[..columns]);
        }
        match span {
            KeySpan::Whole => finish(s, *state, totals, out),
            KeySpan::Chunk(_) => {
                out[..columns].copy_from_slice(totals);
                out[columns..][..2].copy_from_slice(&[state.maximum, state.sum]);
            }
        }
    }
}

/// Divides the totals by the sum of the weights.
#[inline(always)]
pub(super) fn finish<S: Simd>(s: S, state: SoftmaxState, totals: &[f32], out: &mut [f32]) {
    let sum = s.splat(state.sum);
    for (total, out) in totals.chunks(16).zip(out.chunks_mut(16)) {
        s.store_part(s.div(s.load_part(total, 0.0), sum), out);
    }
}

/// Adds the keys of a chunk that are in range `run` of the queries; `last` is the last block that any of them
/// attends to.
#[inline(always)]
fn attend_chunk<S: Simd, P: AttentionProducts<S>, const GROUP: usize>(
    s: S,
    arguments: &AttentionArguments,
    (queries, run): (&[Query<'_>], usize),
    products: &mut P,
    cache: &dyn HeadCache,
    (chunk, last): (usize, usize),
    states: &mut [SoftmaxState; QUERIES],
    scratch: &mut AttentionScratch<'_>,
) {
    let columns = padded(arguments.head_size);
    let positions = chunk_positions(chunk);
    let mut parts = [ChunkPositions { first: positions.start, end: positions.start, biased: false }; QUERIES];
    for (part, query) in parts.iter_mut().zip(queries) {
        let Some((first, last)) = query.sees(run) else { continue };
        let first = first.max(positions.start);
        let end = (last + 1).min(positions.end).max(first);
        *part = ChunkPositions { first, end, biased: query.is_biased(last) };
    }
    let Some(seen) = blocks(&parts[..queries.len()]) else { return };
    let mut chunk = KvChunk::new(cache, seen);
    let behind = positions.end / BLOCK;
    let following =
        core::array::from_fn(|i| if behind + i <= last { cache.block(behind + i).0 } else { &[] });
    for group in groups(queries.len(), GROUP) {
        let parts = &parts[group.clone()];
        let Some(seen) = blocks(parts) else { continue };
        let first = positions.start / BLOCK;
        let seen = seen.start - first..seen.end - first;
        chunk.next = if group.end < queries.len() { chunk.blocks.map(|(keys, _)| keys) } else { following };
        let queries = &queries[group.clone()];
        let scores = &mut *scratch.scores;
        products.score(s, (queries, group.clone()), &chunk, &seen, scores);
        let mut chunk_states = [SoftmaxState::EMPTY; GROUP];
        let chunk_states = &mut chunk_states[..group.len()];
        weights(s, arguments, queries, parts, chunk.start, scores, chunk_states);
        let sums = &mut *scratch.sums;
        products.mix(s, parts, &chunk, &seen, scores, sums);
        let totals = scratch.totals[group.start * columns..].chunks_exact_mut(columns);
        let states = states[group.clone()].iter_mut().zip(&*chunk_states);
        for (((state, chunk), totals), sums) in states.zip(totals).zip(sums.chunks_exact(columns)) {
            merge(s, state, *chunk, totals, sums);
        }
    }
}

/// Returns the range of blocks that the parts cover, or `None` if all parts are empty.
fn blocks(parts: &[ChunkPositions]) -> Option<Range<usize>> {
    let seen = parts.iter().filter(|part| !part.is_empty());
    let (first, end) =
        seen.fold((usize::MAX, 0), |(first, end), part| (first.min(part.first), end.max(part.end)));
    (first < end).then(|| first / BLOCK..end.div_ceil(BLOCK))
}

/// The dot products of `Q` queries with the keys of some blocks, `V` vectors at a time.
struct Score<'a, T, const Q: usize, const V: usize> {
    number: PhantomData<T>,
    columns: usize,
    queries: &'a [Query<'a>],
    chunk: &'a KvChunk<'a>,
    seen: &'a Range<usize>,
    scores: &'a mut [f32],
}

impl<S: Simd, T: Number, const Q: usize, const V: usize> Outlined<S> for Score<'_, T, Q, V> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { number: _, columns, queries, chunk, seen, scores } = self;
        let mut left: [&[f32]; Q] = [&[]; Q];
        for (left, query) in left.iter_mut().zip(queries) {
            *left = query.values;
        }
        for block in seen.clone() {
            let (keys, next) = chunk.keys(block);
            for panel in (0..BLOCK / PANEL).step_by(V) {
                let keys = TileRows::keys(keys, next, columns, panel, V);
                let mut dots = [[s.splat(0.0); V]; Q];
                multiply::<S, T, Q, V>(s, &left, keys, left[0].len(), &mut dots);
                for (q, dots) in dots.iter().enumerate() {
                    let scores = scores[q * CHUNK + block * BLOCK + panel * PANEL..].as_chunks_mut().0;
                    for (dot, scores) in dots.iter().zip(scores) {
                        s.store(*dot, scores);
                    }
                }
            }
        }
    }
}

/// The weighted sums of a chunk's values for `Q` queries, `V` vectors at a time.
struct Strips<'a, T, const Q: usize, const V: usize> {
    number: PhantomData<T>,
    mix: Mix<'a>,
    parts: &'a [ChunkPositions],
}

impl<S: Simd, T: Number, const Q: usize, const V: usize> Outlined<S> for Strips<'_, T, Q, V> {
    #[inline(always)]
    fn run(self, s: S) {
        let Self { number: _, mut mix, parts } = self;
        let columns = mix.columns;
        while mix.vector + V <= columns / 16 {
            mix.strip::<S, T, Q, V>(s, parts);
            mix.vector += V;
        }
        // With one vector at a time, heads of 32 columns would be bound by the latency of one accumulator
        // chain.
        if const { V > 2 } && mix.vector + 2 <= columns / 16 {
            mix.strip::<S, T, Q, 2>(s, parts);
            mix.vector += 2;
        }
        if const { V > 1 } && mix.vector < columns / 16 {
            mix.strip::<S, T, Q, 1>(s, parts);
        }
    }
}

/// The weighted sum of some column vectors of a chunk's values.
struct Mix<'a> {
    columns: usize,
    chunk: &'a KvChunk<'a>,
    /// The first column vector.
    vector: usize,
    weights: &'a [f32],
    sums: &'a mut [f32],
}

impl Mix<'_> {
    /// Adds `V` column vectors for `Q` queries. Positions that all queries attend to are processed for all of
    /// them at once.
    #[inline(always)]
    fn strip<S: Simd, T: Number, const Q: usize, const V: usize>(&mut self, s: S, parts: &[ChunkPositions]) {
        let first = parts.iter().map(|part| part.first).max().unwrap_or(0);
        let end = parts.iter().map(|part| part.end).min().unwrap_or(0).max(first);
        for before in [true, false] {
            for (query, part) in parts.iter().enumerate() {
                let alone = match before {
                    true => part.first..first.min(part.end),
                    false => end.max(part.first)..part.end,
                };
                self.range::<S, T, 1, V>(s, query, alone);
            }
            if before {
                self.range::<S, T, Q, V>(s, 0, first..end);
            }
        }
    }

    /// Adds the values of `positions` to the sums of `Q` queries, starting with `query`.
    #[inline(always)]
    fn range<S: Simd, T: Number, const Q: usize, const V: usize>(
        &mut self,
        s: S,
        query: usize,
        positions: Range<usize>,
    ) {
        if positions.is_empty() {
            return;
        }
        let at = |q: usize| (query + q) * self.columns + self.vector * 16;
        let mut sums = [[s.splat(0.0); V]; Q];
        for (q, sums) in sums.iter_mut().enumerate() {
            for (sum, from) in sums.iter_mut().zip(self.sums[at(q)..].as_chunks().0) {
                *sum = s.load(from);
            }
        }
        let (mut slot, end) = (positions.start - self.chunk.start, positions.end - self.chunk.start);
        while slot < end {
            let block = slot / BLOCK;
            let count = end.min((block + 1) * BLOCK) - slot;
            let (values, next) = self.chunk.values(block);
            let rows = TileRows::values(values, next, self.columns, slot % BLOCK, self.vector);
            let mut left: [&[f32]; Q] = [&[]; Q];
            for (q, left) in left.iter_mut().enumerate() {
                *left = &self.weights[(query + q) * CHUNK + slot..];
            }
            multiply::<S, T, Q, V>(s, &left, rows, count, &mut sums);
            slot += count;
        }
        for (q, sums) in sums.iter().enumerate() {
            for (sum, to) in sums.iter().zip(self.sums[at(q)..].as_chunks_mut().0) {
                s.store(*sum, to);
            }
        }
    }
}
