use crate::common::{bits, tables};
use siskin_kernels::ops::activation::{ActivationFunction, GateLimits, reference, reference_limited};

#[test]
fn kernels_agree_with_the_definition_and_bit_for_bit_with_each_other() {
    let x: Vec<f32> = (-2003..2003)
        .map(|i| i as f32 * 0.01)
        .chain([90.0, -90.0, 300.0, -300.0, 0.0, 1e30, -1e30])
        .collect();
    let up: Vec<f32> = x.iter().map(|x| 0.5 - x).collect();
    for &kind in ActivationFunction::ALL {
        let mut first: Option<(Vec<u32>, Vec<u32>)> = None;
        for table in tables() {
            let (mut out, mut gated) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            table.activate()(kind, &x, &mut out);
            table.gate()(kind, &x, &up, &mut gated);
            for (i, (&x, &y)) in x.iter().zip(&out).enumerate() {
                let want = reference(kind, f64::from(x));
                let within = if kind == ActivationFunction::Gelu { 1e-7 } else { 4e-7 };
                assert!(
                    (f64::from(y) - want).abs() <= within * want.abs().max(1.0),
                    "{kind:?}({x}) = {y}, not {want}"
                );
                assert_eq!(gated[i].to_bits(), (y * up[i]).to_bits());
            }
            let (want, want_gated) = first.get_or_insert_with(|| (bits(&out), bits(&gated)));
            assert_eq!(&bits(&out), want, "{kind:?} on {}", table.cpu().features());
            assert_eq!(&bits(&gated), want_gated, "{kind:?} on {}", table.cpu().features());
        }
    }
}

#[test]
fn numbers_that_are_not_finite() {
    for &kind in ActivationFunction::ALL.iter().filter(|&&kind| kind != ActivationFunction::Sigmoid) {
        for table in tables() {
            // Several vectors, one more vector, and a partial vector.
            let (mut x, mut out) = ([1.0; 64 + 16 + 3], [0.0; 64 + 16 + 3]);
            for start in [0, 40, 64, 80] {
                x[start..start + 3].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
            }
            table.activate()(kind, &x, &mut out);
            for start in [0, 40, 64, 80] {
                let out = &out[start..start + 3];
                assert!(out[0].is_nan() && out[1] == f32::INFINITY, "{kind:?}: {out:?}");
                // Functions that multiply by a sigmoid have an infinite factor.
                let is_product = matches!(kind, ActivationFunction::Silu | ActivationFunction::GeluTanh);
                assert!(is_product || out[2].abs() < 1e-30, "{kind:?}: {out:?}");
            }
        }
    }
}

#[test]
fn limited_gates_agree_with_the_definition_and_bit_for_bit_with_each_other() {
    let gate: Vec<f32> = (-1100..1103).map(|i| i as f32 * 0.01).collect();
    let up: Vec<f32> = gate.iter().map(|x| 3.0 - 1.7 * x).collect();
    let limits = GateLimits { limit: 7.0, slope: 1.702 };
    let mut first = None;
    for table in tables() {
        let mut out = vec![0.0; gate.len()];
        table.limited_gate()(limits, &gate, &up, &mut out);
        for ((&gate, &up), &got) in gate.iter().zip(&up).zip(&out) {
            let want = reference_limited(limits, f64::from(gate), f64::from(up));
            assert!((f64::from(got) - want).abs() <= 4e-7 * want.abs().max(1.0), "{gate} {up}");
        }
        assert_eq!(first.get_or_insert_with(|| bits(&out)), &bits(&out));
    }
}
