//! Attention over int14 keys and values: integer dot products, scaled once.

use core::ops::Range;

use super::digits::{Scaled, ScaledWeights, WORDS, scales};
use super::instructions::{Instructions, with_dots, with_matrices};
use super::int14_dot::{Factors, Int14Dot};
use super::kv_chunk::{KvChunk, groups, query_rows};
use super::online_softmax::ChunkPositions;
use super::tile::or_same;
use super::{BLOCK, CHUNK, GROUP, PANEL, QUERIES, Query};
use crate::simd::{IntegerDot, LANES, Outlined, Simd};
use crate::{float, hadamard};

/// The largest head size: a rotated query is built on the stack.
pub(super) const MAX_COLUMNS: usize = 512;
/// The largest integer: both digits of it and of its negative are from −64 to 63.
pub(super) const LARGEST: f32 = 8127.0;
/// The largest norm of the integers of a key or a query: a dot product is below 46,011² < 2^31 (Cauchy–Schwarz), rounding
/// of the integers included.
pub(super) const LARGEST_NORM: f32 = 46_000.0;
/// The largest integer of a weight: its high digit is at most 127.
pub(super) const LARGEST_WEIGHT: f32 = 16_319.0;
/// The largest sum of the integers of a chunk's weights: a weighted sum of values is below 262,000 · 8,127 < 2^31.
pub(super) const LARGEST_WEIGHT_SUM: f32 = 260_000.0;

/// The digits of a block's keys or values, `128 · high + low`, and the scale of each position.
#[derive(Clone, Copy)]
pub(super) struct DigitPlanes<'a> {
    pub high: &'a [[u32; 16]],
    pub low: &'a [[u32; 16]],
    pub scales: &'a [[u32; 16]],
}

impl<'a> DigitPlanes<'a> {
    pub(super) fn new(words: &'a [u32]) -> Self {
        let Scaled { words, scales } = Scaled::new(words);
        let (high, low) = words.split_at(words.len() / 2);
        Self { high, low, scales }
    }

    /// Returns some lines of both digits.
    #[inline(always)]
    fn lines(self, lines: Range<usize>) -> [&'a [[u32; 16]]; 2] {
        [self.high, self.low].map(|plane| &plane[lines.clone()])
    }
}

/// Returns the scale of a rotated row and its inverse: both the largest magnitude and the norm must fit. The scale is
/// infinite if the squares are.
pub(super) fn row_scales(largest: f32, squares: f32) -> (f32, f32) {
    if squares < f32::MIN_POSITIVE {
        return (0.0, 0.0);
    }
    larger_scale(scales(largest, LARGEST), scales(float::sqrt(squares), LARGEST_NORM))
}

/// Returns the scale of some weights and its inverse: both the largest and the sum must fit.
pub(super) fn weight_scales(largest: f32, sum: f32) -> (f32, f32) {
    larger_scale(scales(largest, LARGEST_WEIGHT), scales(sum, LARGEST_WEIGHT_SUM))
}

fn larger_scale(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    if b.0 > a.0 { b } else { a }
}

/// The scale of a row and its inverse; NaN and zero if the row is not finite.
pub(super) struct RotatedRowScale {
    pub scale: f32,
    pub inverse: f32,
}

impl RotatedRowScale {
    /// Returns the scales of a rotated row.
    #[inline(always)]
    pub(super) fn of<S: Simd>(s: S, row: &[f32]) -> Self {
        let [mut largest, mut squares, mut poison] = [s.splat(0.0); 3];
        for x in row.as_chunks::<LANES>().0 {
            let x = s.load(x);
            largest = s.max(s.abs(x), largest);
            squares = s.add(squares, s.mul(x, x));
            poison = s.add(poison, s.sub(x, x));
        }
        let (scale, inverse) = row_scales(s.largest(largest), s.sum(squares));
        match s.sum(poison) == 0.0 && scale.is_finite() {
            true => Self { scale, inverse },
            false => Self { scale: f32::NAN, inverse: 0.0 },
        }
    }
}

/// [`Int14Dot::pack`] of some instructions.
type Pack = fn(&[i16; LANES]) -> [Factors; LANES / 4];

