//! Tables of a batch: which keys each query attends to, and the tiles that blocks process.

use std::borrow::Cow;
use std::ops::Range;

use siskin_device::DevicePtr;
use siskin_graph::{Attention, AttentionMask, BatchSequences};

use super::linformer;
use crate::batch_tables::AttentionLists;
use crate::command_builder::CommandBuilder;
use crate::ops::OpCall;

/// Runs of keys per query for sliding windows with attention sinks, and the minimum where there may be more.
const RUNS: usize = 2;
/// Integers per tile, as kernels read them.
const TILE_FIELDS: usize = 8;

/// Returns the sequences whose rows are keys.
pub(super) fn key_sequences<'a>(call: &OpCall<'a>, description: &Attention) -> Cow<'a, BatchSequences> {
    let texts = call.keys.batch;
    match &description.projection {
        Some(projection) => Cow::Owned(linformer::projected_sequences(texts, projection)),
        None => Cow::Borrowed(texts),
    }
}

/// Returns the maximum number of runs of keys per query.
fn max_runs(description: &Attention, keys: &BatchSequences) -> usize {
    match description.attention_mask {
        AttentionMask::LongformerLocal(_) => {
            let of_text = |span: &Range<usize>| span.clone().filter(|&row| keys.is_marked(row)).count();
            let max_runs_of_row = keys.spans().map(of_text).max().unwrap_or(0);
            (max_runs_of_row + 1).next_power_of_two().max(RUNS)
        }
        AttentionMask::BigBird { .. } => RUNS + 1,
        AttentionMask::StreamingLlm { .. } => RUNS,
        AttentionMask::Causal(_)
        | AttentionMask::CausalEncoder(_)
        | AttentionMask::Full
        | AttentionMask::LocalWindow(_)
        | AttentionMask::LongformerGlobal
        | AttentionMask::Linformer
        | AttentionMask::CrossAttention => 1,
    }
}

/// The arguments of kernels that describe the sequences of an attention.
#[derive(Clone, Copy, Debug)]
pub struct SequenceTables {
    /// The runs of keys that each query attends to.
    pub visible: DevicePtr,
    /// The maximum number of runs of a query.
    pub runs: usize,
    /// The tiles of queries.
    pub query_tiles: DevicePtr,
    /// The number of tiles of queries.
    pub query_count: usize,
    /// The tiles of keys.
    pub key_tiles: DevicePtr,
    /// The number of tiles of keys.
    pub key_count: usize,
}

/// Returns the runs of keys that each query attends to, row by row, sequence after sequence.
fn visible_runs(
    description: &Attention,
    queries: &BatchSequences,
    keys: &BatchSequences,
) -> Vec<Vec<Range<usize>>> {
    let attends =
        |row| description.attention_mask != AttentionMask::LongformerGlobal || queries.is_marked(row);
    let of_text = |text: usize| {
        let span = queries.sequences[text].rows.clone();
        span.clone().map(move |row| match attends(row) {
            true => description.key_runs(queries, keys, text, row - span.start),
            false => Vec::new(),
        })
    };
    (0..queries.sequences.len()).flat_map(of_text).collect()
}

/// Returns tiles of queries, those with the most keys first, and tiles of keys.
fn tiles(
    tile: usize,
    visible: &[Vec<Range<usize>>],
    queries: &BatchSequences,
    keys: &BatchSequences,
) -> [Vec<[i32; TILE_FIELDS]>; 2] {
    let (mut of_queries, mut of_keys) = (Vec::new(), Vec::new());
    for (own, other) in queries.spans().zip(keys.spans()) {
        let all = [own.len(), other.len()];
        for start in (0..own.len()).step_by(tile) {
            let rows = start..own.len().min(start + tile);
            let runs = || visible[own.start + rows.start..own.start + rows.end].iter().flatten();
            let first = runs().map(|run| run.start).min().unwrap_or(0);
            let end = runs().map(|run| run.end).max().unwrap_or(0).max(first);
            let numbers = [own.start + start, rows.len(), own.start, other.start, first, end, all[0], all[1]];
            of_queries.push(numbers.map(|number| number as i32));
        }
        for start in (0..other.len()).step_by(tile) {
            let end = other.len().min(start + tile);
            let is_visible =
                |row: &usize| visible[own.start + row].iter().any(|run| run.start < end && start < run.end);
            let first = (0..own.len()).find(is_visible).unwrap_or(0);
            let last = (first..own.len()).rev().find(is_visible).map_or(first, |row| row + 1);
            let numbers =
                [other.start + start, end - start, other.start, own.start, first, last, all[0], all[1]];
            of_keys.push(numbers.map(|number| number as i32));
        }
    }
    let work = |tile: &[i32; TILE_FIELDS]| std::cmp::Reverse(tile[5] - tile[4]);
    of_queries.sort_by_key(work);
    of_keys.sort_by_key(work);
    [of_queries, of_keys]
}

/// Pads with empty tiles, so that batches of similar shape have equally many.
fn padded(mut tiles: Vec<[i32; TILE_FIELDS]>) -> Vec<i32> {
    tiles.resize(tiles.len().next_multiple_of(32), [0; TILE_FIELDS]);
    tiles.concat()
}

