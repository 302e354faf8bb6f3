//! The inputs of a graph: embedding lookups, sinusoidal positions, and external features.

use siskin_device::KernelArgument;
use siskin_graph::op::{Embed, EmbedPosition, EmbedSegment, InputFeatures, SinusoidalPositions};
use siskin_graph::{BatchRow, WeightId};

use super::{CudaForward, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, int};

/// A lookup in an embedding table.
pub trait EmbeddingLookup {
    /// Returns the table.
    fn table(&self) -> WeightId;

    /// Returns a name of the index, the same for lookups of the same rows.
    fn index_name(&self) -> String;

    /// Returns the row of the table for a row of the batch.
    fn index(&self, row: &BatchRow) -> usize;
}

impl EmbeddingLookup for Embed {
    fn table(&self) -> WeightId {
        self.table
    }

    fn index_name(&self) -> String {
        "tokens".to_owned()
    }

    fn index(&self, row: &BatchRow) -> usize {
        row.token as usize
    }
}

impl EmbeddingLookup for EmbedSegment {
    fn table(&self) -> WeightId {
        self.table
    }

    fn index_name(&self) -> String {
        "segments".to_owned()
    }

    fn index(&self, row: &BatchRow) -> usize {
        row.token_type as usize
    }
}

impl EmbeddingLookup for EmbedPosition {
    fn table(&self) -> WeightId {
        self.table
    }

    fn index_name(&self) -> String {
        format!("positions {}", self.offset)
    }

    fn index(&self, row: &BatchRow) -> usize {
        row.position + self.offset
    }
}

/// Returns the row of the table for each row of the batch.
pub fn indices(call: &OpCall<'_>, lookup: &dyn EmbeddingLookup) -> Vec<i32> {
    call.sequences().rows.iter().map(|row| lookup.index(row) as i32).collect()
}

fn embed(
    work: &mut CommandBuilder<'_>,
    call: &OpCall<'_>,
    lookup: &dyn EmbeddingLookup,
    tensors: OpTensors<'_>,
) {
    let list = work.tables.ints(&call.table_name(&lookup.index_name()), || indices(call, lookup));
    let places = [list, call.weight(lookup.table()).compute, tensors.out].map(KernelArgument::Ptr);
    let arguments = [&places[..], &[int(call.rows), int(call.columns())]].concat();
    work.commands.elementwise_2d("embed", call.rows, call.columns(), &arguments);
}

macro_rules! lookups {
    ($($operation:ty),*) => {$(
        impl CudaForward for $operation {
            fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
                embed(work, call, self, tensors);
            }
        }
    )*};
}

lookups!(Embed, EmbedSegment, EmbedPosition);

impl CudaForward for SinusoidalPositions {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let &Self { rope, offset } = self;
        let (table, columns) = (&call.graph.ropes[rope], call.columns());
        let floats = work.tables.floats(&call.table_name(&format!("sines {rope} {offset}")), || {
            let mut all = vec![0.0; call.count()];
            for (row, out) in call.sequences().rows.iter().zip(all.chunks_mut(columns.max(1))) {
                let position = (row.position + offset) as u32;
                siskin_kernels::ops::rope::cos_sin(&table.frequencies, table.magnitude, position, out);
                out.rotate_left(columns / 2);
            }
            all
        });
        let places = [floats, tensors.out].map(KernelArgument::Ptr);
        work.commands.elementwise("cast_from_f32", call.count(), &places);
    }
}

impl CudaForward for InputFeatures {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let floats = work.tables.floats(&call.table_name("features"), || call.sequences().features.clone());
        let places = [floats, tensors.out].map(KernelArgument::Ptr);
        work.commands.elementwise("cast_from_f32", call.count(), &places);
    }
}
