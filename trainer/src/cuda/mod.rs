//! Training on CUDA.
//!
//! A training step is planned here as a [`CommandList`](siskin_device::CommandList) of kernels and matmuls over places
//! in the memory of a [`Device`](siskin_device::Device): the same schedule that the CPU runner executes, in the same
//! arena. With the feature `cuda`, the device is a GPU; tests execute the lists on an emulator that runs the kernels'
//! sources without one.

mod adapters;
mod ema;
mod fp8;
mod loss;
mod op;
mod optimizer;
mod routers;
mod runner;
mod weights;

pub use adapters::HostAdapters;
pub use loss::Objective;
pub use optimizer::{HostOptimizer, OptimizerResult};
pub use runner::{DeviceRunner, OutputObserver, RunnerBuilder, StepObserver, Timed, TimingObserver};

use siskin_device::Precision;
use siskin_kernels::quant::BlockType;

/// Returns the block type of weights with this dtype.
fn block_type(precision: Precision) -> BlockType {
    match precision {
        Precision::F32 => BlockType::F32,
        Precision::Bf16 => BlockType::BF16,
        Precision::Fp16 => BlockType::F16,
    }
}
