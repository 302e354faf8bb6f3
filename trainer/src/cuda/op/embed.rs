//! Embedding lookups.

use siskin_cuda::ops::OpCall;
use siskin_cuda::ops::embed::{EmbeddingLookup, indices};
use siskin_cuda::{CommandBuilder, int};
use siskin_device::{GridSize, KernelArgument};
use siskin_graph::op::{Embed, EmbedPosition, EmbedSegment};

use super::{CudaBackward, OpBackward};

/// Blocks of the kernel, which loop over the rows of a table: as many as any device runs at once.
const MAX_BLOCKS: usize = 2048;

fn lookup(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    lookup: &dyn EmbeddingLookup,
    back: &OpBackward<'_>,
) {
    let to = back.weight_gradient(lookup.table());
    if to == 0 {
        return;
    }
    let name = call.table_name(&lookup.index_name());
    let IndexGroups { distinct, starts, order, count } = group_by_index(&indices(call, lookup));
    let lists = [("distinct", distinct), ("starts", starts), ("order", order), ("count", vec![count])];
    let mut places = Vec::new();
    for (what, list) in lists {
        places.push(KernelArgument::Ptr(work.tables.ints(&format!("{what} {name}"), || list)));
    }
    places.extend([back.gradient, to].map(KernelArgument::Ptr));
    places.push(int(call.columns()));
    let kernel = work.commands.kernel_name("embed_backward");
    let column_blocks = call.columns().div_ceil(32 * work.commands.precision().vector_width());
    let grid = GridSize::new(call.rows.min(MAX_BLOCKS), column_blocks, 1);
    work.commands.kernel(&kernel, grid, 256, 0, &places);
}

macro_rules! lookups {
    ($($operation:ty),*) => {$(
        impl CudaBackward for $operation {
            fn backward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, back: &OpBackward<'_>) {
                lookup(work, call, self, back);
            }
        }
    )*};
}

lookups!(Embed, EmbedSegment, EmbedPosition);

/// Rows grouped by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IndexGroups {
    /// The distinct indices, padded.
    distinct: Vec<i32>,
    /// Where the rows of each begin in `order`.
    starts: Vec<i32>,
    /// The rows, sorted by index.
    order: Vec<i32>,
    /// The number of distinct indices.
    count: i32,
}

/// Groups rows by their index, for the gradient of an embedding table.
fn group_by_index(numbers: &[i32]) -> IndexGroups {
    let mut order: Vec<i32> = (0..numbers.len() as i32).collect();
    order.sort_by_key(|&row| numbers[row as usize]);
    let (mut distinct, mut starts) = (Vec::new(), Vec::new());
    for (index, &row) in order.iter().enumerate() {
        let number = numbers[row as usize];
        if distinct.last() != Some(&number) {
            distinct.push(number);
            starts.push(index as i32);
        }
    }
    let count = distinct.len() as i32;
    // Padded to the maximum number of groups; the padding has no rows.
    starts.resize(numbers.len() + 1, order.len() as i32);
    distinct.resize(numbers.len(), 0);
    IndexGroups { distinct, starts, order, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_grouped_by_index() {
        let IndexGroups { distinct, starts, order, count } = group_by_index(&[7, 2, 7, 2, 9]);
        assert_eq!(distinct, [2, 7, 9, 0, 0]);
        assert_eq!(starts, [0, 2, 4, 5, 5, 5]);
        assert_eq!(order, [1, 3, 0, 2, 4]);
        assert_eq!(count, 3);
        assert_eq!(group_by_index(&[]).starts, [0]);
    }
}
