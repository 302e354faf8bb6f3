//! What the processor can do at most: loops that touch no memory, to compare kernels with.

use crate::Cpu;
use crate::simd::{Simd, instantiate};

/// Fused multiply-adds of sixteen lanes in one round of [`Function`].
pub const ROUND: usize = 12;

/// Runs `rounds` of [`ROUND`] independent fused multiply-adds; `out` depends on all of them.
pub type Function = fn(usize, &mut [f32; 16]);

/// The loop for a processor.
pub fn for_cpu(cpu: Cpu) -> Function {
    super::select(LIST, cpu).run
}

instantiate!(LIST: Function = "ceiling" multiply_add(rounds: usize, out: &mut [f32; 16]));

#[inline(always)]
fn multiply_add<S: Simd>(s: S, rounds: usize, out: &mut [f32; 16]) {
    let (x, y) = (s.load(out), s.splat(0.999));
    if const { S::REGISTERS >= 32 } {
        run::<S, ROUND>(s, rounds, x, y, out);
    } else {
        // Half as many chains fit into the registers.
        run::<S, { ROUND / 2 }>(s, 2 * rounds, x, y, out);
    }
}

#[inline(always)]
fn run<S: Simd, const CHAINS: usize>(s: S, rounds: usize, x: S::F, y: S::F, out: &mut [f32; 16]) {
    let mut chains = [x; CHAINS];
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = s.fma(*chain, y, x);
        }
    }
    let total = chains.into_iter().fold(s.splat(0.0), |total, chain| s.add(total, chain));
    s.store(total, out);
}