/// Returns true if the mask depends on more than the lengths of sequences.
fn depends_on_marks(texts: &BatchSequences) -> bool {
    texts.rows.iter().any(|row| row.marked) || texts.sequences.iter().any(|sequence| sequence.prefix > 0)
}

/// Returns the mask as `max_runs_of_row` runs per query, tiles of queries and tiles of keys.
fn lists(
    description: &Attention,
    tile: usize,
    max_runs_of_row: usize,
    queries: &BatchSequences,
    keys: &BatchSequences,
) -> AttentionLists {
    let visible = visible_runs(description, queries, keys);
    let [of_queries, of_keys] = tiles(tile, &visible, queries, keys);
    let mut flat = Vec::with_capacity(2 * max_runs_of_row * visible.len());
    for (row, runs) in visible.iter().enumerate() {
        flat.extend(runs.iter().flat_map(|run| [run.start as i32, run.end as i32]));
        flat.resize(2 * max_runs_of_row * (row + 1), 0);
    }
    AttentionLists { visible: flat, query_tiles: padded(of_queries), key_tiles: padded(of_keys) }
}

/// Returns the tables of an attention whose blocks own `tile` rows.
pub fn tables(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    description: &Attention,
    tile: usize,
) -> SequenceTables {
    let (queries, keys) = (call.sequences(), key_sequences(call, description));
    let keys = &*keys;
    let name = |what: &str| {
        let sides = (call.queries.name, call.keys.name);
        let sums = description.projection.map(|projection| projection.count);
        format!("{what} {tile} {sides:?} {:?} {sums:?}", description.attention_mask)
    };
    let max_runs_of_row = max_runs(description, keys);
    let made = std::cell::OnceCell::new();
    let (tables, key) = (&mut work.tables, || {
        let spans = |texts: &BatchSequences| texts.spans().cloned().collect::<Vec<_>>();
        format!("{} {:?} {:?}", name(""), spans(queries), spans(keys))
    });
    let kept = tables.cache().clone();
    let lists = || {
        made.get_or_init(|| {
            let make = || lists(description, tile, max_runs_of_row, queries, keys);
            // Marks and prefixes may differ between sequences of equal lengths.
            if depends_on_marks(queries) || depends_on_marks(keys) {
                make().into()
            } else {
                kept.find(key(), make)
            }
        })
    };
    let count = |texts: &BatchSequences| {
        let tiles: usize = texts.spans().map(|span| span.len().div_ceil(tile)).sum();
        tiles.next_multiple_of(32)
    };
    SequenceTables {
        visible: tables.ints(&name("seen"), || lists().visible.clone()),
        runs: max_runs_of_row,
        query_tiles: tables.ints(&name("query tiles"), || lists().query_tiles.clone()),
        query_count: count(queries),
        key_tiles: tables.ints(&name("key tiles"), || lists().key_tiles.clone()),
        key_count: count(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(attention_mask: AttentionMask) -> Attention {
        Attention { kv_heads: 1, attention_mask, ..Attention::causal(2, 8) }
    }

    fn texts(lengths: &[usize]) -> BatchSequences {
        let mut texts = BatchSequences::default();
        lengths.iter().for_each(|&length| texts.push(&vec![0; length], &[]));
        texts
    }

    #[test]
    fn tiles_cover_exactly_the_visible_pairs() {
        for attention_mask in [
            AttentionMask::Causal(None),
            AttentionMask::Causal(Some(5)),
            AttentionMask::Full,
            AttentionMask::LocalWindow(3),
        ] {
            let texts = texts(&[1, 65, 200]);
            let seen = visible_runs(&attention(attention_mask), &texts, &texts);
            let [of_queries, of_keys] = tiles(64, &seen, &texts, &texts);
            let rows = |tiles: &[[i32; TILE_FIELDS]]| tiles.iter().map(|tile| tile[1]).sum::<i32>();
            assert_eq!([rows(&of_queries), rows(&of_keys)], [266, 266], "every row once");
            for tile in of_queries {
                let [first, count, base, _, key_first, key_end, ..] = tile.map(|number| number as usize);
                let runs: Vec<_> = seen[first..first + count].iter().flatten().collect();
                assert_eq!(
                    runs.iter().map(|run| run.start).min(),
                    Some(key_first),
                    "{attention_mask:?} {tile:?}"
                );
                assert_eq!(
                    runs.iter().map(|run| run.end).max(),
                    Some(key_end),
                    "{attention_mask:?} {tile:?}"
                );
                assert!(first >= base);
            }
            for tile in of_keys {
                let [first, count, base, query_base, query_first, query_end, ..] =
                    tile.map(|number| number as usize);
                let own = first - base..first - base + count;
                let length = tile[6] as usize;
                for row in 0..length {
                    let visible_here =
                        seen[query_base + row].iter().any(|run| run.start < own.end && own.start < run.end);
                    let inside = (query_first..query_end).contains(&row);
                    assert!(!visible_here || inside, "{attention_mask:?} {tile:?} {row}");
                }
            }
        }
    }

    #[test]
    fn the_longest_tiles_are_launched_first() {
        let texts = texts(&[300]);
        let seen = visible_runs(&attention(AttentionMask::Causal(None)), &texts, &texts);
        let [of_queries, _] = tiles(64, &seen, &texts, &texts);
        assert!(of_queries.is_sorted_by_key(|tile| std::cmp::Reverse(tile[5] - tile[4])));
    }
}
