use crate::common::{TestRandom, bits, tables};
use siskin_kernels::ops::rope::{cos_sin, reference};

#[test]
fn all_kernels_give_the_reference_bits() {
    let mut random = TestRandom::new(5);
    for (head_size, pairs, heads) in [(16, 8, 2), (24, 12, 3), (64, 32, 9), (80, 16, 1), (256, 128, 4)] {
        let frequencies: Vec<f32> = (0..pairs).map(|i| 10_000_f32.powf(-(i as f32) / pairs as f32)).collect();
        let mut table = vec![0.0; 2 * pairs];
        cos_sin(&frequencies, 1.0, 1234, &mut table);
        let x = random.vector(head_size * heads, 2.0);
        let mut want = vec![0.0; x.len()];
        reference(&table, head_size, &x, &mut want);
        for kernels in tables() {
            let mut got = vec![0.0; x.len()];
            kernels.rope()(&table, head_size, &x, &mut got);
            assert_eq!(bits(&got), bits(&want), "{} {head_size}", kernels.cpu().features());
        }
    }
}

#[test]
fn turning_keeps_lengths() {
    let mut table = vec![0.0; 64];
    cos_sin(&[0.37; 32], 1.0, 77, &mut table);
    let x = TestRandom::new(6).vector(64, 1.0);
    let mut out = vec![0.0; 64];
    tables()[0].rope()(&table, 64, &x, &mut out);
    let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
    assert!((length(&x) - length(&out)).abs() < 1e-4);
    assert_ne!(x, out);
}
