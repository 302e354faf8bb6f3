//! Helpers shared by the tests of all operations.

use siskin_kernels::ops::Kernels;
use siskin_kernels::{Cpu, CpuFeatures};

/// Returns a kernel table for every instruction-set level that this machine can run, best first.
pub(crate) fn tables() -> Vec<Kernels> {
    if siskin_emulator::install() {
        // SAFETY: the emulator executes instructions that the machine lacks.
        unsafe { Cpu::claim(CpuFeatures::AMX) }
    }
    let cpu = Cpu::detect();
    let avx2 = CpuFeatures::AVX512.with(CpuFeatures::AVXVNNI);
    let levels = [
        CpuFeatures::NONE,
        CpuFeatures::AMX,
        CpuFeatures::AVX512,
        avx2,
        CpuFeatures::I8MM,
        CpuFeatures::DOTPROD,
    ];
    let mut cpus = Vec::new();
    for cpu in levels.map(|level| cpu.without(level)).into_iter().chain([Cpu::scalar()]) {
        if !cpus.contains(&cpu) {
            cpus.push(cpu);
        }
    }
    cpus.into_iter().map(Kernels::for_cpu).collect()
}

/// A reproducible random number generator.
pub(crate) struct TestRandom(u64);

impl TestRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number from −1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(crate) fn vector(&mut self, length: usize, scale: f32) -> Vec<f32> {
        (0..length).map(|_| self.unit() * scale).collect()
    }
}

/// Returns the bit patterns, so that NaN equals itself and signed zeros differ.
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
