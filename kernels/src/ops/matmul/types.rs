//! How the lines of each panel type are read: a plane of integers and a scheme of scales.
//!
//! The lines are those of `docs/format.md`.

use super::lanes::Lanes;
use crate::quant::codebooks;

/// Bytes of a line.
const LINE: usize = 64;

/// What to do for a panel type: `$blocks!(plane, scheme)` where sub-blocks have scales, else one of `$others`.
macro_rules! by_type {
    ($panel:expr, $blocks:ident, { $($others:tt)* }) => {{
        use $crate::ops::matmul::types::*;
        use $crate::panel::PanelType;
        match $panel {
            PanelType::Q8 => $blocks!(Bytes, Half),
            PanelType::Q8S16 => $blocks!(Bytes, Exact),
            PanelType::Q4 => $blocks!(Nibbles<8>, Half),
            PanelType::Q4M => $blocks!(Nibbles<0>, HalfMin),
            PanelType::Q4NL => $blocks!(Book<0>, Half),
            PanelType::MXFP4 => $blocks!(Book<1>, Brain),
            PanelType::Q5 => $blocks!(Five<16>, Half),
            PanelType::Q5M => $blocks!(Five<0>, HalfMin),
            PanelType::Q4K => $blocks!(Nibbles<0>, SuperMin),
            PanelType::Q5K => $blocks!(Five<0>, SuperMin),
            PanelType::Q6K => $blocks!(Six, Super16),
            PanelType::Q3K => $blocks!(Three, Super16),
            PanelType::Q2K => $blocks!(Two<0>, Super16Min),
            PanelType::IQ4XS => $blocks!(Book<0>, SuperHead),
            PanelType::TERNARY => $blocks!(Two<1>, Whole),
            $($others)*
        }
    }};
}

pub(super) use by_type;

/// The integers of a macro-block of 64 columns.
pub(super) trait Plane {
    /// Lines of a macro-block.
    const LINES: usize;
    /// What is taken from every stored value.
    const OFFSET: i32 = 0;
    /// Whether values are signed bytes rather than unsigned below 64.
    const SIGNED: bool = false;
    /// Groups whose pair sums fit 16 bits together: 2 · 127 · (largest value) · SETTLE < 2¹⁵.
    const SETTLE: usize = 8;

    /// The stored values of group `G`; `lines` points at this vector's bytes in the first line.
    ///
    /// # Safety
    /// `lines` must be valid for the macro-block.
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B;
}

/// The scales (and minimums) of sub-blocks.
pub(super) trait Scheme {
    /// Columns that share a scale.
    const SUB: usize;
    /// Macro-blocks of a block.
    const MACROS: usize = 1;
    /// Lines before the first macro-block.
    const HEAD: usize = 0;
    /// Lines after the integers of each macro-block.
    const TAIL: usize = 1;
    /// Whether there are minimums.
    const MIN: bool = false;

    /// The scale of sub-block `place.sub`.
    ///
    /// # Safety
    /// `place` must point into a valid block.
    unsafe fn scale<L: Lanes>(l: L, place: Place) -> L::F;

    /// The minimum of sub-block `place.sub`.
    ///
    /// # Safety
    /// As for `scale`.
    unsafe fn min<L: Lanes>(l: L, _place: Place) -> L::F {
        l.splat(0.0)
    }
}

/// Where the scales of a sub-block are.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The head lines of the block.
    pub head: *const u8,
    /// The tail lines of the macro-block.
    pub tail: *const u8,
    /// Which macro-block of the block.
    pub mac: usize,
    /// Which sub-block of the macro-block.
    pub sub: usize,
    /// The first row of the vector.
    pub lane: usize,
}

/// 8-bit values.
pub(super) struct Bytes;
/// 4-bit values minus OFFSET.
pub(super) struct Nibbles<const OFFSET: i32>;
/// Entries of a codebook: 0 is IQ4_NL, 1 is doubled FP4, 2 is W4i.
pub(super) struct Book<const TABLE: usize>;
/// The levels of W4i, raised by OFFSET.
pub(super) struct RaisedBook;
/// 5-bit values minus OFFSET.
pub(super) struct Five<const OFFSET: i32>;
/// 6-bit values minus 32.
pub(super) struct Six;
/// 2-bit values minus OFFSET.
pub(super) struct Two<const OFFSET: i32>;
/// 3-bit values minus 4.
pub(super) struct Three;

impl Plane for Bytes {
    const LINES: usize = 16;
    const SIGNED: bool = true;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { l.bytes(lines.add(G * LINE)) }
    }
}

/// Group `G` of a 4-bit plane.
#[inline(always)]
unsafe fn nibble<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
    // SAFETY: the caller's promise.
    let line = unsafe { l.bytes(lines.add(G / 2 * LINE)) };
    if const { G.is_multiple_of(2) } { l.bits::<0, 15>(line) } else { l.bits::<4, 15>(line) }
}

/// Group `G` of a 2-bit plane.
#[inline(always)]
unsafe fn two<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
    // SAFETY: the caller's promise.
    let line = unsafe { l.bytes(lines.add(G / 4 * LINE)) };
    match const { G % 4 } {
        0 => l.bits::<0, 3>(line),
        1 => l.bits::<2, 3>(line),
        2 => l.bits::<4, 3>(line),
        _ => l.bits::<6, 3>(line),
    }
}

