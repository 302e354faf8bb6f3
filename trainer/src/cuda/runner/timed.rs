//! How long the pieces of a step take: each is waited for.

use std::time::Instant;

use siskin::Result;

use super::{Device, Runner, Step, Tape};

/// Where the work of a schedule's step ends: behind so many commands of a tape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) commands: usize,
    pub(super) step: Step,
}

/// A piece that was done.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Which.
    pub step: Step,
    /// When it began.
    pub begin: Instant,
    /// When it was done.
    pub end: Instant,
}

/// Is told of each piece.
pub type Tell<'a> = dyn FnMut(Timed) + 'a;

impl<D: Device> Runner<D> {
    /// Does what a tape says, and tells how long it took.
    pub(super) fn run_timed(&mut self, tape: &Tape, bounds: &[Bound], tell: &mut Tell<'_>) -> Result<()> {
        self.wait()?;
        let mut done = 0;
        for bound in bounds {
            // What is done together with the step before has no commands of its own.
            if bound.commands > done {
                let begin = Instant::now();
                self.device.once(&tape.part(done..bound.commands))?;
                self.wait()?;
                done = bound.commands;
                tell(Timed { step: bound.step, begin, end: Instant::now() });
            }
        }
        self.device.once(&tape.part(done..tape.commands.len()))
    }

    /// Returns when all work so far is done.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.device.read(self.sums, &mut [0])
    }
}
