//! Trains the graphs that Siskin runs: backward is derived from the same graph that the runtime executes.

pub mod batch;
pub mod data;
pub mod gemm;
pub mod grad;
pub mod loss;
mod parameters;
pub mod program;
pub mod random;
mod real;
mod runner;

pub use parameters::{Gradients, Parameter, Parameters};
pub use program::{Program, Recompute};
pub use real::Real;
pub use runner::{Goal, Runner};
