//! Embedding lookup: dequantizes rows of packed tables.
//!
//! Contract: the values of [`row_values`], which is the scalar reference. For row types, each block is
//! rotated back with the transform of [`hadamard`], then multiplied by the scale of the row.

use crate::hadamard::{self, BLOCK};
use crate::panel::{PanelBlocks, PanelType, row_values};
use crate::prefetch::LINE;
use crate::simd::{LANES, Simd, instantiate, load_each};

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

#[cfg(test)]
mod tests {
    use crate::ops::testing::{TestRandom, bits, tables};
    use crate::panel::{PanelType, ROWS, row_values};

    #[test]
    fn all_kernels_give_the_rows_of_panels() {
        let mut random = TestRandom::new(31);
        for &ty in PanelType::ALL {
            let columns = [1, 15, 64, 100, 256, 576];
            for (columns, bytes) in columns.into_iter().filter_map(|k| Some((k, ty.panel_bytes(k)?))) {
                // Any bytes are a valid panel. NaN scales would hide the values of their rows.
                let panel: Vec<u8> = (0..bytes).map(|_| (random.bits() as u8) & 0xbb).collect();
                for lane in 0..ROWS {
                    let (mut want, mut got) = (vec![0.0; columns], vec![0.0; columns]);
                    assert!(row_values(ty, &panel, lane, columns, &mut want));
                    for table in tables() {
                        table.lookup()(ty, &panel, lane, &mut got);
                        let same = want.iter().zip(&got).all(|(a, b)| a == b || a.is_nan() && b.is_nan());
                        assert!(same, "{ty:?} {columns} {lane} {}", table.cpu().features());
                    }
                }
            }
        }
    }

    #[test]
    fn panels_of_another_size_write_nothing() {
        for table in tables() {
            let mut out = [1.0; 64];
            for (panel, lane) in [(&[0; 64][..], 0), (&vec![0; 2000], 0), (&[], 16)] {
                for &ty in PanelType::ALL {
                    table.lookup()(ty, panel, lane, &mut out);
                }
            }
            assert_eq!(bits(&out), [1.0_f32.to_bits(); 64]);
        }
    }
}
