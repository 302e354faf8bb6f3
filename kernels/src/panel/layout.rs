//! The data-driven description of how a panel type lays out its bit planes and scale fields, and the code
//! that interprets it.

use crate::quant::bit_fields::{BlockFields, Meaning};

/// Bytes of a line: one 32-bit lane for each of 16 rows.
pub(crate) const LINE: usize = 64;
/// Columns per macro-block.
pub(crate) const MACRO: usize = 64;

/// The description of a panel type.
pub(crate) struct PanelLayout {
    pub(crate) name: &'static str,
    /// Columns per block.
    pub(crate) columns: usize,
    /// Bytes per element of float types, whose macro-blocks are lines of floats; 0 for integer types.
    pub(crate) float_bytes: usize,
    /// Scale fields before the first macro-block.
    pub(crate) head: &'static [ScaleField],
    /// Bit planes of a macro-block.
    pub(crate) planes: &'static [BitPlane],
    /// Scale fields after the planes of a macro-block.
    pub(crate) tail: &'static [ScaleField],
    /// Scales of the rows, after the last block of the panel.
    pub(crate) rows: RowScales,
    pub(crate) meaning: Meaning,
}

impl PanelLayout {
    pub(crate) const fn head_bytes(&self) -> usize {
        lines_of(self.head)
    }

    pub(crate) const fn plane_bytes(&self) -> usize {
        let mut bytes = self.float_bytes * 16 * MACRO;
        let mut i = 0;
        while i < self.planes.len() {
            bytes += self.planes[i].bytes();
            i += 1;
        }
        bytes
    }

    pub(crate) const fn macro_bytes(&self) -> usize {
        self.plane_bytes() + lines_of(self.tail)
    }

    pub(crate) const fn block_bytes(&self) -> usize {
        self.head_bytes() + self.columns / MACRO * self.macro_bytes()
    }

    /// Writes one row's part of a block whose bytes are zero, starting with macro-block `first` of `parts`.
    pub(crate) fn put(&self, parts: &BlockFields, first: usize, lane: usize, block: &mut [u8]) {
        let (head, macros) = block.split_at_mut(self.head_bytes());
        put_fields(self.head, parts, 0, lane, head);
        let plane_bytes = self.plane_bytes();
        for (m, bytes) in (first..).zip(macros.chunks_exact_mut(self.macro_bytes())) {
            let (mut planes, tail) = bytes.split_at_mut(plane_bytes);
            let groups = groups(&parts.codes[MACRO * m..]);
            for plane in self.planes {
                let (lines, rest) = planes.split_at_mut(plane.bytes());
                plane.put(&groups, lane, lines);
                planes = rest;
            }
            put_fields(self.tail, parts, m, lane, tail);
        }
    }

    /// Reads one row's part of macro-block `m`: its codes to the front of `codes`, its scale fields to their
    /// positions.
    pub(crate) fn take(&self, block: &[u8], m: usize, lane: usize, parts: &mut BlockFields) {
        let (head, macros) = block.split_at(self.head_bytes());
        take_fields(self.head, head, 0, lane, parts);
        let Some(bytes) = macros.chunks_exact(self.macro_bytes()).nth(m) else { return };
        let (mut planes, tail) = bytes.split_at(self.plane_bytes());
        let mut groups = [0u32; 16];
        for plane in self.planes {
            let (lines, rest) = planes.split_at(plane.bytes());
            plane.take(lines, lane, &mut groups);
            planes = rest;
        }
        for (codes, group) in parts.codes.chunks_exact_mut(4).zip(groups) {
            codes.copy_from_slice(&group.to_le_bytes());
        }
        take_fields(self.tail, tail, m, lane, parts);
    }
}

/// One scale per row at the end of a panel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowScales {
    /// No row scales.
    Absent,
    /// bf16.
    Bf16,
    /// f32.
    Full,
}

impl RowScales {
    pub(crate) const fn bytes(self) -> usize {
        16 * self.width()
    }

    const fn width(self) -> usize {
        match self {
            RowScales::Absent => 0,
            RowScales::Bf16 => 2,
            RowScales::Full => 4,
        }
    }

