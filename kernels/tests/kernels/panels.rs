//! Panels against golden blocks and against the byte layout written out by hand.

use crate::codecs::{bits, block_types, floats, golden};
use siskin_kernels::panel::*;
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::RowType;

/// Packs `rows` (starting at source block 0, 1, …) and compares every weight with `values`.
fn check(source: BlockType, blocks: &[u8], values: &[f32], rows: usize, k: usize) {
    let (codec, ty) = (source.codec(), PanelType::for_block(source));
    let row_bytes = source.row_bytes(k).unwrap();
    let slices: Vec<&[u8]> = (0..rows).map(|r| &blocks[r * codec.bytes..][..row_bytes]).collect();
    let mut panel = vec![0xa5; ty.panel_bytes(k).unwrap()];
    assert!(pack(source, &slices, k, &mut panel), "{} k {k}", source.name());
    let mut out = vec![f32::NAN; k];
    for lane in 0..ROWS {
        assert!(row_values(ty, &panel, lane, k, &mut out));
        if lane >= rows {
            assert!(out.iter().all(|&value| value == 0.0), "{} padding row {lane}", source.name());
            continue;
        }
        let expected = &values[lane * codec.elements..][..k];
        assert_eq!(bits(&out), bits(expected), "{} k {k} row {lane}", source.name());
        check_unpacked(source, &panel, lane, slices[lane]);
        check_sub_blocks(ty, &panel, lane, expected);
    }
}

/// Unpacking restores the blocks; TQ1_0 has several bytes for the same digits, and unpacking writes those of
/// its encoder.
fn check_unpacked(source: BlockType, panel: &[u8], lane: usize, blocks: &[u8]) {
    let k = blocks.len() / source.codec().bytes * source.codec().elements;
    let mut again = vec![0xa5; blocks.len()];
    let has_blocks = source.codec().can_unpack();
    assert_eq!(has_blocks, PanelType::for_block(source) != PanelType::Q8S16, "{}", source.name());
    assert_eq!(unpack(source, panel, lane, k, &mut again), has_blocks, "{}", source.name());
    if has_blocks && source != BlockType::TQ1_0 {
        assert_eq!(again, blocks, "{} k {k} row {lane}", source.name());
    }
}

fn check_sub_blocks(ty: PanelType, panel: &[u8], lane: usize, expected: &[f32]) {
    for (s, expected) in expected.chunks(ty.sub_block()).enumerate() {
        if ty.is_float() {
            assert_eq!(sub_block(ty, panel, lane, s).count, 0);
            continue;
        }
        let sub = sub_block(ty, panel, lane, s);
        assert_eq!(sub.count, expected.len());
        for (i, expected) in expected.iter().enumerate() {
            // Adding the minimum turns −0 into 0, hence a comparison of values and not of bits.
            assert_eq!(
                sub.scale * f32::from(sub.values[i]) + sub.min,
                *expected,
                "{} {lane} {s} {i}",
                ty.name()
            );
        }
        assert!(sub.values[sub.count..].iter().all(|&value| value == 0));
    }
}

#[test]
fn unpacking_gives_the_reference_values() {
    for source in block_types() {
        let data = golden(source.name());
        let values = floats(&data["values"]);
        for blocks in [0, 1, 2, 3, 5, 18] {
            for rows in [0, 1, 3, 15, 16] {
                check(source, &data["blocks"], &values, rows, blocks * source.codec().elements);
            }
        }
    }
}

