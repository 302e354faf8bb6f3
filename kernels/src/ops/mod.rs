//! The operations, one folder each: a contract, a scalar reference and a list of kernels.
//!
//! A kernel computes the part that the caller selects; it allocates nothing, starts no thread and keeps no
//! state.
//! All kernels of a list produce the same bits; the first one whose CPU features are available is selected.

pub mod activation;
pub mod attention;
pub mod elementwise;
#[cfg(test)]
mod identity_tests;
pub mod lookup;
pub mod matmul;
pub mod norm;
pub mod peak;
pub mod quantize;
pub mod recurrence;
pub mod rope;
#[cfg(target_arch = "x86_64")]
mod tiles;

use crate::{Cpu, CpuFeatures};

/// One implementation of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Kernel<F: 'static> {
    name: &'static str,
    needs: CpuFeatures,
    run: F,
}

impl<F: Copy> Kernel<F> {
    pub(crate) const fn new(name: &'static str, needs: CpuFeatures, run: F) -> Self {
        Self { name, needs, run }
    }

    /// Returns `operation-isa`, as `doctor` and `bench` print it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the CPU features that it requires.
    pub fn needs(&self) -> CpuFeatures {
        self.needs
    }
}

/// Returns the first kernel of a list that the processor can run. The last entry of every list requires no
/// features.
fn select<F: Copy>(list: &'static [Kernel<F>], cpu: Cpu) -> Kernel<F> {
    let last = list[list.len() - 1];
    list.iter().copied().find(|kernel| cpu.has(kernel.needs)).unwrap_or(last)
}

macro_rules! table {
    ($($(#[$doc:meta])* $field:ident: $function:ty = $list:expr;)*) => {
        /// The kernel table of one processor.
        #[derive(Clone, Copy, Debug)]
        pub struct Kernels {
            cpu: Cpu,
            $($field: Kernel<$function>,)*
        }

        impl Kernels {
            /// Selects the best kernels that `cpu` can run.
            pub fn for_cpu(cpu: Cpu) -> Self {
                Self { cpu, $($field: select($list, cpu),)* }
            }

            /// Returns the names of the selected kernels.
            pub fn names(&self) -> impl Iterator<Item = &'static str> {
                [$(self.$field.name,)*].into_iter()
            }

            $($(#[$doc])* pub fn $field(&self) -> $function { self.$field.run })*
        }
    };
}

table! {
    /// See [`lookup`].
    lookup: lookup::Function = lookup::LIST;
    /// See [`norm`].
    norm: norm::Function = norm::LIST;
    /// See [`activation`].
    activate: activation::Activate = activation::ACTIVATE;
    /// See [`activation`].
    gate: activation::Gate = activation::GATE;
    /// See [`activation`].
    limited_gate: activation::LimitedGate = activation::LIMITED_GATE;
    /// See [`recurrence`].
    recurrence: recurrence::Function = recurrence::LIST;
    /// See [`elementwise`].
    add: elementwise::Add = elementwise::ADD;
    /// See [`elementwise`].
    affine: elementwise::Affine = elementwise::AFFINE;
    /// See [`elementwise`].
    map: elementwise::MapFunction = elementwise::MAP;
    /// See [`rope`].
    rope: rope::Function = rope::LIST;
    /// See [`quantize`].
    quantize: quantize::Function = quantize::LIST;
    /// See [`quantize`].
    quantize_rotated: quantize::Function = quantize::ROTATED_LIST;
    /// See [`attention`].
    attention: attention::Function = attention::LIST;
    /// See [`attention`].
    merge: attention::Merge = attention::MERGE_LIST;
    /// See [`matmul`].
    matmul: matmul::Function = matmul::LIST;
}

impl Kernels {
    /// Returns the processor that the kernels were selected for.
    pub fn cpu(&self) -> Cpu {
        self.cpu
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers shared by the tests of all operations.

    use super::Kernels;
    use crate::{Cpu, CpuFeatures};

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
}
