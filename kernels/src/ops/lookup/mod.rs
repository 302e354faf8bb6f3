//! Embedding lookup: dequantizes rows of packed tables.
//!
//! Contract: the values of [`row_values`], which is the scalar reference. For row types, each block is
//! rotated back with the transform of [`hadamard`], then multiplied by the scale of the row.

use crate::hadamard::{self, BLOCK};
use crate::ops::instantiate::instantiate;
use crate::panel::{PanelBlocks, PanelType, row_values};
use crate::prefetch::LINE;
use crate::simd::{LANES, Simd, load_each};

/// Writes the row in lane `lane` of a panel whose rows have as many columns as `out`. Writes nothing if the
/// size of the panel does not match that number of columns, or if the lane is out of range.
pub type Function = fn(ty: PanelType, panel: &[u8], lane: usize, out: &mut [f32]);

instantiate!(LIST: Function = "lookup" body(ty: PanelType, panel: &[u8], lane: usize, out: &mut [f32]));

#[inline(always)]
fn body<S: Simd>(s: S, ty: PanelType, panel: &[u8], lane: usize, out: &mut [f32]) {
    let Some(mut blocks) = PanelBlocks::new(ty, panel, lane, out.len()) else {
        row_values(ty, panel, lane, out.len(), out);
        return;
    };
    let scale = s.splat(blocks.scale());
    // Every cache line of the panel holds a part of the row, and most are not cached.
    for byte in panel.iter().step_by(LINE) {
        s.prefetch(byte);
    }
    for out in out.chunks_mut(BLOCK) {
        let mut numbers = [[0.0; LANES]; BLOCK / LANES];
        blocks.next(&mut numbers);
        let vectors = hadamard::transform_vectors(s, load_each(s, &numbers));
        for (vector, out) in vectors.into_iter().zip(out.chunks_mut(LANES)) {
            s.store_part(s.mul(vector, scale), out);
        }
    }
}
