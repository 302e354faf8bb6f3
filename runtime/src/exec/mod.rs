//! Runs plans and graphs on batches of rows.
//!
//! [`reference`] walks the graph itself, row by row and in plain words; [`cpu`] runs the plan on a team with
//! the kernels of the machine. Both give the same bits.

pub(crate) mod cpu;
pub(crate) mod reference;

use crate::cache::SequenceId;

/// A token that goes through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub sequence: SequenceId,
    pub position: usize,
    pub token: u32,
}

/// The rows of a forward pass. The rows of a sequence stand in order of position.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub rows: Vec<Row>,
    /// Which rows' outputs are wanted.
    pub wanted: Vec<usize>,
}

impl Batch {
    /// Room for `rows` rows of which `wanted` give outputs.
    pub(crate) fn with_capacity(rows: usize, wanted: usize) -> Self {
        Self { rows: Vec::with_capacity(rows), wanted: Vec::with_capacity(wanted) }
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.wanted.clear();
    }
}

/// The first position that a query at `position` sees through a window.
fn first_seen(position: usize, window: Option<usize>) -> usize {
    window.map_or(0, |window| (position + 1).saturating_sub(window))
}

fn activation(kind: crate::graph::ActivationKind) -> siskin_kernels::ops::activation::Kind {
    use crate::graph::ActivationKind as Ours;
    use siskin_kernels::ops::activation::Kind;
    match kind {
        Ours::Silu => Kind::Silu,
        Ours::Gelu => Kind::Gelu,
        Ours::GeluTanh => Kind::GeluTanh,
        Ours::Relu => Kind::Relu,
    }
}
