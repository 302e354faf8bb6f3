//! Runs plans and graphs on batches of rows.
//!
//! [`reference`] walks the graph itself, row by row and in plain words; [`cpu`] runs the plan on a team with
//! the kernels of the machine. Both give the same bits.

pub(crate) mod cpu;
mod experts;
mod position_bias;
pub(crate) mod reference;
mod rope_tables;
mod state;

pub(crate) use position_bias::Distances;
pub use rope_tables::turns;

use crate::cache::{Cache, SequenceId};
use crate::graph::{Attention, AttentionMask, Graph, Op, QueryPosition, Rows};
use crate::plan::Plan;

/// A token that goes through the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub sequence: SequenceId,
    pub position: usize,
    pub token: u32,
    /// The segment of the text that it is in.
    pub segment: u32,
    /// Which of the marked tokens of its text it is.
    pub mark: Option<usize>,
    /// Tokens that its sequence has or is about to have, for frequencies that depend on it.
    pub length: usize,
}

/// The rows of a forward pass. The rows of a sequence stand in order of position.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub rows: Vec<Row>,
    /// The sequences of the rows, each once.
    pub sequences: Vec<SequenceId>,
    /// Which rows' outputs are wanted.
    pub wanted: Vec<usize>,
    /// The rows that are marked, in order.
    pub marked: Vec<usize>,
    /// For each row of a model whose tokens may be marked what is added to its score where it is not seen as marked.
    pub hidden: Vec<f32>,
    /// What rows are made of that are no tokens, frame by frame.
    pub features: Vec<f32>,
    /// What another part of the graph gave for each row.
    pub carried: Vec<f32>,
    /// The frames of the sequence that each frame belongs to.
    pub frames: Vec<(usize, usize)>,
    /// The first frame of the sequence that each row belongs to.
    pub row_frames: Vec<usize>,
}

impl Batch {
    /// Room for `rows` rows of which `wanted` give outputs.
    pub(crate) fn with_capacity(rows: usize, wanted: usize) -> Self {
        Self {
            rows: Vec::with_capacity(rows),
            sequences: Vec::with_capacity(rows),
            wanted: Vec::with_capacity(wanted),
            ..Self::default()
        }
    }

    /// Whether every sequence gets a token: of a text that is read only the last row is wanted.
    pub(crate) fn writes(&self) -> bool {
        self.rows.len() == self.wanted.len() && self.rows.len() == self.sequences.len()
    }

    /// Forgets all rows.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.sequences.clear();
        self.wanted.clear();
        self.marked.clear();
        self.hidden.clear();
        self.features.clear();
        self.carried.clear();
        self.frames.clear();
        self.row_frames.clear();
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, row: Row) {
        if self.rows.last().is_none_or(|last| last.sequence != row.sequence)
            && !self.sequences.contains(&row.sequence)
        {
            self.sequences.push(row.sequence);
        }
        self.rows.push(row);
    }

    /// How many rows attend.
    fn attending(&self, attention: &Attention) -> usize {
        if attention.attention_mask == AttentionMask::LongformerGlobal {
            self.marked.len()
        } else {
            self.rows.len()
        }
    }

    /// The row that attends as number `index`.
    fn attending_row(&self, attention: &Attention, index: usize) -> usize {
        if attention.attention_mask == AttentionMask::LongformerGlobal { self.marked[index] } else { index }
    }

    /// What is added to the scores of the keys up to position `last` of the text of row `row`, and for what it sees
    /// besides.
    fn bias<'a>(
        &'a self,
        attention: &Attention,
        distances: &'a Distances,
        head: usize,
        row: usize,
        last: usize,
        cache: &Cache,
    ) -> &'a [f32] {
        let position = self.rows[row].position;
        match attention.attention_mask {
            AttentionMask::BigBird { size, random } => {
                match attention.attention_mask.block(place(self.rows[row], cache)) {
                    Some(_) => {
                        distances.of_blocks(size, random, cache.text(self.rows[row].sequence).unwrap_or(0))
                    }
                    None => &[],
                }
            }
            AttentionMask::LongformerLocal(_) => &self.hidden[row - position..=row - position + last],
            _ => distances.of(attention, head, position, last),
        }
    }

    /// The row of `from` rows that stands `offset` away from what output row `row` goes with, in the same sequence.
    fn neighbour(&self, from: Rows, to: Rows, row: usize, offset: isize, stride: usize) -> Option<usize> {
        let same = |other: &Row| self.rows.get(row).is_some_and(|row| row.sequence == other.sequence);
        match (from, to) {
            (Rows::Frames, Rows::Frames) => {
                let (first, end) = *self.frames.get(row)?;
                row.checked_add_signed(offset).filter(|other| (first..end).contains(other))
            }
            (Rows::Frames, _) => {
                let (first, end) = *self.frames.get(*self.row_frames.get(row)?)?;
                let center = first + self.rows.get(row)?.position * stride;
                center.checked_add_signed(offset).filter(|other| (first..end).contains(other))
            }
            _ => row.checked_add_signed(offset).filter(|&other| self.rows.get(other).is_some_and(same)),
        }
    }
}

/// Words that a worker needs for the recurrences of a graph, and for products of its plan.
pub(crate) fn scratch_size(graph: &Graph, plan: &Plan) -> usize {
    let sizes = graph.nodes.iter().map(|node| match &node.op {
        Op::LinearAttention(recurrence) => state::scratch_size(recurrence),
        _ => 0,
    });
    sizes.max().unwrap_or(0).max(cpu::scratch_size(plan))
}

/// Where a row stands in its text.
fn place(row: Row, cache: &Cache) -> QueryPosition {
    QueryPosition {
        position: row.position,
        text: cache.text(row.sequence).unwrap_or(0),
        prefix: cache.prefix(row.sequence),
        marked: cache.marked(row.sequence),
    }
}

/// Where a row is stored behind the text.
fn marked_place(attention: &Attention, row: Row, cache: &Cache) -> Option<usize> {
    let mark = row.mark.filter(|_| matches!(attention.attention_mask, AttentionMask::LongformerLocal(_)))?;
    Some(cache.text(row.sequence).ok()? + mark)
}

fn activation(kind: crate::graph::ActivationKind) -> siskin_kernels::ops::activation::Kind {
    use crate::graph::ActivationKind as Ours;
    use siskin_kernels::ops::activation::Kind;
    match kind {
        Ours::Silu => Kind::Silu,
        Ours::Gelu => Kind::Gelu,
        Ours::GeluTanh => Kind::GeluTanh,
        Ours::Relu => Kind::Relu,
        Ours::Sigmoid => Kind::Sigmoid,
        Ours::EluPlusOne => Kind::EluPlusOne,
    }
}

fn limits(limits: crate::graph::Limits) -> siskin_kernels::ops::activation::Limits {
    siskin_kernels::ops::activation::Limits { limit: limits.limit, slope: limits.slope }
}
