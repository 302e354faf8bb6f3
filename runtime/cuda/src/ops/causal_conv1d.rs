//! The causal convolution before linear attention.

use siskin_device::{DevicePtr, KernelArgument};
use siskin_graph::op::CausalConv1d;

use super::{CudaForward, OpCall, OpTensors};
use crate::command_builder::{CommandBuilder, int};

/// Returns the position of each row in its sequence, then the number of rows after it.
pub fn positions(work: &mut CommandBuilder<'_>, call: &OpCall<'_>) -> DevicePtr {
    let sequences = call.sequences();
    work.tables.ints(&call.table_name("positions and remaining rows"), || {
        let rows = sequences.rows.iter().enumerate();
        let after = rows.map(|(number, row)| sequences.sequences[row.sequence].rows.end - 1 - number);
        sequences.rows.iter().map(|row| row.position).chain(after).map(|place| place as i32).collect()
    })
}

impl CudaForward for CausalConv1d {
    fn forward(&self, work: &mut CommandBuilder<'_>, call: &OpCall<'_>, tensors: OpTensors<'_>) {
        let positions = positions(work, call);
        let places = [tensors.inputs[0], call.weight(self.weight).f32, positions, tensors.out];
        let sizes = [call.rows, call.columns(), self.taps].map(int);
        let arguments = [&places.map(KernelArgument::Ptr)[..], &sizes].concat();
        work.commands.elementwise_2d("causal_conv1d", call.rows, call.columns(), &arguments);
    }
}
