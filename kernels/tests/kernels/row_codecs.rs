use crate::common::TestRandom;
use siskin_kernels::hadamard;
use siskin_kernels::panel::{ROWS, pack_rows, row_values, sub_block};
use siskin_kernels::quant::BlockType;
use siskin_kernels::quant::row::*;

/// Returns approximately normal values, as in rotated rows: sums of many.
fn normal(random: &mut TestRandom, count: usize) -> Vec<f32> {
    (0..count).map(|_| (0..12).map(|_| random.unit()).sum::<f32>() / 2.0).collect()
}

fn encoded(ty: RowType, values: &[f32], weights: Option<&[f32]>) -> (Vec<u8>, Vec<f32>) {
    let mut row = vec![0xff; ty.row_bytes(values.len()).unwrap()];
    assert!(ty.encode(values, weights, &mut row));
    let mut back = vec![f32::NAN; values.len()];
    assert!(ty.decode(&row, &mut back));
    (row, back)
}

fn squares(values: &[f32], back: &[f32], weights: &[f32]) -> f64 {
    let terms = values.iter().zip(back).zip(weights);
    terms.map(|((x, y), w)| f64::from(w * (x - y) * (x - y))).sum()
}

/// Returns the squared error of a block type.
fn block_squares(ty: BlockType, values: &[f32]) -> f64 {
    let mut row = vec![0; ty.row_bytes(values.len()).unwrap()];
    let mut back = vec![0.0; values.len()];
    assert!(ty.quantize_row(values, None, &mut row) && ty.dequantize_row(&row, &mut back));
    squares(values, &back, &vec![1.0; values.len()])
}

/// Values with a few outliers, like weights before rotation.
#[test]
fn less_error_is_left_than_by_block_types_of_more_bits() {
    let mut random = TestRandom::new(30);
    let (mut four, mut five, mut eight, mut more) = (0.0, 0.0, 0.0, 0.0);
    for _ in 0..40 {
        let mut values = normal(&mut random, 576);
        values.iter_mut().step_by(21).for_each(|x| *x *= 4.0);
        five += block_squares(BlockType::Q4_1, &values);
        more += block_squares(BlockType::Q8_0, &values);
        hadamard::rotate(&mut values);
        let ours = |ty| squares(&values, &encoded(ty, &values, None).1, &[1.0; 576]);
        four += ours(RowType::W4I);
        eight += ours(RowType::W8R);
    }
    assert!(four < 0.75 * five, "{four} against {five}");
    assert!(eight < more, "{eight} against {more}");
}

#[test]
fn eight_bits_are_within_half_a_step() {
    let mut random = TestRandom::new(31);
    let values = normal(&mut random, 384);
    let largest = values.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    let (_, back) = encoded(RowType::W8R, &values, None);
    for (x, y) in values.iter().zip(&back) {
        assert!((x - y).abs() <= largest * 0.041, "{x} became {y}");
    }
    let error = squares(&values, &back, &[1.0; 384]) / 384.0;
    let step = f64::from(largest / 127.0);
    assert!(error <= step * step / 11.0, "{error}");
}

#[test]
fn weights_move_the_error_to_where_they_are_small() {
    let mut random = TestRandom::new(32);
    let values = normal(&mut random, 256);
    let weights: Vec<f32> = (0..256).map(|i| if i % 16 < 4 { 20.0 } else { 0.1 }).collect();
    let (_, plain) = encoded(RowType::W4I, &values, None);
    let (_, moved) = encoded(RowType::W4I, &values, Some(&weights));
    assert!(squares(&values, &moved, &weights) < 0.9 * squares(&values, &plain, &weights));
}

#[test]
fn rows_of_nothing_and_of_almost_nothing_stay_so() {
    for ty in RowType::ALL {
        for value in [0.0, 1e-44, -1e-39, f32::MIN_POSITIVE] {
            let (_, back) = encoded(*ty, &[value; 64], None);
            assert!(back.iter().all(|back| back.abs() <= 2e-38), "{} {value}", ty.name());
        }
        let (_, back) = encoded(*ty, &[-1e38; 64], None);
        assert!(back.iter().all(|back| (back / -1e38 - 1.0).abs() < 0.1), "{} {}", ty.name(), back[0]);
    }
}

#[test]
fn lengths_are_checked() {
    for ty in RowType::ALL {
        let mut row = vec![0; ty.row_bytes(64).unwrap()];
        assert!(!ty.encode(&[0.0; 63], None, &mut row));
        assert!(!ty.encode(&[0.0; 64], Some(&[0.0; 63]), &mut row));
        assert!(!ty.encode(&[0.0; 128], None, &mut row) && !ty.decode(&row, &mut [0.0; 128]));
        assert_eq!(ty.row_bytes(usize::MAX), None);
        assert!(!pack_rows(*ty, &[&row[1..]], 64, &mut vec![0; ty.panel().panel_bytes(64).unwrap()]));
    }
}

#[test]
fn panels_hold_the_encoded_rows() {
    let mut random = TestRandom::new(33);
    for ty in RowType::ALL {
        for columns in [64_usize, 100, 576] {
            let padded = columns.next_multiple_of(64);
            let values: Vec<Vec<f32>> = (0..5).map(|_| normal(&mut random, padded)).collect();
            let rows: Vec<_> = values.iter().map(|values| encoded(*ty, values, None)).collect();
            let slices: Vec<&[u8]> = rows.iter().map(|(row, _)| &row[..]).collect();
            let mut panel = vec![0xa5; ty.panel().panel_bytes(columns).unwrap()];
            assert!(pack_rows(*ty, &slices, columns, &mut panel));
            for lane in 0..ROWS {
                let mut numbers = vec![f32::NAN; columns];
                assert!(row_values(ty.panel(), &panel, lane, columns, &mut numbers));
                let Some((_, back)) = rows.get(lane) else {
                    assert!(numbers.iter().all(|&number| number == 0.0));
                    continue;
                };
                for (index, back) in back.chunks(ty.panel().sub_block()).enumerate() {
                    let sub = sub_block(ty.panel(), &panel, lane, index);
                    assert_eq!(sub.count, back.len());
                    let same = back.iter().zip(sub.values).all(|(x, q)| *x == sub.scale * f32::from(q));
                    assert!(same, "{} {columns} {lane} {index}", ty.name());
                }
                let mut rotated = back.clone();
                hadamard::rotate(&mut rotated);
                for (number, expected) in numbers.iter().zip(&rotated) {
                    assert!((number - expected).abs() < 1e-5, "{} {number} {expected}", ty.name());
                }
            }
        }
    }
}