fn pack_for<D: Int14Dot>(_: D) -> Pack {
    D::pack
}

/// Queries as 14-bit integers.
pub(super) struct RotatedQueries<'a> {
    /// The factors of each query, query by query; there is room for [`QUERIES`].
    pub factors: &'a [Factors],
    /// Factors per query.
    pub count: usize,
    /// The scale of each query, divided by the width of the rotation.
    pub scales: [f32; QUERIES],
}

impl<'a> RotatedQueries<'a> {
    /// Rotates and quantizes `queries`. `scratch` has one float per two of the `columns` of every query.
    #[inline(always)]
    pub(super) fn new<S: IntegerDot<Vectors = S> + Simd, D: IntegerDot, M: Int14Dot>(
        instructions: Instructions<S, D, M>,
        queries: &[Query<'_>],
        columns: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        let pack = with_matrices!(instructions, |d| pack_for(d));
        let count = columns / 4;
        let mut scales = [0.0; QUERIES];
        let factors = scratch.as_chunks_mut().0;
        let mut row = [0.0; MAX_COLUMNS];
        let row = &mut row[..columns];
        for ((query, factors), scale) in queries.iter().zip(factors.chunks_exact_mut(count)).zip(&mut scales)
        {
            let (values, padding) = row.split_at_mut(query.values.len());
            values.copy_from_slice(query.values);
            padding.fill(0.0);
            *scale = rotate_and_quantize(instructions.vectors, row, |at, integers| {
                factors[at / 4..][..LANES / 4].copy_from_slice(&pack(integers));
            });
        }
        Self { factors, count, scales }
    }
}

/// Rotates a query in place and calls `take` with sixteen integers at a time and their column. Returns the scale, divided
/// by the width of the rotation; it is NaN if the row is not finite.
#[inline(always)]
pub(super) fn rotate_and_quantize<S: Simd>(
    s: S,
    row: &mut [f32],
    mut take: impl FnMut(usize, &[i16; LANES]),
) -> f32 {
    hadamard::transform_head(s, row);
    let RotatedRowScale { scale, inverse } = RotatedRowScale::of(s, row);
    let mut integers = [0; LANES];
    for (at, x) in (0..).step_by(LANES).zip(row.as_chunks::<LANES>().0) {
        let scaled = s.mul(s.load(x), s.splat(inverse));
        let clamped = s.min(s.max(scaled, s.splat(-LARGEST)), s.splat(LARGEST));
        s.store_shorts(s.round(clamped), &mut integers);
        take(at, &integers);
    }
    scale / hadamard::head_width(row.len()) as f32
}

/// Computes the dot products of a group's queries with the keys of some blocks, `V` vectors at a time.
#[inline(always)]
pub(super) fn score<D: Int14Dot, const V: usize>(
    d: D,
    queries: &RotatedQueries<'_>,
    group: Range<usize>,
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    scores: &mut [f32],
) {
    // Block by block, so that all queries of the group find the keys in L1.
    for place in seen.start * D::LANE_PARTS..seen.end * D::LANE_PARTS {
        let (block, lane_part) = (place / D::LANE_PARTS, place % D::LANE_PARTS);
        for part in groups(group.len(), (D::SUMS / V).min(3)) {
            let scores = &mut scores[part.start * CHUNK + block * BLOCK..];
            let first = group.start + part.start;
            match part.len() {
                1 => d.outline(Int14Score::<1, V> { queries, first, chunk, block, lane_part, scores }),
                2 => d.outline(Int14Score::<2, V> { queries, first, chunk, block, lane_part, scores }),
                _ if const { D::SUMS / V < 3 } => {}
                _ => d.outline(Int14Score::<3, V> { queries, first, chunk, block, lane_part, scores }),
            }
        }
    }
}

/// The dot products of `Q` queries from `first` on with the keys of a block, `V` vectors at a time.
struct Int14Score<'a, const Q: usize, const V: usize> {
    queries: &'a RotatedQueries<'a>,
    first: usize,
    chunk: &'a KvChunk<'a>,
    block: usize,
    lane_part: usize,
    scores: &'a mut [f32],
}

