//! W4i: 4-bit codes, a 4-bit factor per 16 columns, a bf16 scale per row.
//!
//! Values of rotated rows are close to normally distributed, so the levels are denser near zero. Factors are
//! signed because there is one more level on the negative side.

use super::{Grid, RowCodec};
use crate::panel::PanelType;
use crate::quant::codebooks;
use crate::quant::search::nearest;
use core::ops::RangeInclusive;
use half::bf16;

pub(super) const CODEC: RowCodec = RowCodec::new::<Levels>("W4i", PanelType::W4I);

struct Levels;

impl Grid for Levels {
    const ENDS: [f32; 2] = [-10.0, 9.0];
    const FACTORS: Option<RangeInclusive<i8>> = Some(5..=12);
    const REACH: (f32, f32, usize) = (0.65, 1.15, 10);

    /// Integers from −6 to 5, below them only even and above them only odd integers.
    #[inline(always)]
    fn level(x: f32) -> f32 {
        let (below, above) = (2.0 * nearest(x * 0.5), 2.0 * nearest((x - 1.0) * 0.5) + 1.0);
        let outer = if x < 0.0 { below } else { above };
        if (-6.0..=5.0).contains(&x) { nearest(x) } else { outer }
    }

    fn code(q: i16) -> u8 {
        codebooks::W4I.iter().position(|&level| i16::from(level) == q).unwrap_or(0) as u8
    }

    fn stored(scale: f32) -> f32 {
        bf16::from_f32(scale).to_f32()
    }
}
