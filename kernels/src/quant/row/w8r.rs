//! W8r: a signed byte per column, an f32 scale per row.

use super::{Grid, RowCodec};
use crate::panel::PanelType;
use crate::quant::search::nearest;
use core::ops::RangeInclusive;

pub(super) const CODEC: RowCodec = RowCodec::new::<Bytes>("W8r", PanelType::W8R);

struct Bytes;

impl Grid for Bytes {
    const ENDS: [f32; 2] = [-127.0, 127.0];
    const FACTORS: Option<RangeInclusive<i8>> = None;
    /// With seven bits and a sign, clipping the largest value quickly costs more than finer steps gain.
    const REACH: (f32, f32, usize) = (0.96, 1.0, 4);

    #[inline(always)]
    fn level(x: f32) -> f32 {
        nearest(x)
    }

    fn code(q: i16) -> u8 {
        q as u8
    }

    fn stored(scale: f32) -> f32 {
        scale
    }
}
