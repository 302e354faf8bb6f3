//! The packed panel layout: 16 rows of a weight matrix, interleaved so that each SIMD lane belongs to one row
//! ("packed panels" of BLIS, <https://doi.org/10.1145/2764454>).
//!
//! `docs/format.md` specifies it; [`pack`] writes it, [`sub_block`] and [`row_values`] read it, and
//! [`unpack`] restores the source blocks. The floats are those of the source blocks, bit for bit.
//!
//! To add a type: one description in `types.rs` and one line in the list below.

mod blocks;
mod layout;
mod pack;
mod read;
mod types;
mod unpack;

use crate::quant::BlockType;
use crate::quant::row::MAX_COLUMNS;
pub(crate) use blocks::PanelBlocks;
pub(crate) use layout::PanelLayout;
pub use pack::{pack, pack_rows};
pub use read::{SubBlock, row_values, sub_block};
pub use unpack::unpack;

/// Rows per panel.
pub const ROWS: usize = 16;

/// The format of the left operand of a matmul; see [`quantize`](crate::ops::quantize).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// f32.
    Float,
    /// int8 with a scale per block.
    Quantized,
    /// int8 of the rotated row, with one scale per row.
    Rotated,
}

macro_rules! panel_types {
    ($($(#[$doc:meta])* $name:ident = $id:literal,)*) => {
        /// The packed layout of a panel. The ids are those of the file format and never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum PanelType {
            $($(#[$doc])* $name = $id,)*
        }

        impl PanelType {
            /// All types, in order of their ids.
            pub const ALL: &[PanelType] = &[$(PanelType::$name,)*];

            /// Returns the description of the type.
            pub(crate) fn layout(self) -> &'static PanelLayout {
                match self {
                    $(PanelType::$name => const { &types::$name },)*
                }
            }
        }
    };
}

panel_types! {
    /// IEEE single precision.
    F32 = 0,
    /// IEEE half precision.
    F16 = 1,
    /// bfloat16.
    BF16 = 2,
    /// int8, one scale per 32 columns.
    Q8 = 3,
    /// int8, one f32 scale per 16 columns.
    Q8S16 = 4,
    /// 4 bits, one scale per 32 columns.
    Q4 = 5,
    /// 4 bits, one scale and minimum per 32 columns.
    Q4M = 6,
    /// 4 bits with the IQ4_NL codebook, one scale per 32 columns.
    Q4NL = 7,
    /// 4-bit floats (E2M1), one power-of-two scale per 32 columns.
    MXFP4 = 8,
    /// 5 bits, one scale per 32 columns.
    Q5 = 9,
    /// 5 bits, one scale and minimum per 32 columns.
    Q5M = 10,
    /// 4 bits, two-level scale and minimum per 32 columns.
    Q4K = 11,
    /// 5 bits, two-level scale and minimum per 32 columns.
    Q5K = 12,
    /// 6 bits, two-level scale per 16 columns.
    Q6K = 13,
    /// 3 bits, two-level scale per 16 columns.
    Q3K = 14,
    /// 2 bits, two-level scale and minimum per 16 columns.
    Q2K = 15,
    /// 4 bits with the IQ4_NL codebook, two-level scale per 32 columns.
    IQ4XS = 16,
    /// −1, 0 and 1, one scale per 256 columns.
    TERNARY = 17,
    /// int8, one scale per row; rotated.
    W8R = 18,
    /// 4 bits with a codebook, a factor per 16 columns and one scale per row; rotated.
    W4I = 19,
}

impl PanelType {
    /// Returns the id of the type in files.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// Returns the type with an id.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.id() == id)
    }

    /// Returns the name, as in `docs/format.md`.
    pub fn name(self) -> &'static str {
        self.layout().name
    }

    /// Returns the type that holds the weights of `source` exactly.
    pub fn for_block(source: BlockType) -> Self {
        source.codec().panel
    }

    /// Returns the columns of a block, to which K is padded: 64 or 256.
    pub fn block_columns(self) -> usize {
        self.layout().columns
    }

    /// Returns the columns that share a scale: 32 or 16; 64 for float types, which have none.
    pub fn sub_block(self) -> usize {
        self.layout().meaning.sub_block
    }

    /// Returns the bytes of a block of 16 rows.
    pub fn block_bytes(self) -> usize {
        self.layout().block_bytes()
    }

    /// Returns whether the panel holds floats instead of integers with scales.
    pub fn is_float(self) -> bool {
        self.layout().float_bytes != 0
    }

    /// Returns the format of the activation rows that these panels are multiplied with.
    pub fn input(self) -> InputKind {
        match (self.is_float(), self.is_row()) {
            (true, _) => InputKind::Float,
            (false, false) => InputKind::Quantized,
            (false, true) => InputKind::Rotated,
        }
    }

    /// Returns whether each row has one scale and rotated columns.
    pub fn is_row(self) -> bool {
        self.layout().meaning.rule.is_row()
    }

    /// Returns whether weights are `scale · q + min` rather than `scale · q`.
    pub fn has_min(self) -> bool {
        self.layout().meaning.rule.has_min()
    }

    /// Returns `k` rounded up to whole blocks; the largest multiple of a block that does not overflow
    /// otherwise.
    pub fn columns_padded(self, k: usize) -> usize {
        let columns = self.block_columns();
        k.checked_next_multiple_of(columns).unwrap_or(usize::MAX / columns * columns)
    }

    /// Returns the bytes of a panel with `k` columns; `None` on overflow, or if a row type has more than its
    /// maximum of columns.
    pub fn panel_bytes(self, k: usize) -> Option<usize> {
        if self.is_row() && k > MAX_COLUMNS {
            return None;
        }
        let blocks = k.div_ceil(self.block_columns()).checked_mul(self.block_bytes())?;
        blocks.checked_add(self.layout().rows.bytes())
    }

    /// Returns the bytes of a matrix of `n` rows and `k` columns; `None` on overflow.
    pub fn tensor_bytes(self, n: usize, k: usize) -> Option<usize> {
        n.div_ceil(ROWS).checked_mul(self.panel_bytes(k)?)
    }
}
