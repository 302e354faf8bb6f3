//! The rows of a forward pass.

use super::Distances;
use super::block_table::{BlockTable, SequenceId};
use siskin_graph::op::KeyBias;
use siskin_graph::{AdapterSlot, Attention, AttentionMask, QueryPosition, RopeTable, RowCounts, RowKind};
use siskin_kernels::ops::rope;
use std::ops::Range;

/// A token in a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its sequence.
    pub sequence: SequenceId,
    /// Its position in the sequence.
    pub position: usize,
    /// Its id.
    pub token: u32,
    /// Its token type id.
    pub token_type: u32,
    /// Its index among the global tokens of its sequence.
    pub global_index: Option<usize>,
    /// The current or expected length of its sequence, which RoPE frequencies may depend on.
    pub rope_length: usize,
    /// The adapter that applies to it.
    pub adapter: AdapterSlot,
}

impl TokenRow {
    /// Writes the cosines, then the sines of its angles in a RoPE table.
    #[doc(hidden)]
    pub fn rope_frequencies(&self, table: &RopeTable, out: &mut [f32]) {
        rope::cos_sin_of(&table.frequency(self.rope_length), table.magnitude, self.position as u32, out);
    }
}

/// The rows of a forward pass. The rows of a sequence are in order of position.
#[derive(Debug, Default)]
pub struct Batch {
    /// The tokens.
    pub rows: Vec<TokenRow>,
    /// The sequences of the rows, without duplicates.
    pub sequences: Vec<SequenceId>,
    /// The adapters of the rows, without duplicates and without [`AdapterSlot::MODEL`].
    pub adapters: Vec<AdapterSlot>,
    /// The output rows.
    pub output_rows: Vec<usize>,
    /// The rows of global tokens, in order.
    pub global_rows: Vec<usize>,
    /// Score bias per row of a model with global attention: masks global tokens at their own positions.
    pub global_token_mask: Vec<f32>,
    /// Input features, frame by frame, for models that take features instead of tokens.
    pub features: Vec<f32>,
    /// External input of each row, computed by another part of the graph.
    pub external_input: Vec<f32>,
    /// For each frame, the range of frames of its sequence.
    pub frames: Vec<(usize, usize)>,
    /// For each row, the first frame of its sequence.
    pub row_frames: Vec<usize>,
}

impl Batch {
    /// Creates an empty batch with capacity for `rows` rows and `output_rows` outputs.
    pub fn with_capacity(rows: usize, output_rows: usize) -> Self {
        Self {
            rows: Vec::with_capacity(rows),
            sequences: Vec::with_capacity(rows),
            adapters: Vec::with_capacity(rows),
            output_rows: Vec::with_capacity(output_rows),
            ..Self::default()
        }
    }

    /// Returns whether this is a decode batch: one row per sequence, all with outputs. In a prefill only the last row
    /// has outputs.
    pub fn is_decode(&self) -> bool {
        self.rows.len() == self.output_rows.len() && self.rows.len() == self.sequences.len()
    }

    /// Returns the numbers of rows.
    pub fn counts(&self) -> RowCounts {
        let Self { rows, output_rows, frames, .. } = self;
        RowCounts { tokens: rows.len(), outputs: output_rows.len(), frames: frames.len() }
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.sequences.clear();
        self.adapters.clear();
        self.output_rows.clear();
        self.global_rows.clear();
        self.global_token_mask.clear();
        self.features.clear();
        self.external_input.clear();
        self.frames.clear();
        self.row_frames.clear();
    }

    /// Appends a row.
    pub fn push(&mut self, row: TokenRow) {
        if self.rows.last().is_none_or(|last| last.sequence != row.sequence)
            && !self.sequences.contains(&row.sequence)
        {
            self.sequences.push(row.sequence);
        }
        if row.adapter != AdapterSlot::MODEL && !self.adapters.contains(&row.adapter) {
            self.adapters.push(row.adapter);
        }
        self.rows.push(row);
    }

    /// Returns the adapter of a row of this kind.
    pub(super) fn adapter(&self, rows: RowKind, row: usize) -> AdapterSlot {
        let token = match rows {
            RowKind::Tokens => Some(row),
            RowKind::Outputs => self.output_rows.get(row).copied(),
            RowKind::Frames | RowKind::Slots(_) => None,
        };
        token.and_then(|token| self.rows.get(token)).map_or(AdapterSlot::MODEL, |row| row.adapter)
    }