impl<D: Int14Dot, const Q: usize, const V: usize> Outlined<D> for Int14Score<'_, Q, V> {
    #[inline(always)]
    fn run(self, d: D) {
        let s = d.vectors();
        let Self { queries, first, chunk, block, lane_part, scores } = self;
        let count = queries.count;
        let scales = &queries.scales[first..][..Q];
        let left: [_; Q] = query_rows(queries.factors, first, count);
        let (keys, next) = chunk.keys(block);
        let ahead = DigitPlanes::new(or_same(next, keys));
        let keys = DigitPlanes::new(keys);
        for panel in (0..BLOCK / PANEL).step_by(V) {
            let panels = panel * count..(panel + V) * count;
            let (lines, ahead) = (keys.lines(panels.clone()), ahead.lines(panels));
            let mut sums = [[d.zero_sums(); Q]; V];
            add_lines(d, &mut sums, lines, ahead, lane_part, left);
            for (v, sums) in (panel..).zip(sums) {
                for q in 0..Q {
                    let scale = s.mul(s.load_words(&keys.scales[v]), s.splat(scales[q]));
                    let to = &mut scores[q * CHUNK..].as_chunks_mut().0[v];
                    d.store_scaled(sums[q], lane_part, scale, to);
                }
            }
        }
    }
}

/// Adds the products of `Q` rows and the lines of `V` vectors to the sums of a part of the lanes. The lines in `ahead` are
/// prefetched.
#[inline(always)]
fn add_lines<D: Int14Dot, const Q: usize, const V: usize>(
    d: D,
    sums: &mut [[D::Sums; Q]; V],
    lines: [&[[u32; 16]]; 2],
    ahead: [&[[u32; 16]]; 2],
    lane_part: usize,
    left: [&[Factors]; Q],
) {
    let s = d.vectors();
    let steps = D::steps(left[0]).len();
    let left = left.map(|row| &D::steps(row)[..steps]);
    let [high, low]: [[_; V]; 2] =
        lines.map(|lines| core::array::from_fn(|v| &D::steps(lines)[v * steps..][..steps]));
    let ahead = ahead.map(|lines| &D::steps(lines).as_chunks::<V>().0[..steps]);
    for step in 0..steps {
        for (high, low) in ahead[0][step].iter().zip(&ahead[1][step]) {
            s.prefetch(high);
            s.prefetch(low);
        }
        for v in 0..V {
            let factors = left.map(|row| &row[step]);
            d.add_products(&mut sums[v], &high[v][step], &low[v][step], lane_part, factors);
        }
    }
}

/// The weights of a query in a chunk as 14-bit integers.
struct QuantizedWeights {
    factors: [Factors; CHUNK / 4],
    scale: f32,
}

impl QuantizedWeights {
    const ZERO: Self = Self { factors: [[0.0; 2]; CHUNK / 4], scale: 0.0 };

    /// Multiplies a query's weights by the scales of the values and quantizes them.
    #[inline(always)]
    fn fill<S: Simd>(
        &mut self,
        (s, pack): (S, Pack),
        weights: &mut [f32],
        part: ChunkPositions,
        chunk: &KvChunk<'_>,
        seen: &Range<usize>,
    ) {
        let weights = ScaledWeights::new(s, weights, part, chunk, seen);
        self.scale = weights.quantize(s, |vector, integers| {
            self.factors.as_chunks_mut().0[vector] = pack(integers);
        });
    }
}

impl ScaledWeights<'_> {
    /// Calls `take` with sixteen integers at a time and the number of their vector. Returns the scale; it is NaN if a
    /// weight or the scale of a value is not finite.
    #[inline(always)]
    pub(super) fn quantize<S: Simd>(&self, s: S, mut take: impl FnMut(usize, &[i16; LANES])) -> f32 {
        let mut integers = [0; LANES];
        let (scale, inverse) = weight_scales(self.largest, self.sum);
        for (vector, weight) in self.vectors.clone().zip(&self.weights[self.vectors.clone()]) {
            s.store_shorts(s.round(s.mul(s.load(weight), s.splat(inverse))), &mut integers);
            take(vector, &integers);
        }
        scale + self.poison
    }
}

