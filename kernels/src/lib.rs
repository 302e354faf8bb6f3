//! Pure compute for transformers: no allocation, no threads, no state, no operating system.
//!
//! - [`quant`]: how the blocks of each GGUF weight type become numbers, and back.
//! - [`panel`]: the packed layout in which a `.siskin` file holds weight matrices.
//! - [`hadamard`]: the rotation that goes with the row types.
//! - [`ops`]: the operations, each with a plain reference and a list of kernels.
//! - [`Cpu`]: what the processor can do, as a value; [`ops::Kernels`]: what was chosen for it.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

mod cpu;
pub mod float;
pub mod hadamard;
mod math;
pub mod ops;
pub mod panel;
pub mod prefetch;
pub mod quant;
mod simd;

pub use cpu::{Cpu, Features};
