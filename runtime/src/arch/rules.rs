//! Where sources keep tensors, and how they become ours.

use super::Hyper;

/// Where a source keeps a tensor and how it is laid out there. `{}` stands for a layer's number; both names
/// are without `.weight` and `.bias`, to which the rule applies alike.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The name in a `.siskin` file.
    pub name: &'static str,
    /// The name in the source.
    pub source: &'static str,
    /// What to do with it.
    pub take: Take,
}

/// How a source's tensor becomes ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
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
    /// The rows of each head stand as rotated pairs (0, E/2, 1, E/2 + 1, …), as llama.cpp keeps them.
    RotatedPairs,
}

impl Take {
    /// The row of the source (of `rows` rows) that becomes our row `row`, for takes that reorder rows.
    pub fn source_row(self, row: usize, rows: usize, hyper: &Hyper) -> usize {
        let size = hyper.head_size;
        match self {
            Self::Whole | Self::Transposed | Self::PlusOne | Self::Neighbours(_) => row,
            Self::Stacked { part, .. } => part * rows + row,
            Self::Chunk(chunk) => chunk * rows + row,
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
pub(super) const fn joined<const N: usize>(first: &[Rule], second: &[Rule]) -> [Rule; N] {
    let mut rules = [Rule { name: "", source: "", take: Take::Whole }; N];
    let mut i = 0;
    while i < N {
        rules[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    rules
}
