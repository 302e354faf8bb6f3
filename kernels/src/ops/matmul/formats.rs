//! How the lines of each panel type are decoded: a plane of integers and a scheme of scales.
//!
//! The lines are those of `docs/format.md`.

use super::simd::MatmulSimd;
use crate::quant::codebooks;

/// Bytes of a line.
const LINE: usize = 64;

/// Dispatches on a panel type: `$blocks!(plane, scheme)` if sub-blocks have scales, else one of `$others`.
macro_rules! by_type {
    ($panel:expr, $blocks:ident, { $($others:tt)* }) => {{
        use $crate::ops::matmul::formats::*;
        use $crate::panel::PanelType;
        match $panel {
            PanelType::Q8 => $blocks!(Int8Values, F16Scale),
            PanelType::Q8S16 => $blocks!(Int8Values, F32Scale),
            PanelType::Q4 => $blocks!(Int4Values<8>, F16Scale),
            PanelType::Q4M => $blocks!(Int4Values<0>, F16ScaleMin),
            PanelType::Q4NL => $blocks!(CodebookValues<0>, F16Scale),
            PanelType::MXFP4 => $blocks!(CodebookValues<1>, Bf16Scale),
            PanelType::Q5 => $blocks!(Int5Values<16>, F16Scale),
            PanelType::Q5M => $blocks!(Int5Values<0>, F16ScaleMin),
            PanelType::Q4K => $blocks!(Int4Values<0>, SuperBlockMin),
            PanelType::Q5K => $blocks!(Int5Values<0>, SuperBlockMin),
            PanelType::Q6K => $blocks!(Int6Values, SuperBlock16),
            PanelType::Q3K => $blocks!(Int3Values, SuperBlock16),
            PanelType::Q2K => $blocks!(Int2Values<0>, SuperBlock16Min),
            PanelType::IQ4XS => $blocks!(CodebookValues<0>, SuperBlockHead),
            PanelType::TERNARY => $blocks!(Int2Values<1>, F16Scale256),
            $($others)*
        }
    }};
}

pub(super) use by_type;

/// The integers of a macro-block of 64 columns.
pub(super) trait QuantPlane {
    /// Lines per macro-block.
    const LINES: usize;
    /// The offset that is subtracted from every stored value.
    const OFFSET: i32 = 0;
    /// Whether values are signed bytes rather than unsigned values below 64.
    const SIGNED: bool = false;
    /// Groups whose accumulated pair sums fit into 16 bits: 2 · 127 · (largest value) · SETTLE < 2¹⁵.
    const SETTLE: usize = 8;

    /// Loads the stored values of group `G` of the first or second half of a macro-block; `lines` points at this
    /// vector's bytes in the first line of the macro-block.
    ///
    /// # Safety
    /// `4 · WIDTH` bytes must be readable at `lines` and at the same place in each further line, of
    /// [`QuantPlane::LINES`] in all; `half` must be 0 or 1, and `G` below 8.
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B;
}

/// The scales (and minimums) of sub-blocks.
pub(super) trait ScaleScheme {
    /// Columns that share a scale.
    const SUB: usize;
    /// Macro-blocks per block.
    const MACROS: usize = 1;
    /// Lines before the first macro-block.
    const HEAD: usize = 0;
    /// Lines after the integers of each macro-block.
    const TAIL: usize = 1;
    /// Whether there are minimums.
    const MIN: bool = false;

    /// Loads the scale of sub-block `place.sub`.
    ///
    /// # Safety
    /// `place.head` must be readable for [`ScaleScheme::HEAD`] lines and `place.tail` for [`ScaleScheme::TAIL`];
    /// `place.mac < MACROS`, `place.sub < 64 / SUB`, and `place.lane + WIDTH` must be at most 16.
    unsafe fn scale<L: MatmulSimd>(l: L, place: ScaleAddress) -> L::F;

    /// Loads the minimum of sub-block `place.sub`.
    ///
    /// # Safety
    /// As for `scale`.
    unsafe fn min<L: MatmulSimd>(l: L, _place: ScaleAddress) -> L::F {
        l.splat(0.0)
    }
}

/// The address of the scales of a sub-block.
#[derive(Clone, Copy)]
pub(super) struct ScaleAddress {
    /// The head lines of the block.
    pub head: *const u8,
    /// The tail lines of the macro-block.
    pub tail: *const u8,
    /// The index of the macro-block in the block.
    pub mac: usize,
    /// The index of the sub-block in the macro-block.
    pub sub: usize,
    /// The first row of the vector.
    pub lane: usize,
}

/// 8-bit values.
pub(super) struct Int8Values;
/// 4-bit values minus OFFSET.
pub(super) struct Int4Values<const OFFSET: i32>;
/// Entries of a codebook: 0 is IQ4_NL, 1 is doubled FP4, 2 is W4i.
pub(super) struct CodebookValues<const TABLE: usize>;
/// The levels of W4i plus OFFSET, as unsigned values.
pub(super) struct RaisedCodebookValues;
/// 5-bit values minus OFFSET.
pub(super) struct Int5Values<const OFFSET: i32>;
/// 6-bit values minus 32.
pub(super) struct Int6Values;
/// 2-bit values minus OFFSET.
pub(super) struct Int2Values<const OFFSET: i32>;
/// 3-bit values minus 4.
pub(super) struct Int3Values;

