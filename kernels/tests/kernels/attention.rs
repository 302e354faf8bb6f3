use crate::common::{TestRandom, bits, tables};
use siskin_kernels::ops::attention::{
    AttentionArguments, BLOCK, CHUNK, CacheType, HIDDEN, HeadCache, KeySpan, PANEL, QUERIES, Query,
    part_size, reference, scratch_size, sink_part, store,
};

pub(crate) struct Blocks {
    keys: Vec<Vec<u32>>,
    values: Vec<Vec<u32>>,
}

impl HeadCache for Blocks {
    fn block(&self, block: usize) -> (&[u32], &[u32]) {
        (&self.keys[block], &self.values[block])
    }
}

/// A cache of `length` positions; slots after the end hold NaN, which must not reach a result.
pub(crate) fn cache(
    cache: CacheType,
    head_size: usize,
    length: usize,
    random: &mut TestRandom,
) -> (Blocks, Vec<Vec<f32>>) {
    let words = cache.words(head_size);
    let count = length.div_ceil(BLOCK);
    let mut blocks =
        Blocks { keys: vec![vec![u32::MAX; words]; count], values: vec![vec![u32::MAX; words]; count] };
    let mut rows = Vec::new();
    for position in 0..length {
        let (key, value) = (random.vector(head_size, 1.0), random.vector(head_size, 1.0));
        let block = position / BLOCK;
        store(cache, position % BLOCK, &[(&key, &value)], &mut blocks.keys[block], &mut blocks.values[block]);
        rows.extend([key, value]);
    }
    (blocks, rows)
}

#[test]
fn a_panel_is_stored_as_its_pairs_one_by_one() {
    let mut random = TestRandom::new(17);
    for &(cache, name) in CacheType::NAMES {
        for head_size in [2, 6, 16, 20, 32, 64, 80, 130, 512] {
            let rows: [_; PANEL] =
                core::array::from_fn(|_| [random.vector(head_size, 2.0), random.vector(head_size, 1.0)]);
            let pairs = rows.each_ref().map(|[key, value]| (key.as_slice(), value.as_slice()));
            let empty = || [vec![0; cache.words(head_size)], vec![0; cache.words(head_size)]];
            for slot in [0, 16, 48] {
                let ([mut keys, mut values], [mut want_keys, mut want_values]) = (empty(), empty());
                store(cache, slot, &pairs, &mut keys, &mut values);
                for (slot, pair) in (slot..).zip(pairs) {
                    store(cache, slot, &[pair], &mut want_keys, &mut want_values);
                }
                assert!(keys == want_keys, "keys, {name}, {head_size} columns, slot {slot}");
                assert!(values == want_values, "values, {name}, {head_size} columns, slot {slot}");
            }
        }
    }
}

pub(crate) fn run(
    table: &siskin_kernels::ops::Kernels,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
) -> Vec<Vec<f32>> {
    let mut scratch = vec![f32::NAN; scratch_size(arguments.head_size)];
    let mut out = vec![vec![0.0; arguments.head_size]; queries.len()];
    let mut rows: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
    table.attention()(arguments, queries, cache, KeySpan::Whole, &mut scratch, &mut rows);
    assert!(bits(&out.concat()) == bits(&chunk_by_chunk(table, arguments, queries, cache).concat()));
    out
}