/// Computes the weighted sums of some blocks' values for a group's queries.
#[inline(always)]
pub(super) fn mix<S: IntegerDot<Vectors = S> + Simd, D: IntegerDot, M: Int14Dot, const V: usize>(
    instructions: Instructions<S, D, M>,
    columns: usize,
    parts: &[ChunkPositions],
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    weights: &mut [f32],
    sums: &mut [f32],
) {
    let pack = with_matrices!(instructions, |d| pack_for(d));
    let mut left = [const { QuantizedWeights::ZERO }; GROUP];
    let left = &mut left[..parts.len()];
    for (q, (left, part)) in left.iter_mut().zip(parts).enumerate() {
        left.fill((instructions.vectors, pack), &mut weights[q * CHUNK..], *part, chunk, seen);
    }
    with_matrices!(instructions, |d| mix_strips::<_, V>(d, columns, left, chunk, seen, sums));
}

/// Computes the sums of all columns, strip by strip, so that all queries of the group find the values in L1.
#[inline(always)]
fn mix_strips<D: Int14Dot, const V: usize>(
    d: D,
    columns: usize,
    left: &[QuantizedWeights],
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
    let strips = columns / 16 / V;
    for vector in (0..strips).map(|strip| strip * V) {
        mix_strip::<D, V>(d, left, (columns, vector), chunk, seen, sums);
    }
    for vector in strips * V..columns / 16 {
        mix_strip::<D, 1>(d, left, (columns, vector), chunk, seen, sums);
    }
}

/// Computes the sums of `V` column vectors for a group's queries.
#[inline(always)]
fn mix_strip<D: Int14Dot, const V: usize>(
    d: D,
    left: &[QuantizedWeights],
    (columns, vector): (usize, usize),
    chunk: &KvChunk<'_>,
    seen: &Range<usize>,
    sums: &mut [f32],
) {
    for part in groups(left.len(), (D::SUMS / V).min(3)) {
        let sums = &mut sums[part.start * columns + vector * 16..];
        let left = &left[part];
        macro_rules! strips {
            ($queries:literal) => {
                for lane_part in 0..D::LANE_PARTS {
                    let (left, sums) = (left.first_chunk::<$queries>(), &mut *sums);
                    d.outline(Int14Strip::<_, V> { left, columns, vector, chunk, seen, lane_part, sums });
                }
            };
        }
        match left.len() {
            1 => strips!(1),
            2 => strips!(2),
            _ if const { D::SUMS / V < 3 } => {}
            _ => strips!(3),
        }
    }
}

/// The sums of `V` column vectors for `Q` queries.
struct Int14Strip<'a, const Q: usize, const V: usize> {
    left: Option<&'a [QuantizedWeights; Q]>,
    columns: usize,
    vector: usize,
    chunk: &'a KvChunk<'a>,
    seen: &'a Range<usize>,
    lane_part: usize,
    sums: &'a mut [f32],
}

impl<D: Int14Dot, const Q: usize, const V: usize> Outlined<D> for Int14Strip<'_, Q, V> {
    #[inline(always)]
    fn run(self, d: D) {
        let s = d.vectors();
        let Self { left, columns, vector, chunk, seen, lane_part, sums: out } = self;
        let Some(left) = left else { return };
        let mut sums = [[d.zero_sums(); Q]; V];
        for block in seen.clone() {
            let (values, next) = chunk.values(block);
            let [lines, ahead] = [values, or_same(next, values)]
                .map(|words| DigitPlanes::new(words).lines(vector * WORDS..(vector + V) * WORDS));
            let left = left.each_ref().map(|left| &left.factors[block * WORDS..][..WORDS]);
            add_lines(d, &mut sums, lines, ahead, lane_part, left);
        }
        for (v, sums) in sums.into_iter().enumerate() {
            for q in 0..Q {
                let to = &mut out[q * columns..].as_chunks_mut().0[v];
                d.store_scaled(sums[q], lane_part, s.splat(left[q].scale), to);
            }
        }
    }
}
