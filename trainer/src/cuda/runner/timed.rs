//! Timing the pieces of a step: the host synchronizes after each.

use std::time::Instant;

use siskin_device::CommandList;
use siskin_format::Result;

use super::{DeviceRunner, ScheduleStep};

/// The end of a schedule step's work: after `commands` commands of a command list.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepEnd {
    pub(super) commands: usize,
    pub(super) step: ScheduleStep,
}

/// A completed piece of work.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// The schedule step.
    pub step: ScheduleStep,
    /// Start time.
    pub begin: Instant,
    /// End time.
    pub end: Instant,
}

/// Receives the timing of each piece.
pub type TimingObserver<'a> = dyn FnMut(Timed) + 'a;

impl DeviceRunner {
    /// Executes a command list, and reports how long each piece took.
    pub(super) fn run_timed(
        &mut self,
        commands: &CommandList,
        bounds: &[StepEnd],
        observer: &mut TimingObserver<'_>,
    ) -> Result<()> {
        self.wait()?;
        let mut done = 0;
        for bound in bounds {
            // A step that is fused with the one before has no commands of its own.
            if bound.commands > done {
                let begin = Instant::now();
                self.device.run_uncaptured(&commands.slice(done..bound.commands))?;
                self.wait()?;
                done = bound.commands;
                observer(Timed { step: bound.step, begin, end: Instant::now() });
            }
        }
        self.device.run_uncaptured(&commands.slice(done..commands.len()))
    }

    /// Returns when all work so far is done.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.device.read(self.sums, &mut [0])
    }
}
