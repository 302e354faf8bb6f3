//! Observing what a step computes: the command list is executed piece by piece, and each buffer is read as soon as it
//! is computed.

use siskin_cuda::ops::linear_attention::is_logarithm;
use siskin_device::{CommandList, DevicePtr};
use siskin_format::Result;

use super::DeviceRunner;
use crate::cuda::block_type;

/// Receives the index of a node, and its output; for the head, only a chunk of the rows.
pub type OutputObserver<'a> = dyn FnMut(usize, &[f32]) + 'a;

/// The output of a node, which is complete after `commands` commands of a command list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedOutput {
    pub(super) commands: usize,
    pub(super) node: usize,
    pub(super) place: DevicePtr,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from a row to the next.
    pub(super) stride: usize,
}

impl DeviceRunner {
    /// Executes a command list, and passes the marked outputs to `show`.
    pub(super) fn run_observing(
        &mut self,
        commands: &CommandList,
        marks: &[ObservedOutput],
        show: &mut OutputObserver<'_>,
    ) -> Result<()> {
        let mut done = 0;
        for mark in marks {
            if mark.commands > done {
                self.device.run_uncaptured(&commands.slice(done..mark.commands))?;
                done = mark.commands;
            }
            let numbers = self.read_table(mark)?;
            show(mark.node, &numbers);
        }
        self.device.run_uncaptured(&commands.slice(done..commands.len()))
    }

    fn read_table(&mut self, mark: &ObservedOutput) -> Result<Vec<f32>> {
        let ObservedOutput { rows, columns, stride, .. } = *mark;
        let mut bytes = vec![0; rows * stride * self.precision.bytes()];
        self.device.read(mark.place, &mut bytes)?;
        let mut numbers = vec![0.0; rows * stride];
        block_type(self.precision).dequantize_row(&bytes, &mut numbers);
        if stride > columns {
            numbers = numbers.chunks(stride).flat_map(|row| &row[..columns]).copied().collect();
        }
        if is_logarithm(&self.program.graph, self.program.graph.nodes[mark.node].output) {
            numbers.iter_mut().for_each(|number| *number = number.exp());
        }
        Ok(numbers)
    }
}
