//! The integer form of a block: codes and scale fields, unpacked but not yet multiplied.

use super::codebooks;
use half::f16;

/// Codes and scale fields of one panel block of one row.
///
/// Codecs fill it from source blocks, panels are written from it and read back to it, so the arithmetic that
/// converts it to f32 exists once. Fields that a type does not use keep their previous content.
#[derive(Clone)]
pub(crate) struct BlockFields {
    /// One code per column, as stored: before offset or codebook.
    pub(crate) codes: [u8; 256],
    /// f16 or bf16 bits of the block scale; the second one is for the second 32 columns of formats with
    /// blocks of 32.
    pub(crate) d: [u16; 2],
    /// Bits of the block minimum, like `d`.
    pub(crate) m: [u16; 2],
    /// Scale factors of the sub-blocks; signed ones as two's complement.
    pub(crate) scales: [u8; 16],
    /// Minimum factors of the sub-blocks.
    pub(crate) mins: [u8; 16],
    /// Complete scales of groups of 16 columns, for formats without such fields.
    pub(crate) exact: [f32; 16],
}

impl BlockFields {
    /// All zero.
    pub(crate) const ZERO: Self =
        Self { codes: [0; 256], d: [0; 2], m: [0; 2], scales: [0; 16], mins: [0; 16], exact: [0.0; 16] };

    /// Returns whether all scale fields except `exact`, and the codes of the first `columns` columns, are the same.
    pub(crate) fn is_same(&self, other: &Self, columns: usize) -> bool {
        self.codes[..columns] == other.codes[..columns]
            && (self.d, self.m) == (other.d, other.m)
            && (self.scales, self.mins) == (other.scales, other.mins)
    }
}

/// How a stored code is converted to the integer q.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    /// q is the code as a signed byte.
    Signed,
    /// q is the code minus this.
    Offset(i16),
    /// q is looked up in a table.
    Codebook(&'static [i8; 16]),
}

impl Values {
    /// Returns the integer q of a code.
    #[inline(always)]
    pub(crate) fn integer(self, code: u8) -> i16 {
        match self {
            Values::Signed => i16::from(code as i8),
            Values::Offset(offset) => i16::from(code) - offset,
            Values::Codebook(table) => i16::from(table[usize::from(code & 15)]),
        }
    }
}

/// How the scale fields give the scale and the minimum of a sub-block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScaleRule {
    /// `d` is the f16 scale of 32 columns.
    F16,
    /// `d` is the f16 scale and `m` the f16 minimum of 32 columns.
    F16Min,
    /// `d` is the bf16 scale of 32 columns.
    Bf16,
    /// `d[0]` is the f16 scale of the whole block.
    F16Per256,
    /// `exact` is the scale of 16 columns.
    F32,
    /// f16 `d[0]` times the signed sub-block factor.
    Factor,
    /// f16 `d[0]` times the sub-block factor; the minimum is minus f16 `m[0]` times its factor.
    FactorMin,
    /// The scale is that of the row, which is stored elsewhere.
    Row,
    /// The scale of the row, which is stored elsewhere, times the sub-block factor of this code.
    RowFactor,
}

impl ScaleRule {
    /// Returns whether weights have a minimum.
    pub(crate) const fn has_min(self) -> bool {
        matches!(self, ScaleRule::F16Min | ScaleRule::FactorMin)
    }

    /// Returns whether each row has one scale and rotated columns.
    pub(crate) const fn is_row(self) -> bool {
        matches!(self, ScaleRule::Row | ScaleRule::RowFactor)
    }

