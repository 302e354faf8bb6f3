//! Row types: integers with one scale for a whole row, so that dot products are integer sums over the whole
//! row. The rows are rotated (see [`hadamard`](crate::hadamard)), and so are the activations.
//!
//! A weight of the rotated row is `scale · factor · q`: q is the level of the code; the factor is shared by
//! sixteen columns and is 1 for types without factors. `factor · q` fits in a signed byte.
//!
//! An encoded row consists of, for each 64 columns, the 64 codes and two bytes with the codes of four
//! factors, a nibble each; then the scale as an f32.
//!
//! To add a type: one file with a `CODEC` and one line in the list below.

mod search;
mod w4i;
mod w8r;

use super::bit_fields::factor_of;
use super::codebooks;
use crate::hadamard::BLOCK;
use crate::panel::PanelType;
use core::ops::RangeInclusive;

/// Columns that share a factor.
pub const GROUP: usize = 16;

/// Maximum number of columns of a row: with int8 operands, longer sums could overflow 32 bits.
pub const MAX_COLUMNS: usize = 1 << 17;

/// Bytes of an encoded block: codes, then factor codes.
const BLOCK_BYTES: usize = BLOCK + 2;

/// The levels and factors of a row type.
trait Grid {
    /// The lowest and the highest q.
    const ENDS: [f32; 2];
    /// The magnitudes of factors; each is also available with a negative sign. `None`: no factors are stored.
    const FACTORS: Option<RangeInclusive<i8>>;
    /// The scales that the search tries, relative to the one that reaches the largest value: first, last, and
    /// the number of steps in between.
    const REACH: (f32, f32, usize);

    /// Returns the q nearest to `x`, which must be within the ends.
    fn level(x: f32) -> f32;
    /// Returns the code of a q.
    fn code(q: i16) -> u8;
    /// Returns the scale rounded to the stored format.
    fn stored(scale: f32) -> f32;
}

/// The codec of one row type.
pub(crate) struct RowCodec {
    name: &'static str,
    panel: PanelType,
    scale: fn(&[f32], Option<&[f32]>) -> f32,
    factor: fn(f32, &[f32], Option<&[f32]>) -> i8,
    integer: fn(f32, f32) -> i16,
    code: fn(i16) -> u8,
    has_factors: bool,
}

impl RowCodec {
    const fn new<G: Grid>(name: &'static str, panel: PanelType) -> Self {
        Self {
            name,
            panel,
            scale: search::scale::<G>,
            factor: search::factor::<G>,
            integer: search::integer::<G>,
            code: G::code,
            has_factors: G::FACTORS.is_some(),
        }
    }
}

fn code_of(factor: i8) -> u8 {
    codebooks::W4I_FACTORS.iter().position(|&known| known == factor).unwrap_or(0) as u8
}

