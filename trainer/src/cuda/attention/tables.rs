//! Tables of a batch: which keys each query attends to, and the tiles that blocks process.

use std::borrow::Cow;
use std::ops::Range;

use siskin_device::DevicePtr;
use siskin_graph::{Attention, AttentionMask};

use crate::batch::BatchSequences;
use crate::cuda::batch_tables::AttentionLists;
use crate::cuda::command_builder::CommandBuilder;
use crate::cuda::op::call::OpCall;
use crate::grad::runs;

use super::linformer;

/// Runs of keys per query for sliding windows with attention sinks, and the minimum where there may be more.
const RUNS: usize = 2;
/// Integers per tile, as kernels read them.
pub(super) const TILE_FIELDS: usize = 8;

/// Returns the sequences whose rows are keys.
pub(super) fn key_sequences<'a>(call: &OpCall<'a>, description: &Attention) -> Cow<'a, BatchSequences> {
    let texts = call.input(1).side.sequences(call.batch);
    match &description.projection {
        Some(projection) => Cow::Owned(linformer::projected_sequences(texts, projection)),
        None => Cow::Borrowed(texts),
    }
}

/// Returns the maximum number of runs of keys per query.
fn max_runs(description: &Attention, keys: &BatchSequences) -> usize {
    match description.attention_mask {
        AttentionMask::LongformerLocal(_) => {
            let of_text = |span: &Range<usize>| span.clone().filter(|&row| is_marked(keys, row)).count();
            let max_runs_of_row = keys.spans().map(of_text).max().unwrap_or(0);
            (max_runs_of_row + 1).next_power_of_two().max(RUNS)
        }
        AttentionMask::BigBird { .. } => RUNS + 1,
        AttentionMask::StreamingLlm { .. } => RUNS,
        _ => 1,
    }
}

pub(super) fn is_marked(texts: &BatchSequences, row: usize) -> bool {
    texts.rows.get(row).is_some_and(|row| row.marked)
}

/// The arguments of kernels that describe the sequences of an attention.
pub(super) struct SequenceTables {
    pub(super) visible: DevicePtr,
    pub(super) runs: usize,
    pub(super) query_tiles: DevicePtr,
    pub(super) query_count: usize,
    pub(super) key_tiles: DevicePtr,
    pub(super) key_count: usize,
}

/// Returns the runs of keys that each query attends to, row by row, sequence after sequence.
pub(super) fn visible_runs(
    description: &Attention,
    queries: &BatchSequences,
    keys: &BatchSequences,
) -> Vec<Vec<Range<usize>>> {
    let attends =
        |row| description.attention_mask != AttentionMask::LongformerGlobal || is_marked(queries, row);
    let of_text = |text: usize| {
        let span = queries.sequences[text].rows.clone();
        span.clone().map(move |row| match attends(row) {
            true => runs(description, queries, keys, text, row - span.start),
            false => Vec::new(),
        })
    };
    (0..queries.sequences.len()).flat_map(of_text).collect()
}

/// Returns tiles of queries, those with the most keys first, and tiles of keys.
pub(super) fn tiles(
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
    texts.rows.iter().any(|row| row.marked)
        || texts.sequences.iter().any(|sequence| sequence.bidirectional_prefix > 0)
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

pub(super) fn tables(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    description: &Attention,
    tile: usize,
) -> SequenceTables {
    let (queries, keys) = (call.sequences(), key_sequences(call, description));
    let keys = &*keys;
    let name = |what: &str| {
        let sides = (call.name(""), call.input(1).side);
        let sums = description.projection.map(|projection| projection.count);
        format!("{what} {tile} {sides:?} {:?} {sums:?}", description.attention_mask)
    };
    let max_runs_of_row = max_runs(description, keys);
    let made = std::cell::OnceCell::new();
    let (tables, key) = (&mut work.tables, || {
        let spans = |texts: &BatchSequences| texts.spans().cloned().collect::<Vec<_>>();
        format!("{} {:?} {:?}", name(""), spans(queries), spans(keys))
    });
    let kept = tables.cache.clone();
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