/// Computes the same with split-K, each chunk in a call of its own.
fn chunk_by_chunk(
    table: &siskin_kernels::ops::Kernels,
    arguments: &AttentionArguments,
    queries: &[Query<'_>],
    cache: &dyn HeadCache,
) -> Vec<Vec<f32>> {
    let size = part_size(arguments.head_size);
    let mut scratch = vec![f32::NAN; scratch_size(arguments.head_size)];
    let last = queries.iter().map(|query| query.last).max().unwrap();
    let mut parts = vec![Vec::new(); queries.len()];
    for chunk in 0..=last / CHUNK {
        let mut out = vec![vec![0.0; size]; queries.len()];
        let mut rows: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
        table.attention()(arguments, queries, cache, KeySpan::Chunk(chunk), &mut scratch, &mut rows);
        parts.iter_mut().zip(out).for_each(|(parts, out)| parts.extend(out));
    }
    let merged = parts.iter_mut().zip(queries).map(|(parts, query)| {
        if let Some(sink) = query.sink {
            let mut part = vec![f32::NAN; size];
            sink_part(sink, &mut part);
            parts.extend(part);
        }
        let mut out = vec![0.0; arguments.head_size];
        table.merge()(arguments.head_size, parts, &mut scratch, &mut out);
        out
    });
    merged.collect()
}

#[test]
fn every_kernel_gives_the_reference_bits() {
    let mut random = TestRandom::new(12);
    for (head_size, length) in
        [(16, 5), (24, 70), (64, 300), (64, 600), (80, 257), (96, 70), (128, 70), (256, 130), (512, 40)]
    {
        for cache_type in [CacheType::Int8, CacheType::F16, CacheType::F32, CacheType::Int14] {
            let (blocks, _) = cache(cache_type, head_size, length, &mut random);
            let bias = random.vector(length, 2.0);
            let cases = [
                (0.0, 0.0, length, 0, false),
                (50.0, 0.0, 40, 0, false),
                (0.0, 0.25, length, 0, false),
                (0.0, 0.0, 40, 30, true),
                (0.0, 0.25, length, length, true),
            ];
            for (softcap, slope, window, ahead, biased) in cases {
                let arguments = AttentionArguments { head_size, scale: 0.2, softcap, cache: cache_type };
                let rows: Vec<Vec<f32>> = (0..QUERIES).map(|_| random.vector(head_size, 2.0)).collect();
                let queries: Vec<Query<'_>> = rows
                    .iter()
                    .enumerate()
                    .map(|(i, values)| {
                        let position = length - 1 - (i * 3 % 64).min(length - 1);
                        let first = (position + 1).saturating_sub(window);
                        let last = (position + ahead).min(length - 1);
                        let bias = if biased { &bias[..=last] } else { &[] };
                        let sink = (i % 3 == 1).then_some(0.5);
                        Query { values, position, first, last, slope, bias, also: [None; 2], sink }
                    })
                    .collect();
                for count in [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, QUERIES - 1, QUERIES] {
                    for table in tables() {
                        let got = run(&table, &arguments, &queries[..count], &blocks);
                        for (query, got) in queries.iter().zip(&got) {
                            let mut want = vec![0.0; head_size];
                            let (mut scores, mut columns) = (vec![0.0; CHUNK], vec![0.0; 2 * head_size]);
                            reference(&arguments, query, &blocks, &mut scores, &mut columns, &mut want);
                            let isa = table.cpu().features();
                            assert!(
                                bits(got) == bits(&want),
                                "{head_size} {length} {cache_type:?} {isa} {count}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn the_result_is_the_softmax_average() {
    let mut random = TestRandom::new(13);
    let (blocks, rows) = cache(CacheType::F32, 32, 400, &mut random);
    let values = random.vector(32, 1.0);
    let query = Query::at(399, &values);
    let arguments = AttentionArguments { head_size: 32, scale: 0.5, softcap: 0.0, cache: CacheType::F32 };
    let got = run(&tables()[0], &arguments, &[query], &blocks);
    let dot = |key: &[f32]| values.iter().zip(key).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let weights: Vec<f64> = rows.chunks(2).map(|row| (dot(&row[0]) * 0.5).exp()).collect();
    let total: f64 = weights.iter().sum();
    for column in 0..32 {
        let want: f64 =
            rows.chunks(2).zip(&weights).map(|(row, w)| f64::from(row[1][column]) * w).sum::<f64>() / total;
        assert!((f64::from(got[0][column]) - want).abs() < 1e-5);
    }
}

/// Keys 0 to 9 and every 17th key of a window are masked; some queries have further ranges, and some have a
/// sink.
#[test]
fn other_runs_and_sinks_are_part_of_the_average() {
    let mut random = TestRandom::new(14);
    let (head_size, length) = (24, 700);
    let bias: Vec<f32> = (0..length).map(|i| if i < 10 || i % 17 == 0 { HIDDEN } else { 0.0 }).collect();
    let values: Vec<Vec<f32>> = (0..QUERIES).map(|_| random.vector(head_size, 2.0)).collect();
    for cache_type in [CacheType::Int8, CacheType::F16, CacheType::F32, CacheType::Int14] {
        let (blocks, rows) = cache(cache_type, head_size, length, &mut random);
        let arguments = AttentionArguments { head_size, scale: 0.2, softcap: 0.0, cache: cache_type };
        let query = |(i, values)| {
            let (first, last) = (4 + 5 * i, 9 + 10 * i);
            let second = (i % 7 != 3 || i == 0).then_some((500, 500 + 4 * i));
            let also = [second, second.filter(|_| i % 2 == 0).map(|_| (690, 690 + i / 5))];
            let sink = (i % 4 == 2).then_some(1.5);
            // For some queries, the bias also applies to the other ranges.
            let bias = if i % 5 == 4 { &bias } else { &bias[..=last] };
            Query { values, position: last, first, last, slope: 0.0, bias, also, sink }
        };
        let queries: Vec<_> = values.iter().map(Vec::as_slice).enumerate().map(query).collect();
        for table in tables() {
            for count in [1, 5, QUERIES] {
                let mut scratch = vec![f32::NAN; scratch_size(head_size)];
                let mut out = vec![vec![0.0; head_size]; count];
                let mut places: Vec<&mut [f32]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                let queries = &queries[..count];
                table.attention()(&arguments, queries, &blocks, KeySpan::Whole, &mut scratch, &mut places);
                for (query, got) in queries.iter().zip(&out) {
                    let mut want = vec![0.0; head_size];
                    let (mut scores, mut columns) = (vec![0.0; CHUNK], vec![0.0; 2 * head_size]);
                    reference(&arguments, query, &blocks, &mut scores, &mut columns, &mut want);
                    assert!(bits(got) == bits(&want), "{cache_type:?} {}", table.cpu().features());
                    let average = average(query, &rows, 0.2);
                    let tolerance = if cache_type == CacheType::Int8 { 0.03 } else { 2e-3 };
                    let close = |(got, want): (&f32, f64)| (f64::from(*got) - want).abs() < tolerance;
                    assert!(got.iter().zip(average).all(close), "{cache_type:?} {got:?}");
                }
            }
        }
    }
}

/// Returns the softmax average over the keys that a query attends to, in double precision.
fn average(query: &Query<'_>, rows: &[Vec<f32>], scale: f64) -> Vec<f64> {
    let others = query.also.iter().flatten().flat_map(|&(first, last)| first..=last);
    let is_seen = |i: &usize| query.bias.get(*i).is_none_or(|&bias| bias == 0.0);
    let seen = (query.first..=query.last).chain(others).filter(is_seen);
    let mut sums = vec![0.0; query.values.len() + 1];
    sums[query.values.len()] = query.sink.map_or(0.0, |sink| f64::from(sink).exp());
    for position in seen {
        let (key, value) = (&rows[2 * position], &rows[2 * position + 1]);
        let dot: f64 = query.values.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let weight = (dot * scale).exp();
        for (sum, x) in sums.iter_mut().zip(value.iter().chain(&[1.0])) {
            *sum += weight * f64::from(*x);
        }
    }
    let total = sums.pop().unwrap_or_default();
    sums.iter().map(|sum| sum / total).collect()
}

#[test]
fn a_value_that_is_not_finite_does_not_hide() {
    let mut random = TestRandom::new(15);
    let query = random.vector(32, 1.0);
    for cache_type in [CacheType::Int8, CacheType::F16, CacheType::F32, CacheType::Int14] {
        for bad in [f32::NAN, f32::INFINITY] {
            let (mut blocks, _) = cache(cache_type, 32, 90, &mut random);
            let (keys, values) = (&mut blocks.keys[1], &mut blocks.values[1]);
            store(cache_type, 70 % BLOCK, &[(&random.vector(32, 1.0), &[bad; 32])], keys, values);
            let arguments = AttentionArguments { head_size: 32, scale: 0.2, softcap: 0.0, cache: cache_type };
            for table in tables() {
                let isa = table.cpu().features();
                // One query at a time, and all together.
                for positions in [69..70, 80..81, 60..80] {
                    let queries: Vec<_> = positions.map(|position| Query::at(position, &query)).collect();
                    let got = run(&table, &arguments, &queries, &blocks);
                    for (query, got) in queries.iter().zip(got) {
                        let is_good = got.iter().all(|x| x.is_finite());
                        let is_bad = got.iter().all(|x| !x.is_finite());
                        let sees = query.position >= 70;
                        assert!(
                            if sees { is_bad } else { is_good },
                            "{cache_type:?} {isa} {}",
                            query.position
                        );
                    }
                }
            }
        }
    }
}

/// Returns what one query gets from a cache with the given keys, with the values 0, 1, 2 and so on, from each kernel and
/// the reference.
fn over_keys(cache: CacheType, query: &[f32], keys: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let head_size = query.len();
    let words = cache.words(head_size);
    let mut blocks = Blocks { keys: vec![vec![0; words]], values: vec![vec![0; words]] };
    for (slot, key) in keys.iter().enumerate() {
        let value = vec![slot as f32; head_size];
        store(cache, slot, &[(key, &value)], &mut blocks.keys[0], &mut blocks.values[0]);
    }
    let arguments = AttentionArguments { head_size, scale: 1.0, softcap: 0.0, cache };
    let query = Query::at(keys.len() - 1, query);
    let mut all: Vec<_> = tables()
        .iter()
        .map(|table| run(table, &arguments, &[query; QUERIES], &blocks).swap_remove(0))
        .collect();
    let (mut scores, mut columns) = (vec![0.0; CHUNK], vec![0.0; 2 * head_size]);
    let mut want = vec![0.0; head_size];
    reference(&arguments, &query, &blocks, &mut scores, &mut columns, &mut want);
    all.push(want);
    all
}

#[test]
fn the_largest_dot_products_of_int14_do_not_wrap() {
    // Rotated, one impulse has the same magnitude in every column: the norm is the limit, not the largest element.
    for head_size in [64, 128, 256, 512] {
        let impulse = |size: f32| {
            let mut row = vec![0.0; head_size];
            row[3] = size;
            row
        };
        let keys = [impulse(-2.0), impulse(0.0), impulse(2.0)];
        for out in over_keys(CacheType::Int14, &impulse(2.0), &keys) {
            // The weights are those of the scores −4, 0 and 4.
            let weights = [-4.0_f64, 0.0, 4.0].map(f64::exp);
            let want = (weights[1] + 2.0 * weights[2]) / weights.iter().sum::<f64>();
            assert!((f64::from(out[0]) - want).abs() < 1e-3, "{head_size}: {} {want}", out[0]);
        }
    }
}

#[test]
fn rows_beyond_the_range_of_int14_are_zero_or_not_finite() {
    let row = |x: f32| vec![x; 64];
    for out in over_keys(CacheType::Int14, &row(1.0), &[row(1e-25), row(0.0), row(-1e-30)]) {
        assert!(out.iter().all(|x| (x - 1.0).abs() < 1e-4), "equal weights of 0, 1 and 2: {}", out[0]);
    }
    for bad in [row(1e25), row(f32::INFINITY), row(f32::NAN)] {
        for out in over_keys(CacheType::Int14, &row(1.0), &[row(1.0), bad.clone()]) {
            assert!(out.iter().all(|x| x.is_nan()), "{:?}", out[0]);
        }
        for out in over_keys(CacheType::Int14, &bad, &[row(1.0), row(2.0)]) {
            assert!(out.iter().all(|x| x.is_nan()), "{:?}", out[0]);
        }
    }
}
