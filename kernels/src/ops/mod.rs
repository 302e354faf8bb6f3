//! The operations, one folder each: a contract, a scalar reference and a list of kernels.
//!
//! A kernel computes the part that the caller selects; it allocates nothing, starts no thread and keeps no
//! state.
//! All kernels of a list produce the same bits; the first one whose CPU features are available is selected.
//! [`Kernels`] therefore only holds entries that the CPU supports, which is why calling them is sound. Slice lengths are
//! checked before any unchecked access.

pub mod activation;
#[cfg(target_arch = "x86_64")]
mod amx_tiles;
pub mod attention;
pub mod elementwise;
mod instantiate;
pub mod lookup;
pub mod matmul;
pub mod norm;
pub mod peak;
pub mod quantize;
pub mod recurrence;
pub mod rope;

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
