//! A forward pass, node by node.

use crate::kv_storage::KvView;
use crate::{Batch, Distances, Weights};
use siskin_format::{Error, Result};
use siskin_graph::{Graph, Node, WeightId};
use siskin_kernels::ops::Kernels;
use siskin_kernels::ops::elementwise::ElementwiseFunction;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value as a list of rows.
pub(super) type Table = Vec<Vec<f32>>;

/// The inputs of a forward pass.
pub(super) struct ReferencePass<'a> {
    pub(super) graph: &'a Graph,
    pub(super) weights: &'a Weights,
    pub(super) cache: KvView<'a>,
    pub(super) batch: &'a Batch,
    pub(super) distances: &'a Distances,
    pub(super) scalar: &'a Kernels,
    /// Cancel flag, set by another thread.
    pub(super) stop: &'a AtomicBool,
}

impl ReferencePass<'_> {
    /// Computes the outputs of the output rows.
    pub(super) fn run(&self) -> Result<Table> {
        let mut values: Vec<Table> = vec![Table::new(); self.graph.values.len()];
        for node in &self.graph.nodes {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::canceled(""));
            }
            let call = ReferenceCall { pass: self, node, values: &values };
            let operation: &dyn ReferenceOperation = siskin_graph::dispatch!(&node.op, |operation| operation);
            values[node.output] = operation.compute(&call);
        }
        Ok(std::mem::take(&mut values[self.graph.output]))
    }
}

/// The definition of an operation's results, bit for bit.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no reference",
    note = "implement `ReferenceOperation` for it in `runtime/backend/src/reference/`"
)]
pub(super) trait ReferenceOperation {
    /// Computes the output.
    fn compute(&self, call: &ReferenceCall<'_>) -> Table;
}

/// A node that is computed.
pub(super) struct ReferenceCall<'a> {
    pub(super) pass: &'a ReferencePass<'a>,
    pub(super) node: &'a Node,
    /// The values computed so far.
    pub(super) values: &'a [Table],
}

impl ReferenceCall<'_> {
    pub(super) fn input(&self, index: usize) -> &Table {
        &self.values[self.node.inputs[index]]
    }

    /// Returns the number of columns of the output.
    pub(super) fn columns(&self) -> usize {
        self.pass.graph.values[self.node.output].columns
    }

    /// Computes each row of the output by a function of its index.
    pub(super) fn each(&self, function: impl Fn(usize, &mut [f32])) -> Table {
        let rows = self.pass.batch.counts().of(self.pass.graph.values[self.node.output].rows);
        let row = |index| {
            let mut out = vec![0.0; self.columns()];
            function(index, &mut out);
            out
        };
        (0..rows).map(row).collect()
    }

    /// Applies an element-wise function.
    pub(super) fn map(&self, function: ElementwiseFunction) -> Table {
        self.each(|row, out| self.pass.scalar.map()(function, &self.input(0)[row], out))
    }

    pub(super) fn vector(&self, weight: WeightId) -> &[f32] {
        self.pass.weights.vector(Some(weight))
    }
}
