use crate::common::{TestRandom, bits, tables};
use siskin_kernels::panel::{PanelType, ROWS, row_values};

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
