use crate::common::{TestRandom, tables};
use siskin_kernels::hadamard;
use siskin_kernels::ops::quantize::{QuantizedRowLayout, QuantizedRowReader, reference_rotated as reference};

#[test]
fn all_kernels_give_the_reference_bits() {
    let mut random = TestRandom::new(17);
    for columns in [1, 15, 63, 64, 65, 384, 576, 1000, 2049, 4161] {
        let x = random.vector(columns, 10.0);
        // Below the smallest scale, just above it, and at the largest magnitude that a block sum allows.
        let scaled = |factor: f32| x.iter().map(|x| x * factor).collect();
        for x in [x.clone(), vec![0.0; columns], scaled(1e-36), scaled(1e-31), scaled(5e35)] {
            let mut want = vec![0; QuantizedRowLayout::new(columns).words()];
            reference(&x, &mut want);
            for table in tables() {
                let mut got = vec![-1; want.len()];
                table.quantize_rotated()(&x, &mut got);
                assert!(got == want, "{} {columns}", table.cpu().features());
            }
        }
    }
}

#[test]
fn rotated_back_it_is_the_row() {
    let mut random = TestRandom::new(18);
    let mut x = random.vector(200, 1.0);
    x[70] = 30.0;
    let layout = QuantizedRowLayout::new(200);
    let mut words = vec![0; layout.words()];
    tables()[0].quantize_rotated()(&x, &mut words);
    let row = QuantizedRowReader::new(layout, &words);
    let mut back: Vec<f32> = (0..256).map(|column| row.value(column) as f32 * row.scale(column)).collect();
    hadamard::rotate(&mut back);
    for (column, (back, x)) in back.iter().zip(&x).enumerate() {
        // Half a step in each of the 64 elements of a block, all with the same sign: 8 half steps.
        assert!((back - x).abs() <= 4.0 * row.scale(0), "{column}: {x} became {back}");
    }
    assert_eq!(words[layout.scaled_sums()], (0..256).map(|column| row.value(column)).sum::<i32>());
}

#[test]
fn a_number_that_is_not_finite_does_not_hide() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38] {
        let mut x = vec![bad; 130];
        x[65] = 1.0;
        let mut want = vec![0; QuantizedRowLayout::new(130).words()];
        reference(&x, &mut want);
        assert!(QuantizedRowReader::new(QuantizedRowLayout::new(130), &want).scale(0).is_nan());
        for table in tables() {
            let mut words = vec![-1; want.len()];
            table.quantize_rotated()(&x, &mut words);
            assert!(words == want, "{} {bad}", table.cpu().features());
        }
    }
}
