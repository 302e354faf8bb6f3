//! Weight prefetch: a worker that waits at the end of a step prefetches the beginning of its own share of the next
//! matmul's weights into L2.

use std::cell::Cell;
use std::ops::Deref;

use siskin_kernels::prefetch::{LINE, prefetch_l2};

use super::CpuPass;
use crate::plan::PlanStep;
use crate::thread_pool::Worker;

/// Up to this many rows, matmuls are memory-bound.
const FEW_ROWS: usize = 4;
/// The maximum number of bytes to prefetch per step: a part of L2.
const MAX: usize = 128 << 10;
/// Cache lines to prefetch before checking again whether the phase is over.
const ONCE: usize = 64;

/// A worker with its position in the plan.
pub(super) struct PrefetchingWorker<'a> {
    worker: &'a Worker<'a>,
    /// The current step.
    step: Cell<usize>,
    /// The step whose weights are prefetched, and the ranges that remain.
    ahead: Cell<(usize, [PrefetchRange; 2])>,
}

/// A range of addresses to prefetch, line by line.
#[derive(Clone, Copy)]
struct PrefetchRange {
    at: *const u8,
    bytes: usize,
}

impl PrefetchRange {
    const NONE: Self = Self { at: std::ptr::null(), bytes: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { at: bytes.as_ptr(), bytes: bytes.len() }
    }

    /// Prefetches up to `max_lines` cache lines and returns their number.
    fn ask(&mut self, max_lines: usize) -> usize {
        let lines = max_lines.min(self.bytes.div_ceil(LINE));
        for line in 0..lines {
            prefetch_l2(self.at.wrapping_add(line * LINE));
        }
        *self =
            Self { at: self.at.wrapping_add(lines * LINE), bytes: self.bytes.saturating_sub(lines * LINE) };
        lines
    }
}

impl<'a> PrefetchingWorker<'a> {
    pub(super) fn new(worker: &'a Worker<'a>) -> Self {
        Self { worker, step: Cell::new(0), ahead: Cell::new((0, [PrefetchRange::NONE; 2])) }
    }

    /// Begins a step.
    pub(super) fn begin(&self, step: usize) {
        self.step.set(step);
    }
}

impl<'a> Deref for PrefetchingWorker<'a> {
    type Target = Worker<'a>;

    fn deref(&self) -> &Worker<'a> {
        self.worker
    }
}

impl CpuPass<'_> {
    /// Prefetches some of the weights that the worker needs next; false if none are left.
    pub(super) fn ask_ahead(&self, worker: &PrefetchingWorker<'_>) -> bool {
        if self.batch.rows.len() > FEW_ROWS {
            return false;
        }
        let (mut step, mut ranges) = worker.ahead.get();
        if step <= worker.step.get() {
            (step, ranges) = self.next_weights(worker);
        }
        let mut asked = 0;
        for wish in &mut ranges {
            asked += wish.ask(ONCE - asked);
        }
        worker.ahead.set((step, ranges));
        asked > 0
    }

    /// Returns the next matmul step and the beginning of the worker's weights for it.
    fn next_weights(&self, worker: &PrefetchingWorker<'_>) -> (usize, [PrefetchRange; 2]) {
        let first = worker.step.get() + 1;
        let rest = self.plan.steps.iter().enumerate().skip(first);
        for (step, what) in rest {
            if let PlanStep::Linear { rows, parts, after, .. } = what {
                let begins = self.first_weights(worker, self.row_count(*rows), parts, *after);
                let count = begins.iter().filter(|part| !part.is_empty()).count().max(1);
                return (step, begins.map(|part| PrefetchRange::of(&part[..part.len().min(MAX / count)])));
            }
            // The selected experts are not known yet.
            if matches!(what, PlanStep::ExpertLinear { .. }) {
                return (step, [PrefetchRange::NONE; 2]);
            }
        }
        (usize::MAX, [PrefetchRange::NONE; 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_asked_for_once() {
        let bytes = [0_u8; 5 * LINE + 1];
        let mut wish = PrefetchRange::of(&bytes);
        assert_eq!([wish.ask(4), wish.ask(4), wish.ask(4)], [4, 2, 0]);
        assert_eq!(wish.at.addr() - bytes.as_ptr().addr(), 6 * LINE);
        let mut nothing = PrefetchRange::NONE;
        assert_eq!(nothing.ask(4), 0);
    }
}
