//! Trains the graphs that Siskin runs: backward is derived from the same graph that the runtime executes.

pub mod batch;
pub mod checkpoint;
pub mod export;
pub mod gemm;
pub mod grad;
mod initial;
pub mod loss;
mod parameters;
pub mod program;
mod random;
mod real;
mod runner;
pub mod tokenizer;

pub use initial::Beginning;
pub use parameters::{Gradients, Parameter, Parameters};
pub use program::{Program, Recompute};
pub use random::Random;
pub use real::Real;
pub use runner::{Goal, Runner};
