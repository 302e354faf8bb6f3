//! Who is shown the work of a step, piece by piece.

use std::time::Instant;

use crate::grad::Call;

/// Which part of a node's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its output.
    Forward,
    /// Its output, for the second time.
    Again,
    /// Gradients of its inputs and weights.
    Backward,
}

impl Phase {
    /// As a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Again => "again",
            Self::Backward => "backward",
        }
    }
}

/// A node's work that is done.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a, T> {
    /// The number of the node.
    pub number: usize,
    /// Which part of its work.
    pub phase: Phase,
    /// What it was called with; of the head only a part of the rows.
    pub call: &'a Call<'a, T>,
    /// Its inputs; empty where they are not read.
    pub inputs: &'a [&'a [T]],
    /// What forward gave; empty after backward.
    pub output: &'a [T],
    /// When it began.
    pub begin: Instant,
    /// When it was done.
    pub end: Instant,
}

/// Is shown the work of a step.
pub trait Probe<T> {
    /// After each piece.
    fn piece(&mut self, piece: &Piece<'_, T>);

    /// After the loss of some rows.
    fn loss(&mut self, _rows: usize, _begin: Instant, _end: Instant) {}
}

/// Each is shown all.
impl<T> Probe<T> for Vec<&mut dyn Probe<T>> {
    fn piece(&mut self, piece: &Piece<'_, T>) {
        self.iter_mut().for_each(|probe| probe.piece(piece));
    }

    fn loss(&mut self, rows: usize, begin: Instant, end: Instant) {
        self.iter_mut().for_each(|probe| probe.loss(rows, begin, end));
    }
}

/// The time where somebody is shown it.
pub(super) fn now<P>(probe: Option<&P>) -> Option<Instant> {
    probe.map(|_| Instant::now())
}
