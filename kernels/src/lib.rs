//! Pure compute for transformers: no allocation, no threads, no state, no operating system.
//!
//! Every function takes slices and returns when they are written. Callers decide which thread computes which rows;
//! the result does not depend on it. Each operation has a scalar reference, which defines its bits, and kernels for
//! instruction sets: portable code, AVX2, AVX-VNNI, AVX-512, AMX, NEON, dotprod and i8mm. A kernel that does not return
//! the reference's bits is a bug: sums have a fixed order, integer accumulators are exact, and each step that rounds is
//! a part of the contract at the head of `ops/<op>/mod.rs`.
//!
//! Three types carry the design:
//!
//! - [`Cpu`] is a set of instruction sets, as a value: [`Cpu::detect`] returns this machine's, and tests remove some.
//! - [`ops::Kernels`] has the best kernel of each operation for a [`Cpu`], as a table of functions that is chosen once.
//! - [`panel::PanelType`] is the packed layout of a weight matrix: sixteen rows side by side, in the order in which
//!   kernels read them, as they are in a `.siskin` file.
//!
//! ```
//! use siskin_kernels::functions::ActivationFunction;
//! use siskin_kernels::{Cpu, ops::Kernels};
//!
//! let kernels = Kernels::for_cpu(Cpu::detect());
//! let mut out = [0.0; 4];
//! kernels.activate()(ActivationFunction::Relu, &[-1.0, 0.0, 1.0, 2.0], &mut out);
//! assert_eq!(out, [0.0, 0.0, 1.0, 2.0]);
//! ```
//!
//! Where things are: [`quant`] has the codecs of the GGUF quantization types, [`panel`] the packed layouts,
//! [`hadamard`] the rotation of the row types, [`ops`] the operations, and `simd` the instruction sets behind them.
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