/// Group `G` of a 1-bit plane.
#[inline(always)]
unsafe fn one<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
    // SAFETY: the caller's promise.
    let line = unsafe { l.bytes(lines.add(G / 8 * LINE)) };
    match const { G % 8 } {
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

impl<const OFFSET: i32> Plane for Nibbles<OFFSET> {
    const LINES: usize = 8;
    const OFFSET: i32 = OFFSET;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { nibble::<L, G>(l, lines) }
    }
}

impl<const TABLE: usize> Plane for Book<TABLE> {
    const LINES: usize = 8;
    const SIGNED: bool = true;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        let table = match TABLE {
            0 => &codebooks::IQ4_NL,
            1 => &codebooks::FP4_DOUBLED,
            _ => &codebooks::W4I,
        };
        // SAFETY: the caller's promise.
        unsafe { l.look_up(nibble::<L, G>(l, lines), table) }
    }
}

impl Plane for RaisedBook {
    const LINES: usize = 8;
    const OFFSET: i32 = 10;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { l.look_up(nibble::<L, G>(l, lines), &codebooks::W4I_RAISED) }
    }
}

impl<const OFFSET: i32> Plane for Five<OFFSET> {
    const LINES: usize = 10;
    const OFFSET: i32 = OFFSET;
    const SETTLE: usize = 4;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { l.or(nibble::<L, G>(l, lines), l.raise::<4>(one::<L, G>(l, lines.add(8 * LINE)))) }
    }
}

impl Plane for Six {
    const LINES: usize = 12;
    const OFFSET: i32 = 32;
    const SETTLE: usize = 2;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { l.or(nibble::<L, G>(l, lines), l.raise::<4>(two::<L, G>(l, lines.add(8 * LINE)))) }
    }
}

impl<const OFFSET: i32> Plane for Two<OFFSET> {
    const LINES: usize = 4;
    const OFFSET: i32 = OFFSET;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { two::<L, G>(l, lines) }
    }
}

impl Plane for Three {
    const LINES: usize = 6;
    const OFFSET: i32 = 4;
    #[inline(always)]
    unsafe fn group<L: Lanes, const G: usize>(l: L, lines: *const u8) -> L::B {
        // SAFETY: the caller's promise.
        unsafe { l.or(two::<L, G>(l, lines), l.raise::<2>(one::<L, G>(l, lines.add(4 * LINE)))) }
    }
}

/// f16 per 32.
pub(super) struct Half;
/// f16 scale and minimum per 32.
pub(super) struct HalfMin;
/// bf16 per 32.
pub(super) struct Brain;
/// f32 per 16.
pub(super) struct Exact;
/// f16 per 256 times u8 per 32, both for scale and minimum.
pub(super) struct SuperMin;
/// f16 per 256 times i8 per 16.
pub(super) struct Super16;
/// f16 per 256 times u4 per 16, both for scale and minimum.
pub(super) struct Super16Min;
/// f16 per 256 times i8 per 32, which stand at the head.
pub(super) struct SuperHead;
/// f16 per 256.
pub(super) struct Whole;

impl Scheme for Half {
    const SUB: usize = 32;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.halves(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
}

impl Scheme for HalfMin {
    const SUB: usize = 32;
    const TAIL: usize = 2;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.halves(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
    #[inline(always)]
    unsafe fn min<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.halves(p.tail.add(LINE + p.sub * 32 + p.lane * 2)) }
    }
}

impl Scheme for Brain {
    const SUB: usize = 32;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.brains(p.tail.add(p.sub * 32 + p.lane * 2)) }
    }
}

impl Scheme for Exact {
    const SUB: usize = 16;
    const TAIL: usize = 4;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.floats(p.tail.add(p.sub * LINE + p.lane * 4).cast()) }
    }
}

impl Scheme for SuperMin {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            l.mul(l.halves(p.head.add(p.lane * 2)), l.unsigned::<0, 255>(p.tail.add(p.sub * 16 + p.lane)))
        }
    }
    #[inline(always)]
    unsafe fn min<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            let minimum = l.halves(p.head.add(32 + p.lane * 2));
            l.negate(l.mul(minimum, l.unsigned::<0, 255>(p.tail.add(32 + p.sub * 16 + p.lane))))
        }
    }
}

impl Scheme for Super16 {
    const SUB: usize = 16;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.mul(l.halves(p.head.add(p.lane * 2)), l.signed(p.tail.add(p.sub * 16 + p.lane))) }
    }
}

impl Scheme for Super16Min {
    const SUB: usize = 16;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const MIN: bool = true;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            l.mul(l.halves(p.head.add(p.lane * 2)), l.unsigned::<0, 15>(p.tail.add(p.sub * 16 + p.lane)))
        }
    }
    #[inline(always)]
    unsafe fn min<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            let minimum = l.halves(p.head.add(32 + p.lane * 2));
            l.negate(l.mul(minimum, l.unsigned::<4, 15>(p.tail.add(p.sub * 16 + p.lane))))
        }
    }
}

impl Scheme for SuperHead {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 3;
    const TAIL: usize = 0;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe {
            let sub = l.signed(p.head.add(LINE + (p.mac * 2 + p.sub) * 16 + p.lane));
            l.mul(l.halves(p.head.add(p.lane * 2)), sub)
        }
    }
}

impl Scheme for Whole {
    const SUB: usize = 32;
    const MACROS: usize = 4;
    const HEAD: usize = 1;
    const TAIL: usize = 0;
    #[inline(always)]
    unsafe fn scale<L: Lanes>(l: L, p: Place) -> L::F {
        // SAFETY: the caller's promise.
        unsafe { l.halves(p.head.add(p.lane * 2)) }
    }
}
