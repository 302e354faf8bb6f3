//! Pure compute for transformers: no allocation, no threads, no state, no operating system.
//!
//! - [`quant`]: codecs, which convert the blocks of each GGUF quantization type to f32 values and back.
//! - [`panel`]: the packed layout of weight matrices in a `.siskin` file.
//! - [`hadamard`]: the Hadamard rotation of the row types.
//! - [`ops`]: the operations, each with a scalar reference and a list of kernels.
//! - [`Cpu`]: the instruction sets of the processor, as a value; [`ops::Kernels`]: the kernels selected for
//!   it.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

mod cpu;
pub mod float;
pub mod functions;
pub mod hadamard;
mod math;
pub mod ops;
pub mod panel;
pub mod prefetch;
pub mod quant;
mod simd;

pub use cpu::{Cpu, CpuFeatures};