/// Block types that share a panel type either hold a row exactly or are rejected.
#[test]
fn blocks_of_another_type_hold_the_same_panel_or_are_rejected() {
    let repacked = |source: BlockType, target: BlockType, blocks: &[u8], k: usize| {
        let panel = |ty: BlockType, row: &[u8]| {
            let mut panel = vec![0; PanelType::for_block(ty).panel_bytes(k).unwrap()];
            assert!(pack(ty, &[row], k, &mut panel));
            panel
        };
        let held = panel(source, blocks);
        let mut row = vec![0; target.row_bytes(k).unwrap()];
        unpack(target, &held, 0, k, &mut row).then(|| {
            assert!(panel(target, &row) == held, "{} as {}", source.name(), target.name());
        })
    };
    for source in block_types() {
        let data = golden(source.name());
        let shares = |target: &BlockType| PanelType::for_block(*target) == PanelType::for_block(source);
        for target in block_types().filter(shares) {
            for block in data["blocks"].chunks(source.row_bytes(256).unwrap()).take(12) {
                repacked(source, target, block, 256);
            }
        }
    }
    let mut block = vec![0; 66];
    assert!(repacked(BlockType::TQ2_0, BlockType::TQ1_0, &block, 256).is_some());
    for codes in [&[0, 0, 3][..], &[0xff; 64]] {
        block[..codes.len()].copy_from_slice(codes);
        assert!(repacked(BlockType::TQ2_0, BlockType::TQ1_0, &block, 256).is_none(), "3 is no ternary digit");
        assert!(repacked(BlockType::TQ2_0, BlockType::TQ2_0, &block, 256).is_some());
    }
}

#[test]
fn float_panels_hold_the_numbers() {
    for source in [BlockType::F32, BlockType::F16, BlockType::BF16] {
        let bytes: Vec<u8> =
            (0..4 * 300u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x3f).collect();
        for k in [0, 1, 7, 32, 64, 65, 96, 200] {
            let mut values = vec![0.0; bytes.len() / source.codec().bytes];
            assert!(source.dequantize_row(&bytes, &mut values));
            for rows in [1, 5, 16] {
                check(source, &bytes, &values, rows, k);
            }
        }
    }
}

#[test]
fn numbers_names_and_sizes_are_those_of_the_format() {
    let lines = [
        ("F32", 64, 64),
        ("F16", 64, 32),
        ("BF16", 64, 32),
        ("Q8", 64, 17),
        ("Q8S16", 64, 20),
        ("Q4", 64, 9),
        ("Q4M", 64, 10),
        ("Q4NL", 64, 9),
        ("MXFP4", 64, 9),
        ("Q5", 64, 11),
        ("Q5M", 64, 12),
        ("Q4K", 256, 37),
        ("Q5K", 256, 45),
        ("Q6K", 256, 53),
        ("Q3K", 256, 29),
        ("Q2K", 256, 21),
        ("IQ4XS", 256, 35),
        ("TERNARY", 256, 17),
    ];
    // The row types have scales at the end of a panel and are tested separately.
    assert_eq!(lines.len() + 2, PanelType::ALL.len());
    for (id, (name, columns, lines)) in lines.into_iter().enumerate() {
        let ty = PanelType::from_id(id as u16).unwrap();
        assert_eq!((ty.id(), ty.name(), ty.block_columns()), (id as u16, name, columns));
        assert_eq!(ty.block_bytes(), 64 * lines, "{name}");
        assert_eq!(ty.panel_bytes(columns + 1), Some(2 * 64 * lines), "{name}");
        assert_eq!(ty.tensor_bytes(17, 1), Some(2 * 64 * lines), "{name}");
        assert_eq!(ty.columns_padded(columns - 1), columns, "{name}");
        assert_eq!(ty.tensor_bytes(usize::MAX, usize::MAX), None, "{name}");
    }
    for (id, ty, block, end) in [(18, PanelType::W8R, 1024, 64), (19, PanelType::W4I, 544, 32)] {
        assert_eq!((PanelType::from_id(id), ty.block_columns()), (Some(ty), 64));
        assert_eq!((ty.panel_bytes(0), ty.panel_bytes(576)), (Some(end), Some(9 * block + end)));
        assert_eq!(ty.tensor_bytes(17, 65), Some(2 * (2 * block + end)));
        assert!(ty.panel_bytes(1 << 17).is_some() && ty.panel_bytes((1 << 17) + 1).is_none());
    }
    assert_eq!(PanelType::from_id(20), None);
}

