//! Row types: integers with one scale for a whole row, made to be multiplied in integers from one end to the
//! other. Their rows are rotated (see [`hadamard`](crate::hadamard)), and so are the activations.
//!
//! A weight of the rotated row is `scale · factor · q`: q is what the code stands for, the factor belongs to
//! sixteen columns and is 1 for types that have none. `factor · q` fits a signed byte.
//!
//! An encoded row is, for each 64 columns, the 64 codes and two bytes with the codes of four factors, a nibble
//! each; then the scale as an f32.
//!
//! To add a type: one file with a `CODEC` and one line in the list below.

mod search;
#[cfg(test)]
mod tests;
mod w4i;
mod w8r;

use super::codebooks;
use crate::hadamard::BLOCK;
use crate::panel::PanelType;
use core::ops::RangeInclusive;

/// Columns that share a factor.
pub const GROUP: usize = 16;

/// The most columns of a row: with bytes on both sides, sums of more could leave 32 bits.
pub const MOST_COLUMNS: usize = 1 << 17;

/// Bytes of an encoded block: codes, then factors.
const BLOCK_BYTES: usize = BLOCK + 2;

/// What the numbers of a row type can be.
trait Grid {
    /// The lowest and the highest q.
    const ENDS: [f32; 2];
    /// The magnitudes of factors; there are as many negative ones. `None`: no factors are stored.
    const FACTORS: Option<RangeInclusive<i8>>;
    /// The scales that are tried, as parts of the one that reaches the largest number: the first, the last, and
    /// how many steps lie between them.
    const REACH: (f32, f32, usize);

    /// The q nearest to `x`, which is within the ends.
    fn level(x: f32) -> f32;
    /// The code of a q.
    fn code(q: i16) -> u8;
    /// The scale as it is stored.
    fn stored(scale: f32) -> f32;
}

/// One row type.
pub(crate) struct Codec {
    name: &'static str,
    panel: PanelType,
    scale: fn(&[f32], Option<&[f32]>) -> f32,
    factor: fn(f32, &[f32], Option<&[f32]>) -> i8,
    integer: fn(f32, f32) -> i16,
    code: fn(i16) -> u8,
    has_factors: bool,
}

impl Codec {
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

/// The factor of a code below 16.
pub(crate) fn factor_of(code: u8) -> i8 {
    codebooks::W4I_FACTORS[usize::from(code & 15)]
}

fn code_of(factor: i8) -> u8 {
    codebooks::W4I_FACTORS.iter().position(|&known| known == factor).unwrap_or(0) as u8
}

macro_rules! row_types {
    ($($(#[$doc:meta])* $name:ident => $file:ident :: $codec:ident,)*) => {
        /// A row type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RowType {
            $($(#[$doc])* $name,)*
        }

        impl RowType {
            /// Every type.
            pub const ALL: &[RowType] = &[$(RowType::$name,)*];

            fn codec(self) -> &'static Codec {
                match self {
                    $(RowType::$name => &$file::$codec,)*
                }
            }
        }
    };
}

row_types! {
    /// Bytes.
    W8R => w8r::CODEC,
    /// 4 bits, a factor of 4 bits per 16.
    W4I => w4i::CODEC,
}

impl RowType {
    /// The name, as recipes and reports have it.
    pub fn name(self) -> &'static str {
        self.codec().name
    }

    /// The type with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name))
    }

    /// The panels that hold these rows.
    pub fn panel(self) -> PanelType {
        self.codec().panel
    }

    /// Bytes of an encoded row of `columns`; `None` for more than [`MOST_COLUMNS`].
    pub fn row_bytes(self, columns: usize) -> Option<usize> {
        if columns > MOST_COLUMNS {
            return None;
        }
        columns.div_ceil(BLOCK).checked_mul(BLOCK_BYTES)?.checked_add(4)
    }

    /// Encodes a rotated row, with the least error weighted by `weights` (all equal if `None`) that the search
    /// finds. `false`, with nothing written, when a length is not a multiple of 64 or not that of the others.
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

    /// The scale of a rotated row with the least error, as it is stored: positive, or zero for a row of zeros.
    pub fn scale(self, rotated: &[f32], weights: Option<&[f32]>) -> f32 {
        (self.codec().scale)(rotated, weights)
    }

    /// The factor with the least error for sixteen columns.
    pub fn factor(self, scale: f32, group: &[f32], weights: Option<&[f32]>) -> i8 {
        (self.codec().factor)(scale, group, weights)
    }

    /// The q nearest to a number.
    pub fn integer(self, scale: f32, factor: i8, x: f32) -> i16 {
        (self.codec().integer)(scale * f32::from(factor), x)
    }

    /// Stores the factor of the sixteen columns `group`.
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

    /// The rotated row of the encoded one. `false`, with nothing written, for wrong lengths.
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

/// The blocks of an encoded row, codes and codes of factors, and its scale.
pub(crate) fn blocks(row: &[u8]) -> (impl Iterator<Item = (&[u8], [u8; 4])>, f32) {
    let (blocks, scale) = row.split_at(row.len() - 4);
    let factors = |bytes: &[u8]| [bytes[0] & 15, bytes[0] >> 4, bytes[1] & 15, bytes[1] >> 4];
    let blocks =
        blocks.chunks_exact(BLOCK_BYTES).map(move |block| (&block[..BLOCK], factors(&block[BLOCK..])));
    (blocks, f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]))
}