impl QuantPlane for Int8Values {
    const LINES: usize = 16;
    const SIGNED: bool = true;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: line `8 · half + G < 16 = LINES` has the bytes of this vector (see `QuantPlane::group`).
        unsafe { l.bytes(lines.add((8 * half + G) * LINE)) }
    }
}

/// Loads group `G` of a 4-bit plane.
///
/// # Safety
/// As for [`QuantPlane::group`], with eight lines.
#[inline(always)]
unsafe fn nibble<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
    // SAFETY: this line is one of eight that have the bytes of this vector at `lines` (see `# Safety`).
    let line = unsafe { l.bytes(lines.add((4 * half + G / 2) * LINE)) };
    if const { G.is_multiple_of(2) } { l.bits::<0, 15>(line) } else { l.bits::<4, 15>(line) }
}

/// Loads group `G` of a 2-bit plane.
///
/// # Safety
/// As for [`QuantPlane::group`], with four lines.
#[inline(always)]
unsafe fn two<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
    // SAFETY: this line is one of four that have the bytes of this vector at `lines` (see `# Safety`).
    let line = unsafe { l.bytes(lines.add((2 * half + G / 4) * LINE)) };
    match const { G % 4 } {
        0 => l.bits::<0, 3>(line),
        1 => l.bits::<2, 3>(line),
        2 => l.bits::<4, 3>(line),
        _ => l.bits::<6, 3>(line),
    }
}

/// Loads group `G` of a 1-bit plane.
///
/// # Safety
/// As for [`QuantPlane::group`], with two lines.
#[inline(always)]
unsafe fn one<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
    // SAFETY: this line is one of two that have the bytes of this vector at `lines` (see `# Safety`).
    let line = unsafe { l.bytes(lines.add(half * LINE)) };
    match G {
        0 => l.bits::<0, 1>(line),
        1 => l.bits::<1, 1>(line),
        2 => l.bits::<2, 1>(line),
        3 => l.bits::<3, 1>(line),
        4 => l.bits::<4, 1>(line),
        5 => l.bits::<5, 1>(line),
        6 => l.bits::<6, 1>(line),
        _ => l.bits::<7, 1>(line),
    }
}

impl<const OFFSET: i32> QuantPlane for Int4Values<OFFSET> {
    const LINES: usize = 8;
    const OFFSET: i32 = OFFSET;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: the macro-block at `lines` has the eight lines that `nibble` reads (see `QuantPlane::group`).
        unsafe { nibble::<L, G>(l, lines, half) }
    }
}

impl<const TABLE: usize> QuantPlane for CodebookValues<TABLE> {
    const LINES: usize = 8;
    const SIGNED: bool = true;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        let table = match TABLE {
            0 => &codebooks::IQ4_NL,
            1 => &codebooks::FP4_DOUBLED,
            _ => &codebooks::W4I,
        };
        // SAFETY: the eight lines at `lines` are those that `nibble` reads (see `QuantPlane::group`).
        unsafe { l.look_up(nibble::<L, G>(l, lines, half), table) }
    }
}

impl QuantPlane for RaisedCodebookValues {
    const LINES: usize = 8;
    const OFFSET: i32 = 10;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: the macro-block of W4i at `lines` has eight lines, those of `nibble` (see `QuantPlane::group`).
        unsafe { l.look_up(nibble::<L, G>(l, lines, half), &codebooks::W4I_RAISED) }
    }
}

impl<const OFFSET: i32> QuantPlane for Int5Values<OFFSET> {
    const LINES: usize = 10;
    const OFFSET: i32 = OFFSET;
    const SETTLE: usize = 4;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: of the ten lines (see `QuantPlane::group`), `nibble` reads eight and `one` the last two.
        unsafe {
            l.or(nibble::<L, G>(l, lines, half), l.raise::<4>(one::<L, G>(l, lines.add(8 * LINE), half)))
        }
    }
}

impl QuantPlane for Int6Values {
    const LINES: usize = 12;
    const OFFSET: i32 = 32;
    const SETTLE: usize = 2;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: of the twelve lines (see `QuantPlane::group`), `nibble` reads eight and `two` the last four.
        unsafe {
            l.or(nibble::<L, G>(l, lines, half), l.raise::<4>(two::<L, G>(l, lines.add(8 * LINE), half)))
        }
    }
}

impl<const OFFSET: i32> QuantPlane for Int2Values<OFFSET> {
    const LINES: usize = 4;
    const OFFSET: i32 = OFFSET;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: the macro-block at `lines` has the four lines that `two` reads (see `QuantPlane::group`).
        unsafe { two::<L, G>(l, lines, half) }
    }
}

