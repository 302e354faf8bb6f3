//! Observers of the work of a step.

use std::time::Instant;

use crate::grad::RuleCall;

/// The phase of a node's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Forward.
    Forward,
    /// Forward, recomputed.
    Recompute,
    /// Backward: gradients of its inputs and weights.
    Backward,
}

impl Phase {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Recompute => "recompute",
            Self::Backward => "backward",
        }
    }
}

/// A completed piece of a node's work.
#[derive(Clone, Copy, Debug)]
pub struct NodeEvent<'a, T> {
    /// The index of the node.
    pub number: usize,
    /// The phase.
    pub phase: Phase,
    /// The call; for the head, only a chunk of the rows.
    pub call: &'a RuleCall<'a, T>,
    /// Its inputs; empty if they are not read.
    pub inputs: &'a [&'a [T]],
    /// The output of forward; empty after backward.
    pub output: &'a [T],
    /// Start time.
    pub begin: Instant,
    /// End time.
    pub end: Instant,
}

/// Observes the work of a step.
pub trait Probe<T> {
    /// Called after each piece of work.
    fn node(&mut self, piece: &NodeEvent<'_, T>);

    /// Called after the loss of a chunk of rows.
    fn loss(&mut self, _rows: usize, _begin: Instant, _end: Instant) {}
}

/// Calls each probe in turn.
impl<T> Probe<T> for Vec<&mut dyn Probe<T>> {
    fn node(&mut self, piece: &NodeEvent<'_, T>) {
        self.iter_mut().for_each(|probe| probe.node(piece));
    }

    fn loss(&mut self, rows: usize, begin: Instant, end: Instant) {
        self.iter_mut().for_each(|probe| probe.loss(rows, begin, end));
    }
}

/// Returns the time if there is a probe.
pub(super) fn now<P>(probe: Option<&P>) -> Option<Instant> {
    probe.map(|_| Instant::now())
}