macro_rules! row_types {
    ($($(#[$doc:meta])* $name:ident => $file:ident :: $codec:ident,)*) => {
        /// A weight type with one scale per row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RowType {
            $($(#[$doc])* $name,)*
        }

        impl RowType {
            /// All types.
            pub const ALL: &[RowType] = &[$(RowType::$name,)*];

            fn codec(self) -> &'static RowCodec {
                match self {
                    $(RowType::$name => &$file::$codec,)*
                }
            }
        }
    };
}

row_types! {
    /// int8, an f32 scale per row.
    W8R => w8r::CODEC,
    /// 4-bit codes, a 4-bit factor per 16 columns, a bf16 scale per row.
    W4I => w4i::CODEC,
}

impl RowType {
    /// Returns the name, as used in recipes and reports.
    pub fn name(self) -> &'static str {
        self.codec().name
    }

    /// Returns the type with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// Returns the panel type of these rows.
    pub fn panel(self) -> PanelType {
        self.codec().panel
    }

    /// Returns the bytes of an encoded row of `columns`; `None` for more than [`MAX_COLUMNS`].
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if columns > MAX_COLUMNS {
            return None;
        }
        columns.div_ceil(BLOCK).checked_mul(BLOCK_BYTES)?.checked_add(4)
    }

    /// Encodes a rotated row, minimizing the squared error weighted by `weights` (all equal if `None`) within
    /// the search space. Returns `false`, with nothing written, if a length is not a multiple of 64 or the
    /// lengths do not match.
    pub fn encode(self, rotated: &[f32], weights: Option<&[f32]>, row: &mut [u8]) -> bool {
        let fits = |weights: &[f32]| weights.len() == rotated.len();
        let whole = rotated.len().is_multiple_of(BLOCK);
        if !whole || !weights.is_none_or(fits) || self.row_bytes(rotated.len()) != Some(row.len()) {
            return false;
        }
        let scale = self.scale(rotated, weights);
        for (index, group) in rotated.chunks_exact(GROUP).enumerate() {
            let factor = self.factor(scale, group, search::part(weights, index));
            self.put_factor(row, index, factor);
            for (i, &x) in group.iter().enumerate() {
                self.put_code(row, index * GROUP + i, self.integer(scale, factor, x));
            }
        }
        self.put_scale(row, scale);
        true
    }

    /// Returns the scale of a rotated row with the least error, in stored precision: positive, or zero for a
    /// row of zeros.
    pub fn scale(self, rotated: &[f32], weights: Option<&[f32]>) -> f32 {
        (self.codec().scale)(rotated, weights)
    }

    /// Returns the factor with the least error for sixteen columns.
    pub fn factor(self, scale: f32, group: &[f32], weights: Option<&[f32]>) -> i8 {
        (self.codec().factor)(scale, group, weights)
    }

    /// Returns the q nearest to a value.
    pub fn integer(self, scale: f32, factor: i8, x: f32) -> i16 {
        (self.codec().integer)(scale * f32::from(factor), x)
    }

    /// Stores the factor of group `group` of sixteen columns.
    pub fn put_factor(self, row: &mut [u8], group: usize, factor: i8) {
        if self.codec().has_factors {
            let at = group / 4 * BLOCK_BYTES + BLOCK + group % 4 / 2;
            let shift = group % 2 * 4;
            row[at] = row[at] & !(15 << shift) | code_of(factor) << shift;
        }
    }

    /// Stores the q of a column.
    pub fn put_code(self, row: &mut [u8], column: usize, q: i16) {
        row[column / BLOCK * BLOCK_BYTES + column % BLOCK] = (self.codec().code)(q);
    }

    /// Stores the row's scale.
    pub fn put_scale(self, row: &mut [u8], scale: f32) {
        let at = row.len() - 4;
        row[at..].copy_from_slice(&scale.to_le_bytes());
    }

    /// Decodes an encoded row to the rotated row. Returns `false`, with nothing written, if the lengths do
    /// not match.
    pub fn decode(self, row: &[u8], rotated: &mut [f32]) -> bool {
        if !rotated.len().is_multiple_of(BLOCK) || self.row_bytes(rotated.len()) != Some(row.len()) {
            return false;
        }
        let meaning = self.panel().layout().meaning;
        let (blocks, scale) = blocks(row);
        for ((codes, factors), out) in blocks.zip(rotated.chunks_exact_mut(BLOCK)) {
            for (column, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
                let factor = if self.codec().has_factors { factor_of(factors[column / GROUP]) } else { 1 };
                *out = scale * f32::from(meaning.values.integer(code) * i16::from(factor));
            }
        }
        true
    }
}

/// Returns the blocks of an encoded row, as codes and factor codes, and its scale.
pub(crate) fn blocks(row: &[u8]) -> (impl Iterator<Item = (&[u8], [u8; 4])>, f32) {
    let (blocks, scale) = row.split_at(row.len() - 4);
    let factors = |bytes: &[u8]| [bytes[0] & 15, bytes[0] >> 4, bytes[1] & 15, bytes[1] >> 4];
    let blocks =
        blocks.chunks_exact(BLOCK_BYTES).map(move |block| (&block[..BLOCK], factors(&block[BLOCK..])));
    (blocks, f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]))
}
