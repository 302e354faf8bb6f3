//! The packed panel layout: 16 rows of a weight matrix, interleaved so that a SIMD lane belongs to one row.
//!
//! `docs/format.md` specifies it; [`pack`] writes it, [`sub_block`] and [`row_values`] read it back, and [`unpack`]
//! gives the source's blocks again. The floats are those of the source blocks, bit for bit.
//!
//! To add a type: one description in `types.rs` and one line in the list below.

mod blocks;
mod layout;
mod pack;
mod read;
#[cfg(test)]
mod tests;
mod types;
mod unpack;

use crate::quant::BlockType;
use crate::quant::row::MOST_COLUMNS;
pub(crate) use blocks::PanelBlocks;
pub(crate) use layout::PanelLayout;
pub use pack::{pack, pack_rows};
pub use read::{SubBlock, row_values, sub_block};
pub use unpack::unpack;

/// Rows of a panel.
pub const ROWS: usize = 16;

/// What the left side of a product is; see [`quantise`](crate::ops::quantise).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// Numbers.
    Float,
    /// Integers with a scale per block.
    Quantised,
    /// Integers of the rotated row with one scale.
    Rotated,
}

macro_rules! panel_types {
    ($($(#[$doc:meta])* $name:ident = $id:literal,)*) => {
        /// How the weights of a panel are stored. The numbers are those of the file format and never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum PanelType {
            $($(#[$doc])* $name = $id,)*
        }

        impl PanelType {
            /// Every type, in the order of the numbers.
            pub const ALL: &[PanelType] = &[$(PanelType::$name,)*];

            /// The description of the type.
            pub(crate) fn layout(self) -> &'static PanelLayout {
                match self {
                    $(PanelType::$name => const { &types::$name },)*
                }
            }
        }
    };
}

panel_types! {
    /// 32-bit floats.
    F32 = 0,
    /// 16-bit floats.
    F16 = 1,
    /// bfloat16.
    BF16 = 2,
    /// Bytes, one scale per 32.
    Q8 = 3,
    /// Bytes, one f32 scale per 16.
    Q8S16 = 4,
    /// 4 bits, one scale per 32.
    Q4 = 5,
    /// 4 bits, one scale and minimum per 32.
    Q4M = 6,
    /// 4 bits through the IQ4_NL codebook, one scale per 32.
    Q4NL = 7,
    /// 4-bit floats, one power of two per 32.
    MXFP4 = 8,
    /// 5 bits, one scale per 32.
    Q5 = 9,
    /// 5 bits, one scale and minimum per 32.
    Q5M = 10,
    /// 4 bits, two-level scale and minimum per 32.
    Q4K = 11,
    /// 5 bits, two-level scale and minimum per 32.
    Q5K = 12,
    /// 6 bits, two-level scale per 16.
    Q6K = 13,
    /// 3 bits, two-level scale per 16.
    Q3K = 14,
    /// 2 bits, two-level scale and minimum per 16.
    Q2K = 15,
    /// 4 bits through the IQ4_NL codebook, two-level scale per 32.
    IQ4XS = 16,
    /// −1, 0 and 1, one scale per 256.
    TERNARY = 17,
    /// Bytes, one scale per row; rotated.
    W8R = 18,
    /// 4 bits through a codebook, a factor per 16 and one scale per row; rotated.
    W4I = 19,
}

impl PanelType {
    /// The number of the type in files.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// The type with a number.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.id() == id)
    }

    /// The name, as in `docs/format.md`.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// The type that holds the weights of `source` exactly.
    pub fn for_block(source: BlockType) -> Self {
        source.codec().panel
    }

    /// Columns of a block, to which K is padded: 64 or 256.
    pub fn block_columns(self) -> usize {
        self.layout().columns
    }

    /// Columns that share a scale: 32 or 16; 64 for float types, which have none.
    pub fn sub_block(self) -> usize {
        self.layout().meaning.sub_block
    }

    /// Bytes of a block of 16 rows.
    pub fn block_bytes(self) -> usize {
        self.layout().block_bytes()
    }

    /// Whether the panel holds floats instead of integers with scales.
    pub fn is_float(self) -> bool {
        self.layout().float_bytes != 0
    }

    /// What the rows that are multiplied with such panels have to be.
    pub fn input(self) -> InputKind {
        match (self.is_float(), self.is_row()) {
            (true, _) => InputKind::Float,
            (false, false) => InputKind::Quantised,
            (false, true) => InputKind::Rotated,
        }
    }

    /// Whether a row has one scale, and its columns are rotated.
    pub fn is_row(self) -> bool {
        self.layout().meaning.rule.is_row()
    }

    /// Whether weights are `scale · q + min` rather than `scale · q`.
    pub fn has_min(self) -> bool {
        self.layout().meaning.rule.has_min()
    }

    /// `k` rounded up to whole blocks; the largest multiple there is where that would overflow.
    pub fn columns_padded(self, k: usize) -> usize {
        let columns = self.block_columns();
        k.checked_next_multiple_of(columns).unwrap_or(usize::MAX / columns * columns)
    }

    /// Bytes of a panel with `k` columns; `None` on overflow, and for more columns than a row type may have.
    pub fn panel_bytes(self, k: usize) -> Option<usize> {
        if self.is_row() && k > MOST_COLUMNS {
            return None;
        }
        let blocks = k.div_ceil(self.block_columns()).checked_mul(self.block_bytes())?;
        blocks.checked_add(self.layout().rows.bytes())
    }

    /// Bytes of a matrix of `n` rows and `k` columns; `None` on overflow.
    pub fn tensor_bytes(self, n: usize, k: usize) -> Option<usize> {
        n.div_ceil(ROWS).checked_mul(self.panel_bytes(k)?)
    }
}