impl QuantPlane for Int3Values {
    const LINES: usize = 6;
    const OFFSET: i32 = 4;
    #[inline(always)]
    unsafe fn group<L: MatmulSimd, const G: usize>(l: L, lines: *const u8, half: usize) -> L::B {
        // SAFETY: of the six lines (see `QuantPlane::group`), `two` reads four and `one` the last two.
        unsafe { l.or(two::<L, G>(l, lines, half), l.raise::<2>(one::<L, G>(l, lines.add(4 * LINE), half))) }
    }
}

/// One f16 per 32 columns.
pub(super) struct F16Scale;
/// One f16 scale and minimum per 32 columns.
pub(super) struct F16ScaleMin;
/// One bf16 per 32 columns.
pub(super) struct Bf16Scale;
/// One f32 per 16 columns.
pub(super) struct F32Scale;
/// f16 per 256 columns times u8 per 32, for both scale and minimum.
pub(super) struct SuperBlockMin;
/// f16 per 256 columns times i8 per 16.
pub(super) struct SuperBlock16;
/// f16 per 256 columns times u4 per 16, for both scale and minimum.
pub(super) struct SuperBlock16Min;
/// f16 per 256 columns times i8 per 32, stored in the head.
pub(super) struct SuperBlockHead;
/// One f16 per 256 columns.
pub(super) struct F16Scale256;

impl ScaleScheme for F16Scale {
    const SUB: usize = 32;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the tail line holds sixteen f16 for each `p.sub < 2`, and the vector ends within them.
        unsafe { l.halves(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
}

impl ScaleScheme for F16ScaleMin {
    const SUB: usize = 32;
    const TAIL: usize = 2;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the first tail line holds sixteen f16 for each `p.sub < 2`, and the vector ends within them.
        unsafe { l.halves(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
    #[inline(always)]
    unsafe fn min<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the second tail line holds sixteen f16 for each `p.sub < 2`, and the vector ends within them.
        unsafe { l.halves(p.tail.add(LINE + p.sub * 32 + p.lane * 2)) }
    }
}

impl ScaleScheme for Bf16Scale {
    const SUB: usize = 32;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the tail line holds sixteen bf16 for each `p.sub < 2`, and the vector ends within them.
        unsafe { l.brains(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
}

impl ScaleScheme for F32Scale {
    const SUB: usize = 16;
    const TAIL: usize = 4;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: tail line `p.sub < 4` holds sixteen f32, and the vector from `p.lane` on ends within them.
        unsafe { l.floats(p.tail.add(p.sub * LINE + p.lane * 4).cast()) }
    }
}

impl ScaleScheme for SuperBlockMin {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head begins with sixteen f16, and the tail line with sixteen bytes for each `p.sub < 2`.
        unsafe {
            l.mul(l.halves(p.head.add(p.lane * 2)), l.unsigned::<0, 255>(p.tail.add(p.sub * 16 + p.lane)))
        }
    }
    #[inline(always)]
    unsafe fn min<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head ends with sixteen f16, and the tail line with sixteen bytes for each `p.sub < 2`.
        unsafe {
            let minimum = l.halves(p.head.add(32 + p.lane * 2));
            l.negate(l.mul(minimum, l.unsigned::<0, 255>(p.tail.add(32 + p.sub * 16 + p.lane))))
        }
    }
}

impl ScaleScheme for SuperBlock16 {
    const SUB: usize = 16;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head begins with sixteen f16, and the tail line has sixteen bytes for each `p.sub < 4`.
        unsafe { l.mul(l.halves(p.head.add(p.lane * 2)), l.signed(p.tail.add(p.sub * 16 + p.lane))) }
    }
}

impl ScaleScheme for SuperBlock16Min {
    const SUB: usize = 16;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head begins with sixteen f16, and the tail line has sixteen pairs of nibbles for each
        // `p.sub < 4`.
        unsafe {
            l.mul(l.halves(p.head.add(p.lane * 2)), l.unsigned::<0, 15>(p.tail.add(p.sub * 16 + p.lane)))
        }
    }
    #[inline(always)]
    unsafe fn min<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head ends with sixteen f16, and the tail line has sixteen pairs of nibbles for each `p.sub < 4`.
        unsafe {
            let minimum = l.halves(p.head.add(32 + p.lane * 2));
            l.negate(l.mul(minimum, l.unsigned::<4, 15>(p.tail.add(p.sub * 16 + p.lane))))
        }
    }
}

impl ScaleScheme for SuperBlockHead {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 3;
    const TAIL: usize = 0;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head begins with sixteen f16; its last two lines have sixteen bytes for each of eight sub-blocks.
        unsafe {
            let sub = l.signed(p.head.add(LINE + (p.mac * 2 + p.sub) * 16 + p.lane));
            l.mul(l.halves(p.head.add(p.lane * 2)), sub)
        }
    }
}

impl ScaleScheme for F16Scale256 {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const TAIL: usize = 0;
    #[inline(always)]
    unsafe fn scale<L: MatmulSimd>(l: L, p: ScaleAddress) -> L::F {
        // SAFETY: the head begins with sixteen f16, and the vector from `p.lane` on ends within them.
        unsafe { l.halves(p.head.add(p.lane * 2)) }
    }
}