    /// Writes one row's scale into the end of a panel.
    pub(crate) fn put(self, scale: f32, lane: usize, panel: &mut [u8]) {
        let at = panel.len() - self.bytes() + self.width() * lane;
        let bytes = scale.to_le_bytes();
        // A bf16 is the upper half of an f32.
        panel[at..at + self.width()].copy_from_slice(&bytes[4 - self.width()..]);
    }

    /// Reads one row's scale; 1 if there are no row scales.
    pub(crate) fn take(self, lane: usize, panel: &[u8]) -> f32 {
        let at = panel.len() - self.bytes() + self.width() * lane;
        let mut bytes = [0; 4];
        bytes[4 - self.width()..].copy_from_slice(&panel[at..at + self.width()]);
        if self == RowScales::Absent { 1.0 } else { f32::from_le_bytes(bytes) }
    }
}

/// Some bits of each code of a macro-block.
#[derive(Clone, Copy)]
pub(crate) struct BitPlane {
    /// Bits per code in this plane: 8, 4, 2 or 1.
    pub(crate) bits: usize,
    /// Position of the lowest of these bits in the code.
    pub(crate) shift: usize,
}

impl BitPlane {
    pub(crate) const fn bytes(self) -> usize {
        16 * self.bits / 8 * LINE
    }

    #[inline]
    fn put(self, groups: &[u32; 16], lane: usize, lines: &mut [u8]) {
        match self.bits {
            8 => put_plane::<8>(groups, self.shift, lane, lines),
            4 => put_plane::<4>(groups, self.shift, lane, lines),
            2 => put_plane::<2>(groups, self.shift, lane, lines),
            _ => put_plane::<1>(groups, self.shift, lane, lines),
        }
    }

    #[inline]
    fn take(self, lines: &[u8], lane: usize, groups: &mut [u32; 16]) {
        match self.bits {
            8 => take_plane::<8>(lines, self.shift, lane, groups),
            4 => take_plane::<4>(lines, self.shift, lane, groups),
            2 => take_plane::<2>(lines, self.shift, lane, groups),
            _ => take_plane::<1>(lines, self.shift, lane, groups),
        }
    }
}

/// Returns a mask of the low `bits` bits of each byte of a word.
const fn mask(bits: usize) -> u32 {
    0x0101_0101 * ((1 << bits) - 1)
}

