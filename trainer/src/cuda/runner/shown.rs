//! Showing what a step computes: the tape is done piece by piece, and each table is read as soon as it is there.

use siskin::Result;

use super::{Device, Place, Runner, Tape};
use crate::cuda::op;

/// Is shown the number of a node, and what it gave; of the head only a part of the rows.
pub type Show<'a> = dyn FnMut(usize, &[f32]) + 'a;

/// The output of a node, which is there when so many commands of a tape are done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) commands: usize,
    pub(super) node: usize,
    pub(super) place: Place,
    /// Rows, columns, and numbers from a row to the next.
    pub(super) shape: [usize; 3],
}

impl<D: Device> Runner<D> {
    /// Does what a tape says, and shows what is marked.
    pub(super) fn run_marked(&mut self, tape: &Tape, marks: &[Mark], show: &mut Show<'_>) -> Result<()> {
        let mut done = 0;
        for mark in marks {
            if mark.commands > done {
                self.device.once(&tape.part(done..mark.commands))?;
                done = mark.commands;
            }
            let numbers = self.read_table(mark)?;
            show(mark.node, &numbers);
        }
        self.device.once(&tape.part(done..tape.commands.len()))
    }

    fn read_table(&mut self, mark: &Mark) -> Result<Vec<f32>> {
        let [rows, columns, stride] = mark.shape;
        let mut bytes = vec![0; rows * stride * self.precision.bytes()];
        self.device.read(mark.place, &mut bytes)?;
        let mut numbers = vec![0.0; rows * stride];
        self.precision.block().decode_row(&bytes, &mut numbers);
        if stride > columns {
            numbers = numbers.chunks(stride).flat_map(|row| &row[..columns]).copied().collect();
        }
        if op::is_logarithm(&self.program, self.program.nodes[mark.node].output) {
            numbers.iter_mut().for_each(|number| *number = number.exp());
        }
        Ok(numbers)
    }
}