    /// Returns the first contiguous run of rows in `range` with this adapter.
    pub(super) fn adapter_rows(
        &self,
        rows: RowKind,
        adapter: AdapterSlot,
        range: Range<usize>,
    ) -> Option<Range<usize>> {
        let end = range.end;
        let start = range.clone().find(|&row| self.adapter(rows, row) == adapter)?;
        let other = (start..end).find(|&row| self.adapter(rows, row) != adapter);
        Some(start..other.unwrap_or(end))
    }

    /// Returns how many rows attend.
    pub(super) fn attending(&self, attention: &Attention) -> usize {
        if attention.attention_mask == AttentionMask::LongformerGlobal {
            self.global_rows.len()
        } else {
            self.rows.len()
        }
    }

    /// Returns the batch row of attending row `index`.
    pub(super) fn attending_row(&self, attention: &Attention, index: usize) -> usize {
        if attention.attention_mask == AttentionMask::LongformerGlobal {
            self.global_rows[index]
        } else {
            index
        }
    }

    /// Returns the score bias for the keys up to position `last` of row `row`'s sequence and for its further key
    /// ranges.
    pub(super) fn bias<'a>(
        &'a self,
        attention: &Attention,
        distances: &'a Distances,
        head: usize,
        row: usize,
        last: usize,
        blocks: &BlockTable,
    ) -> &'a [f32] {
        let position = self.rows[row].position;
        match attention.attention_mask.key_bias() {
            Some(KeyBias::Blocks { size, random }) => {
                match attention.attention_mask.block(place(self.rows[row], blocks)) {
                    Some(_) => distances.of_blocks(
                        size,
                        random,
                        blocks.encoded_length(self.rows[row].sequence).unwrap_or(0),
                    ),
                    None => &[],
                }
            }
            Some(KeyBias::GlobalTokens) => &self.global_token_mask[row - position..=row - position + last],
            None => distances.of(attention, head, position, last),
        }
    }

    /// Returns the row of kind `from` at distance `offset` from the one that corresponds to output row `row`, if it is
    /// in the same sequence.
    #[doc(hidden)]
    pub fn neighbor(
        &self,
        from: RowKind,
        to: RowKind,
        row: usize,
        offset: isize,
        stride: usize,
    ) -> Option<usize> {
        let same = |other: &TokenRow| self.rows.get(row).is_some_and(|row| row.sequence == other.sequence);
        match (from, to) {
            (RowKind::Frames, RowKind::Frames) => {
                let (first, end) = *self.frames.get(row)?;
                row.checked_add_signed(offset).filter(|other| (first..end).contains(other))
            }
            (RowKind::Frames, _) => {
                let (first, end) = *self.frames.get(*self.row_frames.get(row)?)?;
                let center = first + self.rows.get(row)?.position * stride;
                center.checked_add_signed(offset).filter(|other| (first..end).contains(other))
            }
            _ => row.checked_add_signed(offset).filter(|&other| self.rows.get(other).is_some_and(same)),
        }
    }
}

/// Returns the position of a row in its sequence.
#[doc(hidden)]
pub fn place(row: TokenRow, blocks: &BlockTable) -> QueryPosition {
    QueryPosition {
        position: row.position,
        encoded_length: blocks.encoded_length(row.sequence).unwrap_or(0),
        bidirectional_prefix: blocks.bidirectional_prefix(row.sequence),
        global_tokens: blocks.global_tokens(row.sequence),
    }
}

/// Returns where a global token is stored a second time, after the sequence.
pub(super) fn marked_place(attention: &Attention, row: TokenRow, blocks: &BlockTable) -> Option<usize> {
    matches!(attention.attention_mask, AttentionMask::LongformerLocal(_))
        .then(|| second_place(row, blocks))?
}

/// The same, for attention to global tokens.
#[doc(hidden)]
pub fn second_place(row: TokenRow, blocks: &BlockTable) -> Option<usize> {
    Some(blocks.encoded_length(row.sequence).ok()? + row.global_index?)
}
