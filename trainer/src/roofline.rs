//! The peak throughput of the CPU (roofline), to which the rate of a run is compared.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use siskin_kernels::Cpu;
use siskin_kernels::ops::peak;

/// How long all threads compute: long enough for clocks to ramp up.
const MEASURING_TIME: Duration = Duration::from_millis(10);
/// Rounds between two reads of the clock.
const ROUNDS: usize = 1 << 14;
/// FLOPs of a round: a multiplication and an addition in each of sixteen lanes.
const ROUND: usize = peak::ROUND * 16 * 2;

/// Returns the f32 FLOP/s of all training threads together; measured once.
pub fn peak_flops() -> f64 {
    static PEAK: OnceLock<f64> = OnceLock::new();
    *PEAK.get_or_init(|| rayon::broadcast(|_| thread_flops()).into_iter().sum())
}

/// Returns the best rate of this thread.
fn thread_flops() -> f64 {
    let run = peak::for_cpu(Cpu::detect());
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < MEASURING_TIME {
        let begun = Instant::now();
        run(ROUNDS, black_box(&mut [1.0; 16]));
        best = best.min(begun.elapsed().as_secs_f64());
    }
    (ROUNDS * ROUND) as f64 / best.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_not_exceeded_by_a_matmul() {
        let (m, n) = (256, 256);
        let numbers = vec![1.0_f32; m * n];
        let mut out = vec![0.0; m * n];
        let matrix = || crate::gemm::MatrixView::new(&numbers, m, n, n);
        let begun = Instant::now();
        crate::gemm::multiply(1.0, matrix(), matrix(), false, crate::gemm::MatrixOutput::new(&mut out, n));
        let rate = 2.0 * (m * n * n) as f64 / begun.elapsed().as_secs_f64();
        assert!(peak_flops() > 0.5 * rate, "{rate} of {}", peak_flops());
    }
}
