use crate::common::{TestRandom, bits, tables};
use siskin_kernels::ops::norm::{NormArguments, reference};

#[test]
fn all_kernels_give_the_reference_bits() {
    let mut random = TestRandom::new(1);
    for (group, groups) in [(1, 3), (15, 2), (16, 1), (24, 4), (64, 9), (576, 1), (641, 2)] {
        let x = random.vector(group * groups, 3.0);
        let weight = random.vector(group, 2.0);
        let bias = random.vector(group, 1.0);
        for (centered, bias) in [(false, &[][..]), (false, &bias), (true, &[]), (true, &bias)] {
            let arguments = NormArguments { centered, weight: &weight, bias, epsilon: 1e-5 };
            let mut want = vec![0.0; x.len()];
            reference(&arguments, &x, &mut want);
            for table in tables() {
                let mut got = vec![0.0; x.len()];
                table.norm()(&arguments, &x, &mut got);
                assert_eq!(bits(&got), bits(&want), "{} {group}×{groups}", table.cpu().features());
            }
        }
    }
}

#[test]
fn a_layer_norm_has_mean_zero_and_variance_one() {
    let x: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let arguments = NormArguments { centered: true, weight: &[1.0; 40], bias: &[], epsilon: 0.0 };
    let mut out = vec![0.0; 40];
    tables()[0].norm()(&arguments, &x, &mut out);
    let mean: f32 = out.iter().sum::<f32>() / 40.0;
    let variance: f32 = out.iter().map(|y| y * y).sum::<f32>() / 40.0;
    assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean} {variance}");
}