/// Packs one row whose source block is all zero except for what `set` writes, as row `lane` of a panel of one
/// block.
fn one_block(source: BlockType, lane: usize, set: impl Fn(&mut [u8])) -> Vec<u8> {
    let codec = source.codec();
    let ty = PanelType::for_block(source);
    let k = codec.elements.max(64);
    let mut row = vec![0; source.row_bytes(k).unwrap()];
    let zero = row.clone();
    set(&mut row);
    let rows: Vec<&[u8]> = (0..=lane).map(|r| if r == lane { &row[..] } else { &zero[..] }).collect();
    let mut panel = vec![0xff; ty.panel_bytes(k).unwrap()];
    assert!(pack(source, &rows, k, &mut panel));
    panel
}

fn set_bytes(panel: &[u8]) -> Vec<(usize, u8)> {
    panel.iter().copied().enumerate().filter(|&(_, byte)| byte != 0).collect()
}

#[test]
fn bytes_lie_where_the_format_says() {
    let line = 64;
    // Q8_0: column 37 of row 2 is group 9, byte 1; the scale of its sub-block is d[1].
    let panel = one_block(BlockType::Q8_0, 2, |row| {
        row[34 + 2 + 5] = 0x81;
        row[34..36].copy_from_slice(&[0x34, 0x12]);
    });
    assert_eq!(
        set_bytes(&panel),
        [(9 * line + 9, 0x81), (16 * line + 32 + 4, 0x34), (16 * line + 32 + 5, 0x12)]
    );
    // Q4_0: column 6 of row 3 is group 1: the high nibble of line 0, byte 2. Every other code is zero.
    let panel = one_block(BlockType::Q4_0, 3, |row| row[2 + 6] = 0x0d);
    assert_eq!(set_bytes(&panel), [(4 * 3 + 2, 0xd0)]);
    // Q4_0: column 16 + 5 is group 5: line 2, high nibble, byte 1.
    let panel = one_block(BlockType::Q4_0, 0, |row| row[2 + 5] = 0xe0);
    assert_eq!(set_bytes(&panel), [(2 * line + 1, 0xe0)]);
    // Q4_1: minimum of the second block.
    let panel = one_block(BlockType::Q4_1, 1, |row| row[20 + 2] = 0x77);
    assert_eq!(set_bytes(&panel), [(9 * line + 32 + 2, 0x77)]);
    // Q5_0: the fifth bit of column 43 (group 10, byte 3) is bit 2 of the second 1-bit line.
    let panel = one_block(BlockType::Q5_0, 15, |row| row[22 + 2 + 1] = 0x08);
    assert_eq!(set_bytes(&panel), [((8 + 1) * line + 4 * 15 + 3, 0x04)]);
    // Q4_K: dmin, and minimum 5 (macro-block 2, second) with its low bits 3.
    let panel = one_block(BlockType::Q4_K, 4, |row| {
        row[2] = 0x11;
        row[4 + 8 + 1] = 0x30;
    });
    assert_eq!(set_bytes(&panel), [(32 + 8, 0x11), (line + (2 * 9 + 8) * line + 48 + 4, 3)]);
}

