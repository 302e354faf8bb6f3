//! Peak throughput of the processor: loops that only compute or only read memory, as the roofline that
//! kernels are compared with.

use core::hint::black_box;

use super::Kernel;
use crate::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::CpuFeatures;
use crate::ops::instantiate::instantiate;
use crate::simd::{IntegerDot, LANES, Simd};

/// Independent operations on sixteen lanes in one round of [`Function`].
pub const ROUND: usize = 12;

/// int8 multiply-adds in one round of the loop that [`dots_for_cpu`] returns.
pub const DOT_ROUND: usize = ROUND * LANES * 4;

/// Runs `rounds` rounds of [`ROUND`] independent operations; `out` depends on all of them.
pub type Function = fn(usize, &mut [f32; 16]);

/// Reads whole vectors of sixteen floats, four at a time; `out` depends on every value read.
pub type Read = fn(&[f32], &mut [f32; 16]);

/// Returns the fused multiply-add loop for a processor.
pub fn for_cpu(cpu: Cpu) -> Function {
    super::select(LIST, cpu).run
}

/// Returns the int8 dot-product loop: four bytes per lane, or AMX tiles.
pub fn dots_for_cpu(cpu: Cpu) -> Function {
    let tiles = TILES.iter().find(|kernel| cpu.has(kernel.needs));
    tiles.map_or_else(|| super::select(DOTS, cpu).run, |kernel| kernel.run)
}

static TILES: &[Kernel<Function>] = &[
    #[cfg(target_arch = "x86_64")]
    Kernel::new("peak-dots-amx", CpuFeatures::AMX, tile_dots),
];

#[cfg(target_arch = "x86_64")]
fn tile_dots(rounds: usize, out: &mut [f32; 16]) {
    super::matmul::amx::dots(rounds * DOT_ROUND, out);
}

/// Returns the loop that only reads memory.
pub fn reads_for_cpu(cpu: Cpu) -> Read {
    super::select(READS, cpu).run
}

instantiate!(LIST: Function = "peak" multiply_add(rounds: usize, out: &mut [f32; 16]));
instantiate!(DOTS: Function = "peak-dots" dots(rounds: usize, out: &mut [f32; 16]));

instantiate!(READS: Read = "peak-reads" reads(numbers: &[f32], out: &mut [f32; 16]));

#[inline(always)]
fn multiply_add<S: Simd>(s: S, rounds: usize, out: &mut [f32; 16]) {
    let (x, y) = (s.load(out), s.splat(0.999));
    if const { S::REGISTERS >= 32 } {
        run::<S, ROUND>(s, rounds, x, y, out);
    } else {
        // Only half as many accumulator chains fit in the registers.
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

#[inline(always)]
fn dots<S: Simd + IntegerDot<Vectors = S>>(s: S, rounds: usize, out: &mut [f32; 16]) {
    let lanes = out.map(|x| x.to_bits() & 0x0707_0707);
    if const { S::REGISTERS >= 32 } {
        run_dots::<S, ROUND>(s, rounds, &lanes, out);
    } else {
        run_dots::<S, { ROUND / 4 }>(s, 4 * rounds, &lanes, out);
    }
}

/// Reloads the second operand in each round, as kernels do; otherwise the compiler could hoist parts of a dot
/// product out of the loop.
#[inline(always)]
fn run_dots<S: Simd + IntegerDot<Vectors = S>, const CHAINS: usize>(
    s: S,
    rounds: usize,
    lanes: &[u32; LANES],
    out: &mut [f32; 16],
) {
    let others: [i32; CHAINS] = core::array::from_fn(|i| 0x0101_0101 * (i as i32 % 7));
    let mut chains = [s.splat_int(0); CHAINS];
    for _ in 0..rounds {
        for (chain, other) in chains.iter_mut().zip(black_box(&others)) {
            *chain = s.dot(*chain, lanes, *other);
        }
    }
    let total = chains.into_iter().fold(s.splat(0.0), |total, chain| s.add(total, s.float(chain)));
    s.store(total, out);
}

#[inline(always)]
fn reads<S: Simd>(s: S, numbers: &[f32], out: &mut [f32; 16]) {
    // With these accumulators and their operands, the registers of every machine are full.
    const CHAINS: usize = 4;
    let mut chains = [s.splat(0.0); CHAINS];
    let vectors = numbers.as_chunks::<LANES>().0;
    for vectors in vectors.as_chunks::<CHAINS>().0 {
        for (chain, vector) in chains.iter_mut().zip(vectors) {
            *chain = s.max(*chain, s.load(vector));
        }
    }
    let total = chains.into_iter().fold(s.splat(0.0), |total, chain| s.add(total, chain));
    s.store(total, out);
}
