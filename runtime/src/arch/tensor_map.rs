//! Where sources keep tensors, and how they become ours.

use super::ModelConfig;
use super::model_config::StateSizes;

/// Where a source keeps a tensor and how it is laid out there. `{}` stands for a layer's number; both names
/// are without `.weight` and `.bias`, to which the rule applies alike; a name that has either speaks of that alone, and
/// its source is the whole name.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// The name in a `.siskin` file.
    pub name: &'static str,
    /// The name in the source.
    pub source: &'static str,
    /// What to do with it.
    pub take: TensorTransform,
}

/// How a source's tensor becomes ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorTransform {
    /// As it is.
    Whole,
    /// Stored with inputs as rows and outputs as columns (biases are as they are).
    Transposed,
    /// Stored as its difference from one.
    PlusOne,
    /// Rows stand head by head, each head's query, key and value rows together; ours are all queries, all
    /// keys, all values.
    HeadsOfThree,
    /// A row holds, column by column, the numbers of this many neighbouring rows; ours holds one neighbour after the
    /// other.
    Neighbours(usize),
    /// Rows of several tensors stand in one, by the number in our name: `of` tensors for each number, of which this is
    /// `part`.
    Stacked {
        /// Tensors for each number.
        of: usize,
        /// Which of them.
        part: usize,
    },
    /// The tensor of this number of those that stand in one.
    Chunk(usize),
    /// Tensors stand in one by the number in our name, each with inputs as rows; of `of` neighbouring outputs `part` is
    /// ours.
    StackedAcross {
        /// Outputs that stand side by side.
        of: usize,
        /// Which of them.
        part: usize,
    },
    /// The same of the tensor of this number.
    Across {
        /// The number.
        chunk: usize,
        /// Outputs that stand side by side.
        of: usize,
        /// Which of them.
        part: usize,
    },
    /// The first or the second half of the rows of each head.
    HalfOfHeads(usize),
    /// A part of what a layer with a state makes of its input, where a source has all parts of a key head together.
    OfState(StatePart),
    /// The rows of each head stand as rotated pairs (0, E/2, 1, E/2 + 1, …), as llama.cpp keeps them.
    RotatedPairs,
}

/// What a layer with a state makes of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePart {
    /// Queries, then keys, then values, each head by head.
    QueriesKeysValues,
    /// Gates of the result.
    Gates,
    /// How much of the state is replaced.
    Rates,
    /// How much of the state is kept.
    Decays,
}

impl StatePart {
    /// The row of the source that becomes our row `row`.
    fn source_row(self, row: usize, sizes: &StateSizes) -> usize {
        let StateSizes { key_heads, value_heads, key_size, value_size } = *sizes;
        let shared = value_heads / key_heads.max(1);
        let values = shared * value_size;
        // Rows of a key head, the first of ours among them, how many, and our row's number in the part.
        let (group, start, run, row) = match self {
            Self::QueriesKeysValues => {
                let keys = key_heads * key_size;
                let group = 2 * (key_size + values);
                match row {
                    row if row < keys => (group, 0, key_size, row),
                    row if row < 2 * keys => (group, key_size, key_size, row - keys),
                    row => (group, 2 * key_size, values, row - 2 * keys),
                }
            }
            Self::Gates => (2 * (key_size + values), 2 * key_size + values, values, row),
            Self::Rates => (2 * shared, 0, shared, row),
            Self::Decays => (2 * shared, shared, shared, row),
        };
        row / run.max(1) * group + start + row % run.max(1)
    }
}

impl TensorTransform {
    /// The row of the source (of `rows` rows) that becomes our row `row`, for takes that reorder rows.
    pub fn source_row(self, row: usize, rows: usize, hyper: &ModelConfig) -> usize {
        let size = hyper.head_size;
        match self {
            Self::Whole | Self::Transposed | Self::PlusOne | Self::Neighbours(_) => row,
            Self::Stacked { part, .. } => part * rows + row,
            Self::Chunk(chunk) | Self::Across { chunk, .. } => chunk * rows + row,
            Self::StackedAcross { .. } => row,
            Self::HalfOfHeads(half) => (row / size * 2 + half) * size + row % size,
            Self::OfState(part) => part.source_row(row, &hyper.state),
            Self::HeadsOfThree => {
                let part_rows = rows / 3;
                let (part, within) = (row / part_rows.max(1), row % part_rows.max(1));
                (within / size * 3 + part) * size + within % size
            }
            Self::RotatedPairs => {
                let (head, within) = (row / size, row % size);
                let half = size / 2;
                head * size + if within < half { 2 * within } else { 2 * (within - half) + 1 }
            }
        }
    }
}

/// Two lists as one.
pub(super) const fn joined<const N: usize>(first: &[TensorRule], second: &[TensorRule]) -> [TensorRule; N] {
    let mut rules = [TensorRule { name: "", source: "", take: TensorTransform::Whole }; N];
    let mut i = 0;
    while i < N {
        rules[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    rules
}