#[test]
fn long_blocks_lie_where_the_format_says() {
    let line = 64;
    // Q6_K: high bits of column 128 + 32 + 1 (macro-block 2, group 8): 2-bit line 2, bits 0–1; scale 11.
    let panel = one_block(BlockType::Q6_K, 1, |row| {
        row[128 + 32 + 1] = 0x0c;
        row[192 + 11] = 0x85;
    });
    let block = line + 2 * 13 * line;
    assert_eq!(set_bytes(&panel), [(block + (8 + 2) * line + 4 + 1, 3), (block + 12 * line + 48 + 1, 0x85)]);
    // Q3_K: every scale is −32 and every third bit 0 unless set; column 64 + 7 is macro-block 1, group 1.
    let panel = one_block(BlockType::Q3_K, 0, |row| row[7] = 0x04);
    let block = line + 7 * line;
    assert_eq!(panel[block + 4 * line + 3], 0x02);
    assert_eq!(panel[block + 6 * line], 0xe0);
    // Q2_K: sub-block 6 is macro-block 1, third.
    let panel = one_block(BlockType::Q2_K, 9, |row| row[6] = 0xa7);
    assert_eq!(set_bytes(&panel), [(line + 5 * line + 4 * line + 32 + 9, 0xa7)]);
    // IQ4_XS: scale 5 lies in the second scale line; the others are −32.
    let panel = one_block(BlockType::IQ4_XS, 2, |row| row[4 + 2] = 0x90);
    assert_eq!(panel[2 * line + 16 + 2], 0x09u8.wrapping_sub(32));
    assert_eq!(panel[line + 2], 0xe0);
    // TQ2_0: column 32 + 4 (group 9): line 2, bits 2–3.
    let panel = one_block(BlockType::TQ2_0, 0, |row| row[4] = 0x08);
    assert_eq!(set_bytes(&panel), [(line + 2 * line, 0x08)]);
    // MXFP4: the scale of exponent 127 is one half, as bf16.
    let panel = one_block(BlockType::MXFP4, 0, |row| row[0] = 127);
    assert_eq!((panel[8 * line], panel[8 * line + 1]), (0x00, 0x3f));
    // IQ2_XS: the scale 1.0 · (0.5 + 0) / 4 of sub-block 4 lies in the second block.
    let panel = one_block(BlockType::IQ2_XS, 1, |row| row[1] = 0x3c);
    assert_eq!(panel[20 * line + 16 * line + 4..][..4], 0.125f32.to_le_bytes());
}

#[test]
fn wrong_lengths_are_rejected() {
    let (row, mut panel) = (vec![0; 36], vec![7; 9 * 64]);
    let rows = [&row[..]; 17];
    assert!(!pack(BlockType::Q4_0, &rows, 64, &mut panel));
    assert!(!pack(BlockType::Q4_0, &rows[..16], 33, &mut panel));
    assert!(!pack(BlockType::Q4_0, &rows[..16], 96, &mut panel));
    assert!(!pack(BlockType::Q4_0, &rows[..16], 64, &mut panel[1..]));
    assert!(panel.iter().all(|&byte| byte == 7));
    assert!(pack(BlockType::Q4_0, &rows[..16], 64, &mut panel));
    let mut out = [0.0; 64];
    assert!(!row_values(PanelType::Q4, &panel, 16, 64, &mut out));
    assert!(!row_values(PanelType::Q4, &panel, 0, 65, &mut out));
    assert!(!row_values(PanelType::Q4, &panel[1..], 0, 64, &mut out));
    assert_eq!(sub_block(PanelType::Q4, &panel, 0, 2).count, 0);
    assert_eq!(sub_block(PanelType::Q4, &panel, 16, 0).count, 0);
}

#[test]
fn row_types_lie_where_the_format_says() {
    for (ty, block, end) in [(RowType::W8R, 1024, 64), (RowType::W4I, 544, 32)] {
        let mut row = vec![0; ty.row_bytes(128).unwrap()];
        // Column 64 + 21 of row 3 is byte 1 of group 5 of the second block; its sub-block is 1.
        ty.put_factor(&mut row, 5, -7);
        ty.put_code(&mut row, 85, -6);
        ty.put_scale(&mut row, 0.375);
        let zero = vec![0; row.len()];
        let mut panel = vec![0xff; ty.panel().panel_bytes(128).unwrap()];
        assert!(pack_rows(ty, &[&zero, &zero, &zero, &row], 128, &mut panel));
        assert_eq!(panel.len(), 2 * block + end);
        let mut want = vec![0; panel.len()];
        match ty {
            RowType::W8R => {
                want[block + 5 * 64 + 4 * 3 + 1] = -6_i8 as u8;
                want[2 * block + 4 * 3..][..4].copy_from_slice(&0.375_f32.to_le_bytes());
            }
            RowType::W4I => {
                // Group 5 is the high nibble of line 2; −6 is entry 2 of the codebook, −7 the code 8 + 2.
                want[block + 2 * 64 + 4 * 3 + 1] = 2 << 4;
                want[block + 8 * 64 + 2 * 3] = (8 + 2) << 4;
                want[2 * block + 2 * 3..][..2].copy_from_slice(&0x3ec0_u16.to_le_bytes());
            }
        }
        assert!(panel == want, "{}", ty.name());
    }
}
