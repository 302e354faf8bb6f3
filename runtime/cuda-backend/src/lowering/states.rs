//! Lowers linear attention and what reads its recurrent states.

use siskin_backend::plan::BufferView;
use siskin_cuda::int;
use siskin_device::KernelArgument;
use siskin_format::{Error, Result};
use siskin_graph::{LinearAttention, StateUpdate, WeightId};

use super::Lowering;
use crate::launches::{LoweredStep, THREADS};
use crate::row_ops::DeviceRows;

impl Lowering<'_> {
    /// Returns the arguments of kernels that say where a recurrent state and the rows of each sequence are.
    pub(super) fn states(&mut self, state: usize) -> Result<[KernelArgument; 7]> {
        let place = self.context.storage.state(state);
        let (group, offset) =
            place.ok_or_else(|| Error::argument("graph", format!("state {state} has no memory")))?;
        let (blocks, tables) = (self.tables.states(group), self.tables.sequences());
        Ok([
            KernelArgument::Ptr(self.context.pools[group]),
            KernelArgument::Long(self.context.storage.block_words(group) as i64),
            int(offset),
            KernelArgument::Ptr(self.table(tables.count)),
            KernelArgument::Ptr(self.table(blocks)),
            KernelArgument::Ptr(self.table(tables.starts)),
            KernelArgument::Ptr(self.table(tables.rows)),
        ])
    }

    pub(super) fn linear_attention(
        &mut self,
        attention: &LinearAttention,
        inputs: &[BufferView],
        to: BufferView,
    ) -> Result<()> {
        let mut arguments = self.states(attention.state)?.to_vec();
        let view = |index: usize| inputs.get(index).map_or_else(DeviceRows::default, |view| self.rows(*view));
        for (index, heads) in
            [attention.query_heads, attention.key_heads, attention.value_heads].into_iter().enumerate()
        {
            let rows = view(index);
            arguments.extend([KernelArgument::Ptr(rows.ptr), int(rows.stride), int(heads)]);
        }
        for rows in [view(3), view(4), self.rows(to)] {
            arguments.extend([KernelArgument::Ptr(rows.ptr), int(rows.stride)]);
        }
        // The numbers of UpdateRule in `recurrence.cu`.
        let rule = match attention.rule {
            StateUpdate::Additive => 0,
            StateUpdate::BidirectionalAdditive => 1,
            StateUpdate::GatedDelta => 2,
        };
        arguments.extend([attention.heads, attention.key_size, attention.value_size, rule].map(int));
        let (kernel, parts, shared) = ("recur_sequences", attention.heads, 8 * attention.key_size);
        let threads = attention.state_columns().next_multiple_of(32).min(THREADS);
        self.launch(LoweredStep::EachSequence { kernel, parts, threads, shared, arguments });
        Ok(())
    }

    pub(super) fn causal_conv1d(
        &mut self,
        (state, taps): (usize, usize),
        weight: WeightId,
        from: BufferView,
        to: BufferView,
    ) -> Result<()> {
        let weights = self.context.weights.vector(Some(weight));
        let (columns, from, to) = (from.columns, self.rows(from), self.rows(to));
        let rest = [
            int(taps),
            KernelArgument::Ptr(weights),
            KernelArgument::Ptr(from.ptr),
            int(from.stride),
            KernelArgument::Ptr(to.ptr),
            int(to.stride),
            int(columns),
        ];
        let arguments = [&self.states(state)?[..], &rest].concat();
        let (kernel, parts) = ("convolve_sequences", columns.div_ceil(THREADS));
        self.launch(LoweredStep::EachSequence { kernel, parts, threads: THREADS, shared: 0, arguments });
        Ok(())
    }
}
