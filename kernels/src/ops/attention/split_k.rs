//! Split-K attention (Flash-Decoding): the chunks of a query's keys are computed by several threads, and their partial
//! results are merged in order.

use super::flash::finish;
use super::online_softmax::{SoftmaxState, merge};
use super::padded;
use crate::ops::instantiate::instantiate;
use crate::simd::Simd;

/// Returns the number of floats in the partial result of a query for one chunk: the column sums, the maximum
/// and the sum of the weights.
pub const fn part_size(head_size: usize) -> usize {
    padded(head_size) + 2
}

/// Writes the partial result of a sink, which follows those of all chunks.
pub fn sink_part(sink: f32, part: &mut [f32]) {
    part.fill(0.0);
    if let [.., maximum, sum] = part {
        (*maximum, *sum) = (sink, 1.0);
    }
}

/// Merges the partial results of a query's chunks, in order, into its output. `scratch` has [`padded`]
/// floats.
pub type Merge = fn(usize, &[f32], &mut [f32], &mut [f32]);

instantiate!(MERGE_LIST: Merge = "merge" merge_chunks(
    head_size: usize,
    parts: &[f32],
    scratch: &mut [f32],
    out: &mut [f32]
));

/// Merges the [`KeySpan::Chunk`](super::KeySpan::Chunk) results of one query in chunk order, and divides by the sum.
#[inline(always)]
fn merge_chunks<S: Simd>(s: S, head_size: usize, parts: &[f32], totals: &mut [f32], out: &mut [f32]) {
    let columns = padded(head_size);
    let totals = &mut totals[..columns];
    let mut state = SoftmaxState::EMPTY;
    for part in parts.chunks_exact(part_size(head_size)) {
        let chunk = SoftmaxState { maximum: part[columns], sum: part[columns + 1] };
        merge(s, &mut state, chunk, totals, &part[..columns]);
    }
    finish(s, state, totals, out);
}
