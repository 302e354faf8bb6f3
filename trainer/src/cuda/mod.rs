//! Trains on a graphics processor.
//!
//! What a step does there is planned here, as a [`Tape`] of kernels and products over places in the memory of a
//! [`Device`]: the same schedule that the CPU's runner walks, in the same arena. Nothing here touches a device but the
//! driver, which is there with the feature `cuda`; tests run tapes on a machine that carries out the kernels' sources
//! without a graphics processor.

mod adapters;
mod attention;
mod average;
mod device;
#[cfg(feature = "cuda")]
mod driver;
mod eights;
mod engine;
mod loss;
mod op;
mod optimiser;
mod routers;
mod runner;
mod sheet;
mod tape;
mod weights;

pub use device::Device;
#[cfg(feature = "cuda")]
pub use driver::Cuda;
pub use engine::Engine;
pub use loss::Objective;
pub use optimiser::Judged;
pub use runner::{Runner, Show, Tell, Timed, Watch};
pub use tape::{Argument, Command, Eight, Launch, Matrix, Place, Product, Range, Tape};

use serde::{Deserialize, Serialize};
use siskin_kernels::quant::BlockType;

/// The numbers that values and their gradients are kept in. Weights, their gradients and what the optimiser remembers are
/// floats beside that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Floats.
    #[default]
    F32,
    /// The upper halves of floats.
    Bf16,
    /// Halves: the loss is scaled so that small gradients do not vanish.
    Fp16,
}

impl Precision {
    /// How the names of its kernels end.
    fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "f16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }

    /// Rows of its numbers as weights of this type.
    fn block(self) -> BlockType {
        match self {
            Self::F32 => BlockType::F32,
            Self::Bf16 => BlockType::BF16,
            Self::Fp16 => BlockType::F16,
        }
    }

    /// Numbers in 16 bytes.
    fn wide(self) -> usize {
        16 / self.bytes()
    }
}

/// What tables begin at a multiple of.
const ALIGNMENT: usize = 256;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}
