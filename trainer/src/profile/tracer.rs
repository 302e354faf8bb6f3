//! Records the pieces of steps.

use std::time::Instant;

use super::{NodeWork, ProfiledThread, Recorder, WorkInterval};
use crate::grad::{RuleCall, rule};
use crate::program::Program;
use crate::real::Real;
use crate::runner::{NodeEvent, Phase, Probe};

/// A probe that records all work.
pub(crate) struct Tracer {
    recorder: Recorder,
    names: Vec<String>,
}

impl Tracer {
    /// Creates a tracer of a program's steps.
    pub(crate) fn new(recorder: Recorder, program: &Program) -> Self {
        Self { recorder, names: program.names() }
    }

    /// Records a node.
    pub(crate) fn add_node<T: Real>(
        &self,
        number: usize,
        phase: Phase,
        call: &RuleCall<'_, T>,
        interval: WorkInterval,
    ) {
        let op = &call.node.op;
        // Backward has two matmuls, for inputs and for weights: twice the work.
        let times = if phase == Phase::Backward { 2.0 } else { 1.0 };
        let flops = rule::<T>(op).map_or(0.0, |rule| times * rule.flops(call));
        let node = NodeWork {
            op: op.name().to_owned(),
            phase: phase.name(),
            rows: call.rows,
            columns: call.columns(),
            flops,
        };
        let name = self.names.get(number).cloned().unwrap_or_default();
        self.recorder.add_until(name, ProfiledThread::Steps, interval, Some(node));
    }

    /// Records the head and the loss of a chunk of rows, forward and backward, if they are one piece.
    pub(crate) fn head(&self, rows: usize, flops: f64, interval: WorkInterval) {
        let node = NodeWork {
            op: "Head and loss".to_owned(),
            phase: "forward and backward",
            rows,
            columns: 1,
            flops,
        };
        self.recorder.add_until("head and loss", ProfiledThread::Steps, interval, Some(node));
    }
}

impl<T: Real> Probe<T> for Tracer {
    fn node(&mut self, piece: &NodeEvent<'_, T>) {
        self.add_node(
            piece.number,
            piece.phase,
            piece.call,
            WorkInterval { begin: piece.begin, end: piece.end },
        );
    }

    fn loss(&mut self, rows: usize, begin: Instant, end: Instant) {
        let node = NodeWork { op: "Loss".to_owned(), phase: "and gradient", rows, columns: 1, flops: 0.0 };
        self.recorder.add_until("loss", ProfiledThread::Steps, WorkInterval { begin, end }, Some(node));
    }
}
