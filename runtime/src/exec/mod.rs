//! Runs plans and graphs on batches of rows.
//!
//! [`reference`] walks the graph itself, row by row and in plain words; [`cpu`] runs the plan on a team with
//! the kernels of the machine. Both give the same bits.

pub(crate) mod cpu;
mod distances;
mod experts;
pub(crate) mod reference;
mod state;

pub(crate) use distances::Distances;

use crate::cache::{Cache, SequenceId};
use crate::graph::{Attention, Graph, Growth, Op, Rope, Rows, Sight};
use siskin_kernels::ops::attention::RUNS;
use siskin_kernels::ops::rope;

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
        if attention.sight == Sight::FromMarked { self.marked.len() } else { self.rows.len() }
    }

    /// The row that attends as number `index`.
    fn attending_row(&self, attention: &Attention, index: usize) -> usize {
        if attention.sight == Sight::FromMarked { self.marked[index] } else { index }
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
        match attention.sight {
            Sight::Blocks { size, random } => match block_of(size, random, self.rows[row], cache) {
                Some(_) => {
                    distances.of_blocks(size, random, cache.text(self.rows[row].sequence).unwrap_or(0))
                }
                None => &[],
            },
            Sight::Marked(_) => &self.hidden[row - position..=row - position + last],
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

/// Words that a worker needs for the recurrences of a graph.
pub(crate) fn scratch_size(graph: &Graph) -> usize {
    let sizes = graph.nodes.iter().map(|node| match &node.op {
        Op::Recur(recurrence) => state::scratch_size(recurrence),
        _ => 0,
    });
    sizes.max().unwrap_or(0)
}

/// The block of a row that does not see its whole text.
fn block_of(size: usize, random: usize, row: Row, cache: &Cache) -> Option<usize> {
    let text = cache.text(row.sequence).unwrap_or(0);
    let block = row.position / size;
    let many = text > size.saturating_mul(5 + 2 * random);
    (many && block > 0 && block < (text - 1) / size).then_some(block)
}

/// The first and the last position that a row sees.
///
/// Marked tokens are stored twice: at their own position, where they are hidden from rows that see what is marked, and
/// one after the other behind the text; see [`also_seen`] and [`marked_place`].
fn seen(attention: &Attention, row: Row, cache: &Cache) -> (usize, usize) {
    let position = row.position;
    let end = || cache.text(row.sequence).unwrap_or(0).saturating_sub(1);
    let last = || cache.prefix(row.sequence).saturating_sub(1).max(position);
    match attention.sight {
        Sight::Before(window) => (window.map_or(0, |window| (position + 1).saturating_sub(window)), last()),
        Sight::Recent { window, first } => {
            let start = (position + 1).saturating_sub(window);
            (if start <= first { 0 } else { start }, last())
        }
        Sight::Whole | Sight::FromMarked | Sight::Memory => (0, end()),
        Sight::Around(reach) | Sight::Marked(reach) => {
            (position.saturating_sub(reach), end().min(position + reach))
        }
        Sight::Blocks { size, random } => match block_of(size, random, row, cache) {
            Some(block) => ((block - 1) * size, end().min((block + 2) * size - 1)),
            None => (0, end()),
        },
        Sight::Mixed => (0, attention.projection.map_or(0, |projection| projection.count.saturating_sub(1))),
    }
}

/// The first and the last places of what a row sees besides.
fn also_seen(attention: &Attention, row: Row, cache: &Cache) -> [Option<(usize, usize)>; RUNS - 1] {
    let (first, last) = seen(attention, row, cache);
    match attention.sight {
        Sight::Marked(_) => {
            let text = cache.text(row.sequence).unwrap_or(0);
            let marked = cache.marked(row.sequence).checked_sub(1);
            [marked.map(|marked| (text, text + marked)), None]
        }
        Sight::Recent { first: kept, .. } => {
            [Some((0, kept.saturating_sub(1))).filter(|_| first > 0 && kept > 0), None]
        }
        Sight::Blocks { size, .. } => {
            let end = cache.text(row.sequence).unwrap_or(0).saturating_sub(1);
            let before = (first > 0).then(|| (0, size - 1));
            let after = (last < end).then(|| (end / size * size, end));
            if before.is_some() { [before, after] } else { [after, None] }
        }
        _ => [None; RUNS - 1],
    }
}

/// Cosines and sines of a row's position.
fn turns(table: &Rope, row: Row, out: &mut [f32]) {
    let position = row.position as u32;
    let long = table.stretch.as_ref().filter(|stretch| row.length > stretch.length);
    match long.map(|stretch| (&stretch.growth, stretch.length)) {
        None => rope::turns(&table.frequencies, table.magnitude, position, out),
        Some((Growth::Other(frequencies), _)) => rope::turns(frequencies, table.magnitude, position, out),
        Some((growth, usual)) => {
            let base = growth.base_for(row.length, usual, out.len()).unwrap_or(1.0);
            let size = out.len() as f64;
            let frequency = |pair: usize| (1.0 / libm::pow(base, (2 * pair) as f64 / size)) as f32;
            rope::turns_of(&frequency, table.magnitude, position, out);
        }
    }
}

/// Where a row is stored behind the text.
fn marked_place(attention: &Attention, row: Row, cache: &Cache) -> Option<usize> {
    let mark = row.mark.filter(|_| matches!(attention.sight, Sight::Marked(_)))?;
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
