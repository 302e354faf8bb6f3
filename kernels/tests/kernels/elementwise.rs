use crate::common::{TestRandom, bits, tables};
use siskin_kernels::ops::elementwise::{ElementwiseFunction, reference, reference_affine};

#[test]
fn maps_agree_with_the_definition_and_bit_for_bit_with_each_other() {
    let x = TestRandom::new(3).vector(333, 70.0);
    for map in [
        ElementwiseFunction::Scale(0.22),
        ElementwiseFunction::Softcap(30.0),
        ElementwiseFunction::Clamp(8.0),
    ] {
        let mut first = None;
        for table in tables() {
            let mut out = vec![0.0; x.len()];
            table.map()(map, &x, &mut out);
            for (&x, &y) in x.iter().zip(&out) {
                let want = reference(map, f64::from(x));
                assert!((f64::from(y) - want).abs() <= 1e-5, "{map:?}({x}) = {y}, not {want}");
            }
            assert_eq!(first.get_or_insert_with(|| bits(&out)), &bits(&out));
        }
    }
}

#[test]
fn factors_and_terms_are_rounded_once() {
    let mut random = TestRandom::new(5);
    for length in [1, 16, 19, 576] {
        let [x, weight, bias] = [3.0, 1.5, 0.25].map(|scale| random.vector(length, scale));
        for table in tables() {
            let mut out = vec![f32::NAN; length];
            table.affine()(&x, &weight, &bias, &mut out);
            for (i, &got) in out.iter().enumerate() {
                // The product of two 24-bit significands plus a bias of similar magnitude is exact in
                // double precision.
                let want = f64::from(x[i]) * f64::from(weight[i]) + f64::from(bias[i]);
                assert_eq!(got.to_bits(), (want as f32).to_bits(), "{length} {i}");
                assert_eq!(got.to_bits(), reference_affine(x[i], weight[i], bias[i]).to_bits());
            }
        }
    }
}

#[test]
fn sums_are_exact() {
    let mut random = TestRandom::new(4);
    for length in [1, 16, 19, 576] {
        let (a, b) = (random.vector(length, 5.0), random.vector(length, 5.0));
        for table in tables() {
            let mut out = vec![0.0; length];
            table.add()(&a, &b, &mut out);
            assert!(out.iter().zip(a.iter().zip(&b)).all(|(out, (a, b))| *out == a + b));
        }
    }
}