#[inline(always)]
fn put_plane<const BITS: usize>(groups: &[u32; 16], shift: usize, lane: usize, lines: &mut [u8]) {
    for (groups, line) in groups.chunks_exact(8 / BITS).zip(lines.chunks_exact_mut(LINE)) {
        let word = groups
            .iter()
            .enumerate()
            .fold(0, |word, (t, group)| word | (group >> shift & mask(BITS)) << (BITS * t));
        line[4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
    }
}

#[inline(always)]
fn take_plane<const BITS: usize>(lines: &[u8], shift: usize, lane: usize, groups: &mut [u32; 16]) {
    for (groups, line) in groups.chunks_exact_mut(8 / BITS).zip(lines.chunks_exact(LINE)) {
        let word = line_word(line, lane);
        for (t, group) in groups.iter_mut().enumerate() {
            *group |= (word >> (BITS * t) & mask(BITS)) << shift;
        }
    }
}

/// Returns the 32-bit lane of a row in a line.
#[inline]
pub(crate) fn line_word(line: &[u8], lane: usize) -> u32 {
    let bytes = &line[4 * lane..4 * lane + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the 16 groups of four codes of a macro-block, as words.
#[inline]
fn groups(codes: &[u8]) -> [u32; 16] {
    let mut groups = [0; 16];
    for (group, codes) in groups.iter_mut().zip(codes.as_chunks::<4>().0) {
        *group = u32::from_le_bytes(*codes);
    }
    groups
}

/// A field of the scale lines: 16 consecutive values, one for each row.
#[derive(Clone, Copy)]
pub(crate) enum ScaleField {
    /// `d[i]`, two bytes.
    Scale(usize),
    /// `m[i]`, two bytes.
    Min(usize),
    /// Two zero bytes.
    Gap,
    /// The scale factor of the next sub-block, one byte.
    Factor,
    /// The minimum factor of the next sub-block, one byte.
    MinFactor,
    /// The scale factor of the next sub-block in the low nibble, its minimum factor in the high nibble.
    Nibbles,
    /// The complete scale of the next sub-block, an f32.
    Exact,
    /// The scale factors of the next four sub-blocks, a nibble each, in two bytes.
    FourFactors,
}

impl ScaleField {
    /// Returns the bytes of the value of one row.
    const fn width(self) -> usize {
        match self {
            ScaleField::Scale(_) | ScaleField::Min(_) | ScaleField::Gap | ScaleField::FourFactors => 2,
            ScaleField::Factor | ScaleField::MinFactor | ScaleField::Nibbles => 1,
            ScaleField::Exact => 4,
        }
    }
}

/// Returns the bytes of the whole lines that hold these fields; four factors alone take half a line.
const fn lines_of(fields: &[ScaleField]) -> usize {
    if let [ScaleField::FourFactors] = fields {
        return LINE / 2;
    }
    let mut bytes = 0;
    let mut i = 0;
    while i < fields.len() {
        bytes += 16 * fields[i].width();
        i += 1;
    }
    bytes.next_multiple_of(LINE)
}

/// Iterates over the fields with their sub-block index and offset; `m` macro-blocks precede this one.
fn numbered(fields: &[ScaleField], m: usize) -> impl Iterator<Item = (ScaleField, usize, usize)> {
    let count = |which: fn(&ScaleField) -> bool| fields.iter().filter(|field| which(field)).count();
    let mut factor =
        m * count(|field| matches!(field, ScaleField::Factor | ScaleField::Nibbles | ScaleField::Exact));
    factor += 4 * m * count(|field| matches!(field, ScaleField::FourFactors));
    let mut min = m * count(|field| matches!(field, ScaleField::MinFactor));
    let mut at = 0;
    fields.iter().map(move |&field| {
        let index = match field {
            ScaleField::Scale(i) | ScaleField::Min(i) => i,
            ScaleField::Gap => 0,
            ScaleField::Factor | ScaleField::Nibbles | ScaleField::Exact => {
                factor += 1;
                factor - 1
            }
            ScaleField::FourFactors => {
                factor += 4;
                factor - 4
            }
            ScaleField::MinFactor => {
                min += 1;
                min - 1
            }
        };
        let place = at;
        at += 16 * field.width();
        (field, index, place)
    })
}

fn put_fields(fields: &[ScaleField], parts: &BlockFields, m: usize, lane: usize, lines: &mut [u8]) {
    for (field, i, at) in numbered(fields, m) {
        let out = &mut lines[at + field.width() * lane..][..field.width()];
        match field {
            ScaleField::Scale(_) => out.copy_from_slice(&parts.d[i].to_le_bytes()),
            ScaleField::Min(_) => out.copy_from_slice(&parts.m[i].to_le_bytes()),
            ScaleField::Gap => {}
            ScaleField::Factor => out[0] = parts.scales[i],
            ScaleField::MinFactor => out[0] = parts.mins[i],
            ScaleField::Nibbles => out[0] = parts.scales[i] | parts.mins[i] << 4,
            ScaleField::Exact => out.copy_from_slice(&parts.exact[i].to_le_bytes()),
            ScaleField::FourFactors => {
                out[0] = parts.scales[i] | parts.scales[i + 1] << 4;
                out[1] = parts.scales[i + 2] | parts.scales[i + 3] << 4;
            }
        }
    }
}

fn take_fields(fields: &[ScaleField], lines: &[u8], m: usize, lane: usize, parts: &mut BlockFields) {
    for (field, i, at) in numbered(fields, m) {
        let bytes = &lines[at + field.width() * lane..][..field.width()];
        match field {
            ScaleField::Scale(_) => parts.d[i] = u16::from_le_bytes([bytes[0], bytes[1]]),
            ScaleField::Min(_) => parts.m[i] = u16::from_le_bytes([bytes[0], bytes[1]]),
            ScaleField::Gap => {}
            ScaleField::Factor => parts.scales[i] = bytes[0],
            ScaleField::MinFactor => parts.mins[i] = bytes[0],
            ScaleField::Nibbles => {
                parts.scales[i] = bytes[0] & 15;
                parts.mins[i] = bytes[0] >> 4;
            }
            ScaleField::Exact => {
                parts.exact[i] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            }
            ScaleField::FourFactors => {
                for (factor, scale) in parts.scales[i..i + 4].iter_mut().enumerate() {
                    *scale = bytes[factor / 2] >> (factor % 2 * 4) & 15;
                }
            }
        }
    }
}
