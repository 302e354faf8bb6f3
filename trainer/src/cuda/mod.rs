//! Training on CUDA.
//!
//! A training step is planned here as a [`Tape`] of kernels and matmuls over places in the memory of a [`Device`]:
//! the same schedule that the CPU runner executes, in the same arena. Only the driver, enabled by the feature `cuda`,
//! uses a device; tests execute tapes on an emulator that runs the kernels' sources without a GPU.

mod adapters;
mod attention;
mod batch_tables;
mod device;
#[cfg(feature = "cuda")]
mod driver;
mod ema;
mod engine;
mod fp8;
mod loss;
mod op;
mod optimizer;
mod routers;
mod runner;
mod tape;
mod weights;

pub use device::Device;
#[cfg(feature = "cuda")]
pub use driver::Cuda;
pub use engine::DeviceTraining;
pub use loss::Objective;
pub use optimizer::OptimizerResult;
pub use runner::{DeviceRunner, OutputObserver, StepObserver, Timed, TimingObserver};
pub use tape::{
    Command, DeviceMatrix, DevicePtr, Fp8Format, Fp8Operand, KernelArgument, Launch, Tape, TapeMatmul,
};

use serde::{Deserialize, Serialize};
use siskin_kernels::quant::BlockType;

/// The dtype of activations and their gradients. Weights, their gradients and optimizer states are kept in f32 in
/// addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32.
    #[default]
    F32,
    /// bfloat16: the high 16 bits of an f32.
    Bf16,
    /// IEEE half precision: the loss is scaled so that small gradients do not underflow.
    Fp16,
}

impl Precision {
    /// Returns the suffix of its kernels' names.
    fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "f16",
        }
    }

    /// Returns the bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::Fp16 => 2,
        }
    }

    /// Returns the block type of weights with this dtype.
    fn block(self) -> BlockType {
        match self {
            Self::F32 => BlockType::F32,
            Self::Bf16 => BlockType::BF16,
            Self::Fp16 => BlockType::F16,
        }
    }

    /// Returns the number of elements in 16 bytes.
    fn wide(self) -> usize {
        16 / self.bytes()
    }
}

/// The alignment of tables, in bytes.
const ALIGNMENT: usize = 256;

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}
