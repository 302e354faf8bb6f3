//! Helpers of the CUDA executor tests.

use std::path::Path;

use siskin_tests::cuda::TestDevice;
use siskin_trainer::loss::Targets;

/// Returns a device, or prints a message and returns `None` if there is no C++ compiler.
pub fn device() -> Option<TestDevice> {
    TestDevice::open(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

pub fn targets(rows: usize, columns: usize) -> Targets {
    Targets {
        ids: (0..rows).map(|row| ((row * 7 + 3) % columns) as u32).collect(),
        weights: (0..rows).map(|row| if row % 5 == 4 { 0.0 } else { 1.0 }).collect(),
        numbers: Vec::new(),
    }
}

/// Returns the largest difference relative to the largest expected magnitude, which is at least `least`.
pub fn error(got: &[f32], want: &[f32], least: f32) -> f32 {
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(least, |largest, x| largest.max(x.abs())).max(f32::MIN_POSITIVE);
    let apart = got.iter().zip(want).map(|(a, b)| (a - b).abs());
    // NaN counts as an infinite difference.
    apart.map(|x| if x.is_nan() { f32::INFINITY } else { x }).fold(0.0, f32::max) / largest
}

/// Returns numbers between -1 and 1.
pub fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |i: usize| (((i + 31 * seed) * 2_654_435_761 % 1_000_003) as f32 / 500_001.5) - 1.0;
    (0..count).map(number).collect()
}
