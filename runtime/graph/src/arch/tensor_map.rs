//! The tensor map: where sources store tensors, and how these are transformed on import.

use super::ModelConfig;
use super::model_config::StateSizes;

/// Where a source stores a tensor and in which layout. `{}` stands for the layer index. Names omit `.weight` and
/// `.bias`, and the rule applies to both; if our name includes either, the rule applies to that tensor only, and the
/// source's name is complete.
#[derive(Clone, Copy, Debug)]
pub struct TensorRule {
    /// `NAME = SOURCE` in one string: every pointer costs a shared library 40 bytes, and there are more than a thousand
    /// rules.
    names: &'static str,
    /// The transform.
    pub take: TensorTransform,
}

impl TensorRule {
    /// Creates a rule from `NAME = SOURCE`.
    pub const fn new(names: &'static str, take: TensorTransform) -> Self {
        Self { names, take }
    }

    /// Returns the name in a `.siskin` file.
    pub fn name(&self) -> &'static str {
        self.split().0
    }

    /// Returns the name in the source.
    pub fn source(&self) -> &'static str {
        self.split().1
    }

    fn split(&self) -> (&'static str, &'static str) {
        self.names.split_once(" = ").unwrap_or((self.names, ""))
    }
}

/// The transform from a source's tensor to ours. Small, as rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorTransform {
    /// Unchanged.
    Whole,
    /// Stored with inputs as rows and outputs as columns (biases are unchanged).
    Transposed,
    /// Stored minus one.
    PlusOne,
    /// Interleaved QKV: source rows are grouped by KV head, each with the rows of its query heads, its key and its
    /// value; ours are all queries, then all keys, then all values.
    GroupedQkv,
    /// Conv1d weight with this kernel size: source rows are inputs × kernel positions, ours kernel positions × inputs.
    Neighbors(u16),
    /// Several tensors are concatenated row-wise in one, by the index in our name: `of` tensors per index, of which
    /// this is `part`.
    Stacked {
        /// Tensors per index.
        of: u16,
        /// The one to take.
        part: u16,
    },
    /// The tensor of this index in a row-wise concatenation of several.
    Chunk(u16),
    /// Several tensors are concatenated by the index in our name, each with inputs as rows; of every `of` adjacent
    /// outputs, `part` is taken.
    StackedAcross {
        /// Interleaved outputs.
        of: u16,
        /// The one to take.
        part: u16,
    },
    /// The same for the tensor of a fixed index.
    Across {
        /// The index.
        chunk: u16,
        /// Interleaved outputs.
        of: u16,
        /// The one to take.
        part: u16,
    },
    /// The first (0) or the second (1) half of the rows of each head.
    HalfOfHeads(u16),
    /// A part of the input projection of linear attention, if the source groups all parts by key head.
    OfState(StatePart),
    /// The rows of each head are interleaved rotated pairs (0, E/2, 1, E/2 + 1, …), as in llama.cpp.
    RotatedPairs,
}

/// A part of the input projection of linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePart {
    /// Queries, then keys, then values, each grouped by head.
    QueriesKeysValues,
    /// Output gates.
    Gates,
    /// Beta: the fraction of the state to replace.
    Rates,
    /// Alpha: the decay of the state.
    Decays,
}

impl StatePart {
    /// Returns the source row of our row `row`.
    fn source_row(self, row: usize, sizes: &StateSizes) -> usize {
        let StateSizes { key_heads, value_heads, key_size, value_size } = *sizes;
        let shared = value_heads / key_heads.max(1);
        let values = shared * value_size;
        // Rows per key head in the source, offset of this part in it, its number of rows, and our row within the part.
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
    /// Returns the source row (of `rows` rows) of our row `row`, for transforms that reorder rows.
    pub fn source_row(self, row: usize, rows: usize, model_config: &ModelConfig) -> usize {
        let size = model_config.head_size;
        match self {
            Self::Whole | Self::Transposed | Self::PlusOne | Self::Neighbors(_) => row,
            Self::Stacked { part, .. } => usize::from(part) * rows + row,
            Self::Chunk(chunk) | Self::Across { chunk, .. } => usize::from(chunk) * rows + row,
            Self::StackedAcross { .. } => row,
            Self::HalfOfHeads(half) => (row / size * 2 + usize::from(half)) * size + row % size,
            Self::OfState(part) => part.source_row(row, &model_config.state),
            Self::GroupedQkv => {
                let (heads, keys) = (model_config.heads, model_config.kv_heads);
                let shared = (heads / keys.max(1)).max(1);
                let (group, part) = match row / size {
                    head if head < heads => (head / shared, head % shared),
                    head if head < heads + keys => (head - heads, shared),
                    head => (head - heads - keys, shared + 1),
                };
                (group * (shared + 2) + part) * size + row % size
            }
            Self::RotatedPairs => {
                let (head, within) = (row / size, row % size);
                let half = size / 2;
                head * size + if within < half { 2 * within } else { 2 * (within - half) + 1 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::ConfigReader;
    use serde_json::json;

    /// Four query heads of one column share two KV heads.
    #[test]
    fn grouped_rows_become_queries_keys_and_values() {
        let config = json!({
            "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 2,
        });
        let config = ConfigReader::new(config.as_object().unwrap().clone());
        let model_config = ModelConfig::read(&config, |width| width).unwrap();
        let rows = (0..8).map(|row| TensorTransform::GroupedQkv.source_row(row, 8, &model_config));
        assert_eq!(rows.collect::<Vec<_>>(), [0, 1, 4, 5, 2, 6, 3, 7]);
    }
}
