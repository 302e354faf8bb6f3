use crate::common::{TestRandom, tables};
use siskin_kernels::ops::quantize::{QuantizedRowLayout, QuantizedRowReader, reference};

#[test]
fn all_kernels_give_the_reference_bits() {
    let mut random = TestRandom::new(7);
    for columns in [1, 16, 31, 32, 33, 576, 640, 1536, 2049] {
        let mut x = random.vector(columns, 10.0);
        x[columns / 2] = 1e-38;
        if columns > 64 {
            x[32..64].fill(0.0);
            x[..32].fill(1e-33);
            // Finite, but the sum of two of them is not.
            x[64..96].fill(3e38);
        }
        let mut want = vec![0; QuantizedRowLayout::new(columns).words()];
        reference(&x, &mut want);
        for table in tables() {
            let mut got = vec![-1; want.len()];
            table.quantize()(&x, &mut got);
            assert!(got == want, "{} {columns}", table.cpu().features());
        }
    }
}

#[test]
fn values_come_back_within_half_a_step() {
    let x = TestRandom::new(8).vector(300, 3.0);
    let layout = QuantizedRowLayout::new(300);
    let mut words = vec![0; layout.words()];
    tables()[0].quantize()(&x, &mut words);
    let row = QuantizedRowReader::new(layout, &words);
    for (column, &x) in x.iter().enumerate() {
        let back = row.value(column) as f32 * row.scale(column);
        assert!((back - x).abs() <= row.scale(column) * 0.5001, "{column}: {x} became {back}");
    }
}

#[test]
fn a_number_that_is_not_finite_does_not_hide() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for place in 0..70 {
            let mut x = vec![1.0; 70];
            x[place] = bad;
            let mut want = vec![0; QuantizedRowLayout::new(70).words()];
            reference(&x, &mut want);
            assert!((0..70).all(|column| {
                QuantizedRowReader::new(QuantizedRowLayout::new(70), &want).scale(column).is_nan()
            }));
            for table in tables() {
                let mut words = vec![-1; want.len()];
                table.quantize()(&x, &mut words);
                assert!(words == want, "{} {bad} {place}", table.cpu().features());
            }
        }
    }
}