    /// Returns the scale and minimum of sub-block `s` of the block; the minimum is 0 if the rule has none,
    /// and for row types the scale is the integer factor.
    #[inline]
    pub(crate) fn scale(self, parts: &BlockFields, s: usize) -> (f32, f32) {
        match self {
            ScaleRule::F16 => (half(parts.d[s & 1]), 0.0),
            ScaleRule::F16Min => (half(parts.d[s & 1]), half(parts.m[s & 1])),
            ScaleRule::Bf16 => (f32::from_bits(u32::from(parts.d[s & 1]) << 16), 0.0),
            ScaleRule::F16Per256 => (half(parts.d[0]), 0.0),
            ScaleRule::F32 => (parts.exact[s & 15], 0.0),
            ScaleRule::Factor => (half(parts.d[0]) * f32::from(parts.scales[s & 15] as i8), 0.0),
            ScaleRule::Row => (1.0, 0.0),
            ScaleRule::RowFactor => (f32::from(factor_of(parts.scales[s & 15])), 0.0),
            ScaleRule::FactorMin => (
                half(parts.d[0]) * f32::from(parts.scales[s & 15]),
                -(half(parts.m[0]) * f32::from(parts.mins[s & 15])),
            ),
        }
    }
}

/// How codes and scale fields combine to weights.
#[derive(Clone, Copy)]
pub(crate) struct Meaning {
    pub(crate) values: Values,
    pub(crate) rule: ScaleRule,
    /// Columns that share a scale.
    pub(crate) sub_block: usize,
}

impl Meaning {
    /// Writes the weights of `codes`, which start at sub-block `first` of the block.
    pub(crate) fn evaluate(self, parts: &BlockFields, first: usize, codes: &[u8], out: &mut [f32]) {
        match self.values {
            Values::Signed => {
                self.evaluate_with(parts, first, codes, out, |code| Values::Signed.integer(code))
            }
            Values::Offset(n) => {
                self.evaluate_with(parts, first, codes, out, |code| Values::Offset(n).integer(code))
            }
            Values::Codebook(t) => {
                self.evaluate_with(parts, first, codes, out, |code| Values::Codebook(t).integer(code));
            }
        }
    }

    #[inline(always)]
    fn evaluate_with(
        self,
        parts: &BlockFields,
        first: usize,
        codes: &[u8],
        out: &mut [f32],
        integer: impl Fn(u8) -> i16,
    ) {
        for (s, (codes, out)) in codes.chunks(self.sub_block).zip(out.chunks_mut(self.sub_block)).enumerate()
        {
            let (scale, min) = self.rule.scale(parts, first + s);
            if self.rule.has_min() {
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = scale * f32::from(integer(code)) + min;
                }
            } else {
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = scale * f32::from(integer(code));
                }
            }
        }
    }
}

/// Converts f16 bits to f32.
#[inline]
pub(crate) fn half(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// Returns the little-endian 16-bit word at byte `at`.
#[inline]
pub(crate) fn word(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Returns the little-endian 32-bit word at byte `at`.
#[inline]
pub(crate) fn double_word(block: &[u8], at: usize) -> u32 {
    u32::from(word(block, at)) | u32::from(word(block, at + 2)) << 16
}

/// Splits the nibbles of `bytes`: all low ones first, then all high ones.
#[inline]
pub(crate) fn put_nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((&byte, low), high) in bytes.iter().zip(low).zip(high) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// Joins nibbles as [`put_nibbles`] splits them.
#[inline]
pub(crate) fn join_nibbles(codes: &[u8], bytes: &mut [u8]) {
    let (low, high) = codes.split_at(bytes.len());
    for ((byte, &low), &high) in bytes.iter_mut().zip(low).zip(high) {
        *byte = low & 15 | (high & 15) << 4;
    }
}

/// Splits 64 bytes into 256 2-bit codes: bits 2t and 2t+1 of the 32 bytes of half h are columns 128h + 32t …
#[inline]
pub(crate) fn put_pairs(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
        for (t, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (2 * t) & 3;
            }
        }
    }
}

/// Joins the low two bits of 256 codes as [`put_pairs`] splits them.
#[inline]
pub(crate) fn join_pairs(codes: &[u8], bytes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact_mut(32).zip(codes.chunks_exact(128)) {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |byte, t| byte | (codes[32 * t + i] & 3) << (2 * t));
        }
    }
}

/// Returns the factor of a code below 16.
pub(crate) fn factor_of(code: u8) -> i8 {
    codebooks::W4I_FACTORS[usize::from(code & 15)]
}
